"""Recursive summary: one summary of all sessions, which a model rewrites after every session.

    write     summary and session ── update_summary ──> summary
    question  the whole summary; no LM call

What a rewrite leaves out is lost, and so are the last sentences of a summary that is too long. An
answer that cannot be read, or is empty although there was a summary, leaves the summary as it is,
and the session counts as not written.

Paper: Wang et al., "Recursively Summarizing Enables Long-Term Dialogue Memory in Large Language
Models" (arXiv:2308.15022).
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from ...memory.entry import Entry
from ...memory.memory import Memory
from ...memory.tuning_range import TuningRange
from ...records import Context, Failure, Hit, Item, Query
from ...signatures.baselines import UpdateSummary
from ...text import one_line
from ..method import Method
from ..predictor import predictor
from ..reader import EntryReader
from ..recording import record_failure
from ..settings import Settings
from ..writer import Update, Writer

MAX_SUMMARY_LENGTH = 40_000
"""Most characters of a summary that is taken from a model; a longer text is no answer."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
"""Where one sentence ends and the next begins, in English and Chinese."""


# The docstring of this class, and its fields, are part of the key of stored memories.
class SummaryMemory(Memory[Entry]):
    """The summary of all sessions so far."""

    sentences: tuple[Entry, ...] = ()
    """The summary; a sentence rests on the session after which it first stood in it."""
    sources: tuple[str, ...] = ()
    """Turn ids of all sessions written, newest session first."""

    @property
    def summary(self) -> str:
        """The whole text; "" before the first session."""
        return " ".join(sentence.text for sentence in self.sentences)

    def hits(self, hit_id: str) -> tuple[Hit, ...]:
        """Return the whole summary as one hit with an id; no hit if there is no summary yet."""
        summary = self.summary
        if not summary:
            return ()
        hit = Hit(id=hit_id, text=summary, kind="summary", score=1.0, sources=self.sources)
        return (hit,)

    def entries(self) -> tuple[Entry, ...]:
        """Return the sentences, which are stored as entries."""
        return self.sentences

    def with_summary(self, summary: str, item: Item, max_words: int) -> SummaryMemory:
        """Return the memory with a new summary in the place of the old one.

        A sentence that stood in the old summary keeps its sources. A new one has the turns of the
        item as sources.

        Args:
            summary: The new summary; it must not be empty.
            item: The session that the model added to the old summary.
            max_words: Most words of the summary to keep, in whole sentences.
        """
        turn_ids = tuple(turn.id for turn in item.spoken)
        old_sources = {sentence.text: sentence.sources for sentence in self.sentences}
        sentences: list[Entry] = []
        for number, text in enumerate(_first_sentences(summary, max_words), start=1):
            sources = old_sources.get(text, turn_ids)
            sentence = Entry(id=f"s{number}", text=text, kind="sentence", sources=sources)
            sentences.append(sentence)

        all_turn_ids = dict.fromkeys((*turn_ids, *self.sources))
        return self.replace(sentences=tuple(sentences), sources=tuple(all_turn_ids))


def keep_summary(memory: SummaryMemory, item: Item, predictor_name: str) -> Update[SummaryMemory]:
    """Return the update for a session after which a model wrote an empty summary.

    The old summary stays. If it was not empty, the model has lost it: then the session counts as
    failed, and will be tried again.

    Args:
        memory: The old summary.
        item: The session.
        predictor_name: The predictor that the failure is recorded for.
    """
    if not memory.sentences:
        return Update(memory)

    message = f"the summary after session {item.id} is empty; the one before it was kept"
    record_failure(Failure(kind="parse", where=predictor_name, message=message))
    return Update(memory, failed_items=(item,))


def _first_sentences(summary: str, max_words: int) -> list[str]:
    """Return the first sentences of a summary that have `max_words` words at most together.

    Repeated sentences are left out. If even the first sentence is too long, it is cut.
    """
    lines = [one_line(part) for part in _SENTENCE_END.split(summary)]
    distinct_sentences = dict.fromkeys(line for line in lines if line)

    first_sentences: list[str] = []
    free_words = max_words
    for sentence in distinct_sentences:
        words = sentence.split()
        if len(words) <= free_words:
            first_sentences.append(sentence)
            free_words -= len(words)
            continue

        if not first_sentences:
            beginning = " ".join(words[:free_words])
            first_sentences.append(beginning)
        break
    return first_sentences


class SummaryWriter(Writer[SummaryMemory, None]):
    """Rewrite the summary after every session."""

    Memory = SummaryMemory
    longest_text = MAX_SUMMARY_LENGTH

    settings: SummarySettings

    def __init__(self, settings: SummarySettings) -> None:
        super().__init__(settings)
        self.update_summary = predictor(UpdateSummary)

    def update(
        self, memory: SummaryMemory, item: Item, extraction: None = None
    ) -> Update[SummaryMemory]:
        """Ask the model to rewrite the summary so that it covers one more session.

        If the model's answer is empty or cannot be read, the old summary stays.

        Args:
            memory: The old summary.
            item: The session.
            extraction: Not used, since nothing is extracted from sessions.
        """
        if not item.spoken:
            return Update(memory)

        max_words = self.settings.max_words
        prediction = self.try_call(
            self.update_summary,
            known_before=memory.summary,
            session_date=item.date,
            dialogue="\n".join(turn.line() for turn in item.spoken),
            max_words=max_words,
        )
        if prediction is None:
            return Update(memory, failed_items=(item,))

        # The field of a prediction may be None.
        summary = (prediction.summary or "").strip()
        if not summary:
            return keep_summary(memory, item, "update_summary")
        return Update(memory.with_summary(summary, item, max_words))


class SummaryReader(EntryReader[SummaryMemory]):
    """Recall the whole summary; `search` finds its sentences."""

    def recall(self, memory: SummaryMemory, query: Query) -> Context:
        return Context(hits=memory.hits("summary"))


class SummarySettings(Settings):
    """What can be set of `RecursiveSummary`."""

    max_words: Annotated[int, TuningRange(50, 1_000, log=True)] = Field(
        default=300,
        ge=1,
        description="most words of the summary; the last sentences of a longer one are cut off",
    )


class RecursiveSummary(Method):
    """Keep a summary, rewritten session by session.

    Critical path: one update per session, in order, and one answer.
    """

    Settings = SummarySettings

    def __init__(self, settings: SummarySettings | None = None) -> None:
        settings = settings or SummarySettings()
        super().__init__(SummaryWriter(settings), SummaryReader(), settings=settings)
