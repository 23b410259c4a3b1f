"""The reader of Memory-R2 and its answer prompt: the memories of both sides of a conversation.

One side is the first speaker, the other one is everybody else. Of each side the memories nearest to
the question are recalled (`FactReader`), and shown in the order of their sessions
(`SpeakerAnswering`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any

from ...memory.entry import SpeakerIs
from ...records import Context, Hit, Query, comparable, format_time
from ...signatures.memory_r2 import AnswerFromMemories
from ...text import one_line
from ..reader import EntryReader
from ..tasks.answering import QuestionAnswering
from ..tasks.task import with_items
from .memory import FactMemory

FIRST_SPEAKER = "first speaker"
"""The note of a context that holds the name of the first speaker."""


class FactReader(EntryReader[FactMemory]):
    """Recall the `k` nearest memories of the first speaker, and as many of everybody else."""

    def recall(self, memory: FactMemory, query: Query) -> Context:
        """Return the memories nearest to a question, of both sides of the conversation, best first.

        One side is the first speaker, the other one everybody else. Each gives up to `k` memories.
        """
        first_speaker = _first_speaker(memory, query)
        first_hits = self._search_side(memory, query, SpeakerIs(first_speaker))
        other_hits = self._search_side(memory, query, SpeakerIs(first_speaker, same=False))

        hits = sorted([*first_hits, *other_hits], key=attrgetter("score"), reverse=True)
        # The answer prompt shows both sides apart, so it must know who the first speaker is.
        return Context(hits=tuple(hits), notes={FIRST_SPEAKER: first_speaker})

    def _search_side(self, memory: FactMemory, query: Query, side: SpeakerIs) -> list[Hit]:
        """Return the memories nearest to a question among those of one side."""
        hits_per_query = self.indexes.search(
            memory, [query.search_text], self.k, self.min_score, side
        )
        return hits_per_query[0]


class SpeakerAnswering(QuestionAnswering):
    """Answer with the paper's prompt, from memories of both sides that are grouped by session."""

    prompt = AnswerFromMemories

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """Return the inputs of the answer prompt: the memories of both sides, and the question."""
        first_speaker = context.notes.get(FIRST_SPEAKER, "")
        first_hits = [hit for hit in context.hits if hit.speaker == first_speaker]
        other_hits = [hit for hit in context.hits if hit.speaker != first_speaker]

        # Raw items that the question comes with stand at the end of all memories.
        other_memories = with_items(_lines_by_session(other_hits), query.shown_items)
        return {
            "first_speaker_memories": _lines_by_session(first_hits),
            "second_speaker_memories": other_memories,
            "question": query.dated_text,
        }


def _first_speaker(memory: FactMemory, query: Query) -> str:
    """Return who speaks first in the history.

    If the query does not say who speaks, that is whom the oldest fact is about; "" without facts.
    """
    if query.speakers:
        return query.speakers[0]
    if memory.facts:
        return memory.facts[0].speaker
    return ""


def _lines_by_session(hits: Iterable[Hit]) -> str:
    """Return memories one per line, oldest session first; those of one session in rank order."""
    return "\n".join(_line_of(hit) for hit in sorted(hits, key=_session_time))


def _session_time(hit: Hit) -> datetime:
    return comparable(hit.time)


def _line_of(hit: Hit) -> str:
    """Return a memory on one line: `[m3] (8 May 2023, Monday 13:56) Ann: Ann lives in Lisbon`."""
    date = f" ({format_time(hit.time)})" if hit.time else ""
    return one_line(f"[{hit.id}]{date} {hit.speaker}: {hit.text}")
