"""Baselines whose memory a model writes: one summary, or records with their conditions.

    recursive-summary   one summary, rewritten with every session; all of it is recalled
    condition-mem       dialogue ── record ──> (condition, content) ── cosine ──> the nearest ── reflect ──> context

Source, recursive-summary: Wang et al., "Recursively summarizing enables long-term dialogue memory in large language
models" (arXiv:2308.15022); a row of PraMem and Mem-PAL. What an update drops is lost. A sentence is credited to the
session after which it was first written in these words, and the whole summary to all sessions.

Source, condition-mem: Yuan et al., "Personalized Large Language Model Assistant with Evolving Conditional Memory"
(COLING 2025), as Mem-PAL compares with it (Tables 2 and 4). Only the abstract and summaries of the paper were
available, so both prompts are ours; its self-reflection, which Mem-PAL does not speak of, is off by default.

Limits: records are never merged or withdrawn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ...memory.index import Embedder, Entry
from ...memory.memory import Memory
from ...records import Context, Failure, Hit, Item, Query, format_time, one_line
from ...signatures.baselines import (
    ConditionalRecord,
    RecordConditions,
    ReflectOnRecords,
    UpdateSummary,
)
from ..method import EntryReader, Lost, Method, Writer
from ..predictor import predictor
from ..recording import record_failure
from ..settings import Settings

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
LONGEST_ACCOUNT = 40_000
"""Most characters of a summary, a digest or an account."""


class SummarySettings(Settings):
    """What can be set of `RecursiveSummary`."""

    max_words: int = Field(300, ge=1, description="most words of the summary; the last sentences of a longer one go")


class SummaryMemory(Memory):
    """The summary of all sessions so far."""

    sentences: tuple[Entry, ...] = ()
    """Each rests on the session after which it was first written in these words."""
    sources: tuple[str, ...] = ()
    """Turn ids of all sessions written, newest session first."""

    @property
    def summary(self) -> str:
        """The whole text."""
        return " ".join(sentence.text for sentence in self.sentences)

    def hits(self, id: str) -> tuple[Hit, ...]:
        """The whole summary as one hit; none where there is no summary yet."""
        whole = Hit(id=id, text=self.summary, kind="summary", score=1.0, sources=self.sources)
        return (whole,) if self.summary else ()

    def entries(self) -> tuple[Entry, ...]:
        return self.sentences

    def after(self, found: Any, field: str, where: str, item: Item, max_words: int) -> SummaryMemory:
        """The memory after an update, unchanged if the update failed.

        Args:
            found: What the model said; None where that could not be read.
            field: The output field with the new summary.
            where: The predictor that was asked.
            item: What the update took in.
            max_words: Most words that are kept.
        """
        text = "" if found is None else str(found[field] or "").strip()
        if not text:
            if found is not None and not self.sentences:
                return self
            if found is not None:
                message = f"the {field} after session {item.id} is empty; the one before it was kept"
                record_failure(Failure(kind="parse", where=where, message=message))
            return self.left(item)
        turns = tuple(turn.id for turn in item.turns if turn.content.strip())
        known = {sentence.text: sentence.sources for sentence in self.sentences}
        sentences = tuple(
            Entry(id=f"s{n}", text=part, kind="sentence", sources=known.get(part, turns))
            for n, part in enumerate(_within(text, max_words), 1)
        )
        return self.model_copy(
            update={"sentences": sentences, "sources": tuple(dict.fromkeys((*turns, *self.sources)))}
        )


class SummaryWriter(Writer):
    """Rewrites the summary after every session."""

    Memory = SummaryMemory
    longest_text = LONGEST_ACCOUNT

    def __init__(self, max_words: int) -> None:
        super().__init__()
        self.max_words = max_words
        self.update = predictor(UpdateSummary)

    def write(self, memory: SummaryMemory, item: Item, prepared: Any = None) -> SummaryMemory:
        turns = [turn for turn in item.turns if turn.content.strip()]
        if not turns:
            return memory
        found = self.attempt(
            self.update,
            known_before=memory.summary,
            session_date=format_time(item.time) if item.time else "unknown",
            dialogue="\n".join(turn.line() for turn in turns),
            max_words=self.max_words,
        )
        return memory.after(found, "summary", "update", item, self.max_words)


class SummaryReader(EntryReader):
    """Recalls the whole summary; `search` finds its sentences."""

    def recall(self, memory: SummaryMemory, query: Query) -> Context:
        return Context(hits=memory.hits("summary"))


class RecursiveSummary(Method):
    """Keeps a summary, rewritten session by session.

    Critical path: one update per session of the whole history, in order, and one answer. An update that stays
    unparseable, or that is empty where there was a summary, leaves the old summary and counts as a failed write.

    Args:
        settings: `SummarySettings`.
    """

    Settings = SummarySettings

    def __init__(self, settings: SummarySettings) -> None:
        super().__init__(SummaryWriter(settings.max_words), SummaryReader())


def _within(text: str, max_words: int) -> list[str]:
    """The first sentences that fit, each once; a first one that is too long is cut."""
    kept: list[str] = []
    for sentence in dict.fromkeys(one_line(part) for part in _SENTENCE_END.split(text) if part.strip()):
        words = sentence.split()
        if len(words) > max_words:
            return kept or [" ".join(words[:max_words])]
        kept.append(sentence)
        max_words -= len(words)
    return kept


class RecordSettings(Settings):
    """What can be set of `ConditionMem`."""

    k: int = Field(3, ge=1, description="records recalled per query; Mem-PAL's number")
    reflection: bool = Field(False, description="whether a model picks, of the records found, those that help")


class RecordMemory(Memory):
    """The records of one user."""

    records: tuple[Entry, ...] = ()
    """In the order of the dialogues; ids r1, r2, ..."""

    def with_records(self, item: Item, found: Sequence[ConditionalRecord]) -> RecordMemory:
        """The memory with the records of one more dialogue; one of equal words that is there is not kept twice."""
        turns = {turn.id: None for turn in item.turns}
        kept = {entry.text: entry for entry in self.records}
        for record in found:
            condition, content = one_line(record.condition), one_line(record.content)
            text = f"{content} (when: {condition})" if content and condition else content
            if text and text not in kept:
                id = record.turn_id.strip("[]() ")
                sources = (id,) if id in turns else tuple(turns)
                kept[text] = Entry(id=f"r{len(kept) + 1}", text=text, kind="lesson", sources=sources, time=item.time)
        return self.model_copy(update={"records": tuple(kept.values())})

    def entries(self) -> tuple[Entry, ...]:
        return self.records


class RecordWriter(Writer):
    """Records what each dialogue teaches."""

    Memory = RecordMemory

    def __init__(self) -> None:
        super().__init__()
        self.record = predictor(RecordConditions)

    def prepare(self, item: Item) -> list[ConditionalRecord] | Lost:
        """The records of a dialogue."""
        turns = [turn for turn in item.turns if turn.content.strip()]
        if not turns:
            return []
        found = self.attempt(self.record, past_dialogue="\n".join(turn.line(item.time) for turn in turns))
        return Lost() if found is None else found.records

    def write(self, memory: RecordMemory, item: Item, prepared: Any = None) -> RecordMemory:
        found = self.prepare(item) if prepared is None else prepared
        return memory.left(item) if isinstance(found, Lost) else memory.with_records(item, found)


class RecordReader(EntryReader):
    """Finds the nearest records, and has a model pick those that help."""

    def __init__(self, embedder: Embedder, k: int, reflection: bool) -> None:
        super().__init__(k, embedder=embedder)
        if reflection:
            self.reflect = predictor(ReflectOnRecords)
        self.reflection = reflection

    def recall(self, memory: RecordMemory, query: Query) -> Context:
        """The nearest records, those that help where there is reflection; `counts` has the LM calls."""
        found = self.search(memory, [query.probe], self.k)[0]
        calls = int(self.reflection and bool(found))
        found = self._helpful(query.probe, found) if calls else found
        return Context(hits=tuple(found), counts={"calls": calls, "records": len(found)})

    def otherwise(self, memory: RecordMemory, query: Query) -> Sequence[Hit]:
        """The newest records; nothing where a model picks, which may pick none."""
        return () if self.reflection else super().otherwise(memory, query)

    def _helpful(self, question: str, found: list[Hit]) -> list[Hit]:
        """Those that the model names, in its order; all of them where it does not answer in the form."""
        said = self.attempt(self.reflect, question=question, candidate_records="\n".join(hit.line() for hit in found))
        if said is None:
            return found
        by_id = {hit.id: hit for hit in found}
        named = dict.fromkeys(str(id).strip("[]() ") for id in said.helpful_ids)
        return [by_id[id] for id in named if id in by_id]


class ConditionMem(Method):
    """Recalls the `k` records nearest to the query.

    Critical path: one call for all dialogues together (they do not need one another), with `reflection` one more per
    query, and the answer.

    Args:
        embedder: Vectors of records and queries.
        settings: `RecordSettings`.
    """

    Settings = RecordSettings

    def __init__(self, embedder: Embedder, settings: RecordSettings) -> None:
        super().__init__(RecordWriter(), RecordReader(embedder, settings.k, settings.reflection), embedder)
