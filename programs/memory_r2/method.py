"""Memory-R2: facts extracted from a session, and a memory manager that edits a list of them.

    session ── chunks of 4 turns ──> extract ──> facts ── relate ──> manage ──> operations ── apply ──> memory
    question ── top 30 memories per speaker ──> read ──> answer

Equations to functions (the paper is not at hand in full; `docs/coverage.md` names the source of each):
    fact extraction     `MemoryR2.prepare`: all chunks of all sessions at once, since it does not need the memory
    memory evolution    `MemoryR2.write`: per chunk `relate`, one manager call, `FactMemory.apply`
    reading             `MemoryR2.recall`, `MemoryReader`

Critical path: 1 extraction + one manager call per chunk of the whole history (the memory must be up to date before the
next chunk) + 1 answer.

Deviations: see `docs/coverage.md`. The learned part (LoGo-GRPO) trains these same prompts' model elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import dspy

from ...memory.dense import DenseIndex
from ...memory.index import Embedder, Index
from ...records import Context, Hit, Item, Turn, format_time
from ...signatures.memory_r2 import (
    AnswerFromMemories,
    ExtractFacts,
    Fact,
    ManageMemory,
    NewFact,
    Operation,
    StoredMemory,
)
from ..gather import gather
from ..method import Method
from ..predictor import predictor
from ..recording import refuse
from ..tasks.task import QuestionAnswering, asked, with_recent
from .memory import Edit, FactMemory


class MemoryReader(QuestionAnswering):
    """The paper's answer prompt: memories of both speakers, grouped by session date."""

    def __init__(self) -> None:
        dspy.Module.__init__(self)
        self.answer = predictor(AnswerFromMemories)

    def forward(self, context: Context, recent: Sequence[Item] = (), **fields: Any) -> dspy.Prediction:
        first = context.notes.get("first speaker", "")
        mine = [hit for hit in context.hits if hit.speaker == first]
        others = [hit for hit in context.hits if hit.speaker != first]
        return self.answer(
            first_speaker_memories=_grouped(mine),
            second_speaker_memories=with_recent(_grouped(others), recent),
            question=asked(fields),
        )


class MemoryR2(Method):
    """Writes facts by learned operations, reads the nearest ones per speaker.

    Args:
        embedder: Vectors for relating facts to memories and questions to memories.
        chunk_turns: Most turns that one extraction sees.
        related: Nearest memories shown for a new fact.
        related_total: Most memories shown to the manager at once.
        min_score: Lowest cosine that counts as related, for writing and reading.
        read_top: Memories per speaker that the reader sees (the released code uses 50 for 16 sessions and more).
    """

    Memory = FactMemory
    writing = ("extract", "manage")
    tasks: ClassVar[dict[str, type[dspy.Module]]] = {"question-answering": MemoryReader}

    def __init__(
        self,
        embedder: Embedder,
        chunk_turns: int = 4,
        related: int = 5,
        related_total: int = 25,
        min_score: float = 0.1,
        read_top: int = 30,
    ) -> None:
        super().__init__(embedder)
        self.chunk_turns = chunk_turns
        self.related = related
        self.related_total = related_total
        self.min_score = min_score
        self.read_top = read_top
        self.extract = predictor(ExtractFacts)
        self.manage = predictor(ManageMemory)

    def prepare(self, item: Item) -> list[list[Fact]]:
        """Extracts the facts of every chunk of a session, all chunks at once."""
        turns = [turn for turn in item.turns if turn.content.strip()]
        chunks = [turns[n : n + self.chunk_turns] for n in range(0, len(turns), self.chunk_turns)]
        return gather([lambda chunk=chunk: self._extract(item, chunk) for chunk in chunks])

    def write(self, memory: FactMemory, item: Item, prepared: list[list[Fact]] | None = None) -> FactMemory:
        for facts in self.prepare(item) if prepared is None else prepared:
            if facts:
                memory = self._manage(memory, item, facts)
        return memory

    def search(
        self, memory: FactMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.index(memory).search(queries, k, self.min_score if min_score is None else min_score)

    def recall(self, memory: FactMemory, query: str, **hints: Any) -> Context:
        """The nearest memories of each speaker, best first; the first speaker's name is in the notes."""
        speakers = list(hints.get("speakers") or dict.fromkeys(fact.speaker for fact in memory.facts))
        first = speakers[0] if speakers else ""
        index = self.index(memory)
        sides = (lambda entry: entry.speaker == first), (lambda entry: entry.speaker != first)
        found = [index.search([query], self.read_top, self.min_score, where=side)[0] for side in sides]
        hits = sorted((hit for side in found for hit in side), key=lambda hit: -hit.score)
        return Context(hits=tuple(hits), notes={"first speaker": first})

    def relate(self, memory: FactMemory, facts: Sequence[Fact]) -> list[list[str]]:
        """The ids of the memories nearest to each fact; at most `related_total` different ones over all facts."""
        hits = self._searchable(memory).search([fact.fact for fact in facts], self.related, self.min_score)
        ranked = sorted((hit for found in hits for hit in found), key=lambda hit: -hit.score)
        shown = set(list(dict.fromkeys(hit.id for hit in ranked))[: self.related_total])
        return [[hit.id for hit in found if hit.id in shown] for found in hits]

    def build_index(self, memory: FactMemory) -> Index:
        return self._searchable(memory)

    def _searchable(self, memory: FactMemory) -> DenseIndex:
        assert self.embedder is not None
        index = DenseIndex(self.embedder)
        index.add(memory.entries())
        return index

    def _extract(self, item: Item, chunk: Sequence[Turn]) -> list[Fact]:
        found = self.attempt(self.extract, dialogue="\n".join(turn.line(item.time) for turn in chunk))
        ids = {turn.id for turn in chunk}
        return [] if found is None else [_grounded(fact, ids, chunk) for fact in found.facts if fact.fact.strip()]

    def _manage(self, memory: FactMemory, item: Item, facts: list[Fact]) -> FactMemory:
        related = self.relate(memory, facts)
        shown = {id for ids in related for id in ids}
        managed = self.attempt(
            self.manage,
            session_date=format_time(item.time) if item.time else "unknown",
            memories=[
                StoredMemory(memory_id=fact.id, speaker=fact.speaker, content=fact.content, date=_day(fact.time))
                for fact in memory.facts
                if fact.id in shown
            ],
            new_facts=[
                NewFact(**fact.model_dump(), related_memory_ids=ids) for fact, ids in zip(facts, related, strict=True)
            ],
        )
        if managed is None:
            return memory
        edits = [_edit(operation, facts) for operation in managed.operations]
        after = memory.apply(edits, sorted(shown), item.time)
        refuse(self.manage, after.counts.get("refused", 0) - memory.counts.get("refused", 0))
        return after


def _grounded(fact: Fact, ids: set[str], chunk: Sequence[Turn]) -> Fact:
    """A fact whose turn id is one of the chunk's: models shorten ids or make them up."""
    if fact.turn_id in ids:
        return fact
    bare = fact.turn_id.strip("[]() ")
    said_by = [turn.id for turn in chunk if turn.speaker == fact.speaker]
    return fact.model_copy(update={"turn_id": bare if bare in ids else (said_by or [chunk[0].id])[0]})


def _edit(operation: Operation, facts: Sequence[Fact]) -> Edit:
    """An operation with its sources: the turn it names, else all turns of the facts it answers."""
    turns = tuple(dict.fromkeys(fact.turn_id for fact in facts))
    sources = (operation.turn_id,) if operation.turn_id in turns else turns
    speaker = operation.speaker or next((fact.speaker for fact in facts if fact.turn_id in sources), "")
    target = None if operation.op == "INSERT" else operation.memory_id
    return Edit(operation.op, target, speaker, operation.content, tuple(s for s in sources if s))


def _grouped(hits: Sequence[Hit]) -> str:
    """Memories by session date, oldest first; those of one session stay in rank order."""
    dated = sorted(hits, key=lambda hit: (hit.time is not None, hit.time.timestamp() if hit.time else 0.0))
    return "\n".join(
        f"[{hit.id}]{f' ({_day(hit.time)})' if hit.time else ''} {hit.speaker}: {hit.text}" for hit in dated
    )


def _day(time: Any) -> str | None:
    return format_time(time) if time else None
