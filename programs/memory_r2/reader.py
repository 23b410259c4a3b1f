"""How Memory-R2 reads: the nearest memories of each speaker, grouped by session date, and a short answer.

question ── top 30 memories per speaker ──> read ──> answer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...memory.amending import Amend
from ...memory.index import Spoken
from ...memory.indexes import Indexes
from ...records import Context, Hit, Query, comparable, format_time, one_line
from ...signatures.memory_r2 import NOT_MENTIONED, AnswerFromMemories
from ..method import EntryReader
from ..predictor import predictor
from ..tasks.task import QuestionAnswering, with_items
from .memory import FactMemory, StoredFact

FIRST = "first speaker"
"""The note of a context that names the speaker whose memories come first."""


class FactReader(EntryReader):
    """Recalls the nearest memories of each of two sides: the first speaker, and everybody else.

    Args:
        min_score: Lowest cosine of a hit.
        read_top: Memories per side.
        indexes: Searches memories.
        hybrid: Whether `indexes` add BM25 and cosine.
    """

    def __init__(self, min_score: float, read_top: int, indexes: Indexes, hybrid: bool = False) -> None:
        super().__init__(min_score=min_score, indexes=indexes, hybrid=hybrid)
        self.read_top = read_top

    def amended(self, memory: FactMemory, amend: Amend) -> FactMemory:
        def reworded(fact: StoredFact, text: str) -> StoredFact:
            return fact.model_copy(update={"content": text, "earlier": ()})

        return memory.model_copy(update={"facts": amend.parts(memory.facts, memory.entry, reworded)})

    def recall(self, memory: FactMemory, query: Query) -> Context:
        """The nearest memories of each side, best first; the first speaker's name is in the notes."""
        speakers = query.speakers or tuple(dict.fromkeys(fact.speaker for fact in memory.facts))
        first = speakers[0] if speakers else ""
        sides = Spoken(first), Spoken(first, same=False)
        found = [self.indexes.search(memory, [query.probe], self.read_top, self.min_score, side)[0] for side in sides]
        hits = sorted((hit for side in found for hit in side), key=lambda hit: -hit.score)
        return Context(hits=tuple(hits), notes={FIRST: first})


class MemoryReader(QuestionAnswering):
    """The paper's answer prompt: memories of both sides, grouped by session date.

    Args:
        abstain: Whether it says what to answer where the memories say nothing, which the paper's does not.
    """

    prompt = AnswerFromMemories

    def __init__(self, abstain: bool = False) -> None:
        super().__init__()
        if abstain:
            told = AnswerFromMemories.with_instructions(f"{AnswerFromMemories.instructions}\n{NOT_MENTIONED}")
            self.answer = predictor(told)

    def asked(self, context: Context, query: Query) -> dict[str, Any]:
        first = context.notes.get(FIRST, "")
        mine = [hit for hit in context.hits if hit.speaker == first]
        others = [hit for hit in context.hits if hit.speaker != first]
        return {
            "first_speaker_memories": _grouped(mine),
            "second_speaker_memories": with_items(_grouped(others), query.shown),
            "question": query.line,
        }


def _grouped(hits: Sequence[Hit]) -> str:
    """Memories by session date, oldest first; those of one session stay in rank order."""
    dated = sorted(hits, key=lambda hit: comparable(hit.time))
    return "\n".join(
        one_line(f"[{hit.id}]{f' ({format_time(hit.time)})' if hit.time else ''} {hit.speaker}: {hit.text}")
        for hit in dated
    )
