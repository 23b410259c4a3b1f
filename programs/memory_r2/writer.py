"""How Memory-R2 writes: facts of a session are extracted, related to what is stored, and handed to the manager.

    session ── chunks of 4 turns ──> extract ──> facts ── relate ──> manage ──> operations ── apply ──> memory

Extraction does not need the memory, so all chunks of all sessions are extracted at once; the manager sees every chunk
of facts in order, beside the memories that are nearest to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...memory.index import Embedder
from ...memory.indexes import Indexes
from ...records import Item, Turn, format_time
from ...signatures.memory_r2 import ExtractFacts, Fact, ManageMemory, NewFact, Operation, StoredMemory
from ..gather import gather
from ..method import Writer
from ..predictor import predictor
from ..recording import refuse
from .memory import Edit, FactMemory


class FactWriter(Writer):
    """Extracts facts and edits a memory of them.

    Args:
        embedder: Vectors for relating facts to memories.
        chunk_turns: Most turns that one extraction sees.
        related: Nearest memories shown for a new fact.
        related_total: Most memories shown to the manager at once.
        min_score: Lowest cosine that counts as related.
        indexes: Searches memories.
    """

    Memory = FactMemory

    def __init__(
        self,
        embedder: Embedder,
        chunk_turns: int,
        related: int,
        related_total: int,
        min_score: float,
        indexes: Indexes,
    ) -> None:
        super().__init__()
        self.embedder, self.indexes = embedder, indexes
        self.chunk_turns = chunk_turns
        self.related = related
        self.related_total = related_total
        self.min_score = min_score
        self.extract = predictor(ExtractFacts)
        self.manage = predictor(ManageMemory)

    def prepare(self, item: Item) -> list[list[Fact] | None]:
        """Extracts the facts of every chunk of a session, all chunks at once; None of a chunk that could not be."""
        return gather([lambda chunk=chunk: self._extract(item, chunk) for chunk in self._chunks(item)])

    def write(self, memory: FactMemory, item: Item, prepared: list[list[Fact] | None] | None = None) -> FactMemory:
        found = self.prepare(item) if prepared is None else prepared
        for chunk, facts in zip(self._chunks(item), found, strict=True):
            after = memory if facts == [] else self._manage(memory, item, facts) if facts else None
            memory = memory.left(item, {turn.id for turn in chunk}) if after is None else after
        return memory

    def relate(self, memory: FactMemory, facts: Sequence[Fact]) -> list[list[str]]:
        """The ids of the memories nearest to each fact; at most `related_total` different ones over all facts."""
        hits = self.indexes.of(memory).search([fact.fact for fact in facts], self.related, self.min_score)
        ranked = sorted((hit for found in hits for hit in found), key=lambda hit: -hit.score)
        shown = set(list(dict.fromkeys(hit.id for hit in ranked))[: self.related_total])
        return [[hit.id for hit in found if hit.id in shown] for found in hits]

    def _chunks(self, item: Item) -> list[Sequence[Turn]]:
        turns = [turn for turn in item.turns if turn.content.strip()]
        return [turns[n : n + self.chunk_turns] for n in range(0, len(turns), self.chunk_turns)]

    def _extract(self, item: Item, chunk: Sequence[Turn]) -> list[Fact] | None:
        found = self.attempt(self.extract, dialogue="\n".join(turn.line(item.time) for turn in chunk))
        ids = {turn.id for turn in chunk}
        return None if found is None else [_grounded(fact, ids, chunk) for fact in found.facts if fact.fact.strip()]

    def _manage(self, memory: FactMemory, item: Item, facts: list[Fact]) -> FactMemory | None:
        related = self.relate(memory, facts)
        shown = {id for ids in related for id in ids}
        managed = self.attempt(
            self.manage,
            session_date=format_time(item.time) if item.time else "unknown",
            memories=[
                StoredMemory(
                    memory_id=fact.id,
                    speaker=fact.speaker,
                    content=fact.content,
                    date=format_time(fact.time) if fact.time else None,
                )
                for fact in memory.facts
                if fact.id in shown
            ],
            new_facts=[
                NewFact(**fact.model_dump(), related_memory_ids=ids) for fact, ids in zip(facts, related, strict=True)
            ],
        )
        if managed is None:
            return None
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
    named = next((turn.strip() for turn in (operation.turn_id or "").split(",")), "")
    sources = (named,) if named in turns else turns
    speaker = operation.speaker or next((fact.speaker for fact in facts if fact.turn_id in sources), "")
    target = None if operation.op == "INSERT" else operation.memory_id
    return Edit(operation.op, target, speaker, operation.content, tuple(s for s in sources if s))
