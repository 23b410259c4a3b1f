"""Memory-R2: facts extracted from a session, and a memory manager that edits a list of them.

    session ── 4 parts ──> extract ──> facts ── relate ──> manage ──> operations ── apply ──> memory
    question ── top 30 memories per speaker ──> read ──> answer

Critical path: 1 extraction + one manager call per part of the whole history (the memory must be up to date before the
next part) + 1 answer.

The learned part (`optimizers.logo_grpo`) trains the model of these same prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy
import numpy as np
from pydantic import Field

from ...memory.edits import amended_entry
from ...memory.entry import SpeakerIs
from ...memory.search.embedder import Embedder, query_vectors
from ...memory.search.index_cache import IndexCache
from ...records import Context, Hit, Item, Query, Turn, comparable, format_time
from ...signatures.memory_r2 import (
    AnswerFromMemories,
    EditMemory,
    ExtractFacts,
    ExtractFactsInContext,
    Fact,
    ManageMemory,
    ManageMemoryInContext,
    NewFact,
    Operation,
    StoredMemory,
)
from ...signatures.memory_r2_examples import (
    editing_examples,
    extraction_examples,
    management_examples,
    without_context,
)
from ...text import one_line
from ..embedders import offline_embedder
from ..method import Method
from ..reader import EntryReader
from ..settings import EntryCount, SearchSettings, Settings
from ..writer import Writer
from ..predictor import predictor
from ..recording import record_rejected
from ..tasks.task import QuestionAnswering, with_items
from ..threads import gather
from .memory import Edit, FactMemory

FIRST = "first speaker"
"""The note of a context that names the speaker whose memories come first."""


class FactSettings(Settings):
    """How facts are written; defaults are the released code's."""

    related: EntryCount = Field(default=5, description="nearest memories shown for a new fact")
    related_total: EntryCount = Field(default=25, description="most memories shown to the manager at once")
    min_score: float = Field(default=0.1, ge=-1, le=1, description="lowest cosine that counts, for writing and reading")
    parts: int = Field(default=4, ge=1, description="how many parts a session is cut into")
    chunk_turns: int | None = Field(default=None, ge=1, description="turns of a part instead, however many parts that makes")
    earlier: bool = Field(default=True, description="whether a part is shown with the parts of its session before it")
    same_speaker: bool = Field(default=True, description="whether the memories related to a fact are of its speaker alone")
    single_agent: bool = Field(default=False, description="whether one prompt edits the memory from the turns (an ablation)")
    examples: bool = Field(default=False, description="whether writing prompts begin with worked examples, as demos")


class MemoryR2Settings(SearchSettings, FactSettings):
    """What can be set of `MemoryR2`."""

    deprecated: ClassVar[Mapping[str, Any]] = {"abstain": False}
    read_top: EntryCount = Field(default=30, description="memories per speaker that are read (code: 50 from 16 sessions on)")


class FactWriter(Writer[FactMemory]):
    """Extracts facts and edits a memory of them; `single_agent` has one prompt in the place of both.

    Extraction does not need the memory, so all parts of all sessions are extracted at once; the manager sees the facts
    of every part in order, beside the memories of their speakers that are nearest to them.
    """

    Memory = FactMemory
    shows_entries = True

    settings: FactSettings

    def __init__(self, settings: FactSettings, embedder: Embedder, indexes: IndexCache) -> None:
        super().__init__(settings)
        self.embedder, self.indexes = embedder, indexes
        if settings.single_agent:
            self.edit = predictor(EditMemory)
        else:
            self.extract_facts = predictor(ExtractFactsInContext if settings.earlier else ExtractFacts)
            self.manage = predictor(ManageMemoryInContext if settings.earlier else ManageMemory)
        if settings.examples:
            self._show_examples()

    @property
    def needs_extraction(self) -> bool:
        return not self.settings.single_agent

    def extract(self, item: Item) -> list[list[Fact] | None]:
        """Extracts the facts of every part of a session, all parts at once; None of a part that could not be."""
        return self._extracted(item, self._chunks(item))

    def update(self, memory: FactMemory, item: Item, extraction: list[list[Fact] | None] | None = None) -> FactMemory:
        return self._written(memory, item, self._chunks(item), extraction)

    def update_with_part(self, memory: FactMemory, part: Item) -> FactMemory:
        """Write a part of an item, which is not cut into smaller parts."""
        return self._written(memory, part, [part.spoken])

    def relate(
        self, memory: FactMemory, facts: Sequence[Fact], vectors: Mapping[str, np.ndarray] | None = None
    ) -> list[list[str]]:
        """The ids of the memories nearest to each fact, of its speaker alone where that is asked for.

        At most `related_total` different ones over all facts.
        """
        settings = self.settings
        hits: list[list[Hit]] = [[] for _ in facts]
        for speaker in dict.fromkeys(fact.speaker for fact in facts) if settings.same_speaker else [None]:
            own = [n for n, fact in enumerate(facts) if speaker in (None, fact.speaker)]
            where = None if speaker is None else SpeakerIs(speaker)
            texts = [facts[n].fact for n in own]
            known = np.stack([vectors[text] for text in texts]) if vectors else None
            found = self.indexes.search(memory, texts, settings.related, settings.min_score, where, known)
            near = memory.having({hit.id for each in found for hit in each})
            there = {fact.id for fact in near if amended_entry(fact, memory.entry) is not None}
            for n, each in zip(own, found, strict=True):
                hits[n] = [hit for hit in each if hit.id in there]
        ranked = sorted((hit for found in hits for hit in found), key=lambda hit: -hit.score)
        shown = set(list(dict.fromkeys(hit.id for hit in ranked))[: settings.related_total])
        return [[hit.id for hit in found if hit.id in shown] for found in hits]

    def _show_examples(self) -> None:
        """Give the predictors worked examples as their first demos."""
        if self.settings.single_agent:
            self.edit.demos = editing_examples()
            return

        in_context = self.settings.earlier
        self.extract_facts.demos = extraction_examples() if in_context else without_context(extraction_examples())
        self.manage.demos = management_examples() if in_context else without_context(management_examples())

    def _chunks(self, item: Item) -> list[Sequence[Turn]]:
        turns = item.spoken
        size = self.settings.chunk_turns or max(1, -(-len(turns) // self.settings.parts))
        return [turns[n : n + size] for n in range(0, len(turns), size)]

    def _extracted(self, item: Item, chunks: Sequence[Sequence[Turn]]) -> list[list[Fact] | None]:
        return gather([lambda n=n: self._extract(item, chunks, n) for n in range(len(chunks))])

    def _extract(self, item: Item, chunks: Sequence[Sequence[Turn]], n: int) -> list[Fact] | None:
        if self.settings.single_agent:
            return [Fact(speaker=turn.speaker, turn_id=turn.id, fact=turn.content) for turn in chunks[n]]
        context = {"earlier": _lines(item, chunks[:n])} if self.settings.earlier else {}
        found = self.try_call(self.extract_facts, **context, dialogue=_lines(item, [chunks[n]]))
        ids = {turn.id for turn in chunks[n]}
        return None if found is None else [_grounded(fact, ids, chunks[n]) for fact in found.facts if fact.fact.strip()]

    def _written(
        self,
        memory: FactMemory,
        item: Item,
        chunks: Sequence[Sequence[Turn]],
        extraction: list[list[Fact] | None] | None = None,
    ) -> FactMemory:
        found = self._extracted(item, chunks) if extraction is None else extraction
        texts = list(dict.fromkeys(fact.fact for each in found for fact in each or ()))
        # Those of all parts with one call, of an embedder that keeps nothing too.
        vectors = dict(zip(texts, query_vectors(self.embedder, texts) if texts else (), strict=True))
        for n, (chunk, facts) in enumerate(zip(chunks, found, strict=True)):
            before = [fact for each in found[:n] for fact in each or ()]
            about = {"earlier_facts": before} if self.settings.earlier else {}
            if self.settings.single_agent:
                earlier = _lines(item, chunks[:n]) if self.settings.earlier else ""
                about = {"earlier": earlier, "dialogue": _lines(item, [chunk])}
            after = self._managed(memory, item, facts, about, vectors) if facts else None if facts is None else memory
            memory = memory.mark_failed(item, {turn.id for turn in chunk}) if after is None else after
        return memory

    def _managed(
        self,
        memory: FactMemory,
        item: Item,
        facts: list[Fact],
        about: dict[str, Any],
        vectors: Mapping[str, np.ndarray],
    ) -> FactMemory | None:
        """The memory after the facts of a part, or after its turns as they were said; None where no answer came."""
        related = self.relate(memory, facts, vectors)
        shown = {id for ids in related for id in ids}
        asked = self.edit if self.settings.single_agent else self.manage
        if not self.settings.single_agent:
            rows = zip(facts, related, strict=True)
            about = {**about, "new_facts": [NewFact(**fact.model_dump(), related_memory_ids=ids) for fact, ids in rows]}
        managed = self.try_call(asked, session_date=item.date, memories=_stored(memory, shown), **about)
        if managed is None:
            return None
        edits = [_edit(operation, facts) for operation in managed.operations]
        after = memory.apply(edits, sorted(shown), item.time)
        record_rejected(asked, after.counts.get("refused", 0) - memory.counts.get("refused", 0))
        return after


class FactReader(EntryReader[FactMemory]):
    """Recalls the nearest memories of each of two sides: the first speaker, and everybody else."""

    def recall(self, memory: FactMemory, query: Query) -> Context:
        """The nearest memories of each side, best first; the first speaker's name is in the notes."""
        speakers = query.speakers or tuple(dict.fromkeys(fact.speaker for fact in memory.facts))
        first = speakers[0] if speakers else ""
        sides = SpeakerIs(first), SpeakerIs(first, same=False)
        found = [self.indexes.search(memory, [query.search_text], self.k, self.min_score, side)[0] for side in sides]
        hits = sorted((hit for side in found for hit in side), key=lambda hit: -hit.score)
        return Context(hits=tuple(hits), notes={FIRST: first})


class SpeakerAnswering(QuestionAnswering):
    """The paper's answer prompt: memories of both sides, grouped by session date."""

    prompt = AnswerFromMemories

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        first = context.notes.get(FIRST, "")
        mine = [hit for hit in context.hits if hit.speaker == first]
        others = [hit for hit in context.hits if hit.speaker != first]
        return {
            "first_speaker_memories": _grouped(mine),
            "second_speaker_memories": with_items(_grouped(others), query.shown_items),
            "question": query.dated_text,
        }


class MemoryR2(Method):
    """Writes facts by learned operations, reads the nearest ones per speaker."""

    Settings = MemoryR2Settings
    embedder_use = "required"
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {"question-answering": SpeakerAnswering}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "memory-env": {"chunk_turns": 1, "related": 2, "earlier": False, "same_speaker": False},
        **{name: {"hybrid": False} for name in ("locomo", "longmemeval", "membench", "msc")},
    }
    """Prompts short enough for a model of half a million weights, and the paper's benchmarks, read by cosine."""

    def __init__(self, settings: MemoryR2Settings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or MemoryR2Settings()
        embedder = embedder or offline_embedder()
        indexes = IndexCache(embedder)
        writer = FactWriter(settings.restrict_to(FactSettings), embedder, indexes)

        hybrid = settings.uses_fusion(embedder)
        read_indexes = IndexCache(embedder, hybrid=True) if hybrid else indexes
        reader = FactReader(settings.read_top, settings.min_score, indexes=read_indexes, hybrid=hybrid)
        super().__init__(writer, reader, embedder, settings)


def _lines(item: Item, chunks: Sequence[Sequence[Turn]]) -> str:
    return "\n".join(turn.line(item.time) for chunk in chunks for turn in chunk)


def _stored(memory: FactMemory, shown: set[str]) -> list[StoredMemory]:
    return [
        StoredMemory(
            memory_id=fact.id,
            speaker=fact.speaker,
            content=left.text,
            date=format_time(fact.time) if fact.time else None,
        )
        for fact in memory.having(shown)
        if (left := amended_entry(fact, memory.entry)) is not None
    ]


def _grounded(fact: Fact, ids: set[str], chunk: Sequence[Turn]) -> Fact:
    """A fact whose turn id is one of the chunk's: models shorten ids or make them up."""
    if fact.turn_id in ids:
        return fact
    said_by = [turn.id for turn in chunk if turn.speaker == fact.speaker]
    return fact.model_copy(update={"turn_id": (said_by or [chunk[0].id])[0]})


def _edit(operation: Operation, facts: Sequence[Fact]) -> Edit:
    """An operation with its sources: the turn it names, else all turns of the facts it answers."""
    turns = tuple(dict.fromkeys(fact.turn_id for fact in facts))
    named = re.split("[,;]", operation.turn_id or "")[0].strip()
    sources = (named,) if named in turns else turns
    speaker = operation.speaker or next((fact.speaker for fact in facts if fact.turn_id in sources), "")
    target = None if operation.op == "INSERT" else operation.memory_id
    return Edit(operation.op, target, speaker, operation.content, tuple(s for s in sources if s))


def _grouped(hits: Sequence[Hit]) -> str:
    """Memories by session date, oldest first; those of one session stay in rank order."""
    dated = sorted(hits, key=lambda hit: comparable(hit.time))
    return "\n".join(
        one_line(f"[{hit.id}]{f' ({format_time(hit.time)})' if hit.time else ''} {hit.speaker}: {hit.text}")
        for hit in dated
    )
