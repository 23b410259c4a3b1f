"""How Memory-R2 writes: facts of a session are extracted, related to what is stored, and handed to the manager.

    session ── 4 parts ──> extract ──> facts ── relate ──> manage ──> operations ── apply ──> memory
                           the earlier parts are context, of both prompts

Extraction does not need the memory, so all parts of all sessions are extracted at once; the manager sees the facts of
every part in order, beside the memories of their speakers that are nearest to them. `single_agent` is the ablation with
one prompt in the place of both: it sees the turns of a part beside the memories nearest to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import UserError
from ...memory.amending import as_left
from ...memory.index import Embedder, Spoken, query_vectors
from ...memory.indexes import Indexes
from ...records import Hit, Item, Turn, format_time
from ...signatures.memory_r2 import (
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
from ..gather import gather
from ..method import Writer
from ..predictor import Predictor, predictor
from ..recording import refuse
from .memory import Edit, FactMemory


class FactWriter(Writer):
    """Extracts facts and edits a memory of them.

    Args:
        embedder: Vectors for relating facts to memories.
        related: Nearest memories shown for a new fact.
        related_total: Most memories shown to the manager at once.
        min_score: Lowest cosine that counts as related.
        indexes: Searches memories.
        parts: How many parts a session is cut into.
        chunk_turns: Turns of a part instead, however many parts that makes.
        earlier: Whether a part is shown with the parts of its session before it.
        same_speaker: Whether the memories related to a fact are of its speaker alone.
        single_agent: Whether one prompt edits the memory from the turns.
    """

    Memory = FactMemory

    def __init__(
        self,
        embedder: Embedder,
        related: int,
        related_total: int,
        min_score: float,
        indexes: Indexes,
        parts: int = 4,
        chunk_turns: int | None = None,
        earlier: bool = True,
        same_speaker: bool = True,
        single_agent: bool = False,
    ) -> None:
        super().__init__()
        if parts < 1 or (chunk_turns is not None and chunk_turns < 1):
            raise UserError(f"parts = {parts}, chunk_turns = {chunk_turns}: at least 1")
        self.embedder, self.indexes = embedder, indexes
        self.parts, self.chunk_turns = parts, chunk_turns
        self.related = related
        self.related_total = related_total
        self.min_score = min_score
        self.earlier, self.same_speaker, self.single_agent = earlier, same_speaker, single_agent
        if single_agent:
            self.edit = predictor(EditMemory)
        else:
            self.extract = predictor(ExtractFactsInContext if earlier else ExtractFacts)
            self.manage = predictor(ManageMemoryInContext if earlier else ManageMemory)

    @property
    def relates(self) -> bool:
        return True

    @property
    def prepares(self) -> bool:
        return not self.single_agent

    def prepare(self, item: Item) -> list[list[Fact] | None]:
        """Extracts the facts of every part of a session, all parts at once; None of a part that could not be."""
        return self._extracted(item, self._chunks(item))

    def write(self, memory: FactMemory, item: Item, prepared: list[list[Fact] | None] | None = None) -> FactMemory:
        return self._written(memory, item, self._chunks(item), prepared)

    def write_piece(self, memory: FactMemory, piece: Item) -> FactMemory:
        """Takes in a piece, which is not cut into parts once more."""
        return self._written(memory, piece, [_spoken(piece)])

    def relate(
        self, memory: FactMemory, facts: Sequence[Fact], vectors: Mapping[str, np.ndarray] | None = None
    ) -> list[list[str]]:
        """The ids of the memories nearest to each fact; at most `related_total` different ones over all facts.

        Args:
            memory: What is searched.
            facts: What to look for.
            vectors: Those of the facts by their texts, where they are known.
        """
        return self._related(memory, [(fact.speaker, fact.fact) for fact in facts], vectors)

    def _related(
        self, memory: FactMemory, said: Sequence[tuple[str, str]], vectors: Mapping[str, np.ndarray] | None = None
    ) -> list[list[str]]:
        """The ids of the memories nearest to each text, of its speaker alone where that is asked for."""
        hits: list[list[Hit]] = [[] for _ in said]
        for speaker in dict.fromkeys(who for who, _ in said) if self.same_speaker else [None]:
            own = [n for n, (who, _) in enumerate(said) if speaker in (None, who)]
            where = None if speaker is None else Spoken(speaker)
            texts = [said[n][1] for n in own]
            known = np.stack([vectors[text] for text in texts]) if vectors else None
            found = self.indexes.search(memory, texts, self.related, self.min_score, where, known)
            near = memory.having({hit.id for each in found for hit in each})
            there = {fact.id for fact in near if as_left(fact, memory.entry) is not None}
            for n, each in zip(own, found, strict=True):
                hits[n] = [hit for hit in each if hit.id in there]
        ranked = sorted((hit for found in hits for hit in found), key=lambda hit: -hit.score)
        shown = set(list(dict.fromkeys(hit.id for hit in ranked))[: self.related_total])
        return [[hit.id for hit in found if hit.id in shown] for found in hits]

    def _chunks(self, item: Item) -> list[Sequence[Turn]]:
        turns = _spoken(item)
        size = self.chunk_turns or max(1, -(-len(turns) // self.parts))
        return [turns[n : n + size] for n in range(0, len(turns), size)]

    def _extracted(self, item: Item, chunks: Sequence[Sequence[Turn]]) -> list[list[Fact] | None]:
        return gather([lambda n=n: self._extract(item, chunks, n) for n in range(len(chunks))])

    def _extract(self, item: Item, chunks: Sequence[Sequence[Turn]], n: int) -> list[Fact] | None:
        context = {"earlier": _lines(item, chunks[:n])} if self.earlier else {}
        found = self.attempt(self.extract, **context, dialogue=_lines(item, [chunks[n]]))
        ids = {turn.id for turn in chunks[n]}
        return None if found is None else [_grounded(fact, ids, chunks[n]) for fact in found.facts if fact.fact.strip()]

    def _written(
        self,
        memory: FactMemory,
        item: Item,
        chunks: Sequence[Sequence[Turn]],
        prepared: list[list[Fact] | None] | None = None,
    ) -> FactMemory:
        found = self._extracted(item, chunks) if prepared is None and not self.single_agent else prepared
        facts = list(dict.fromkeys(fact.fact for each in found or () for fact in each or ()))
        # Those of all parts with one call, of an embedder that keeps nothing too.
        vectors = dict(zip(facts, query_vectors(self.embedder, facts) if facts else (), strict=True))
        for n, chunk in enumerate(chunks):
            if found is None:
                after = self._edit(memory, item, chunks, n)
            else:
                before = [fact for each in found[:n] for fact in each or ()]
                after = self._manage(memory, item, found[n], before, vectors)
            memory = memory.left(item, {turn.id for turn in chunk}) if after is None else after
        return memory

    def _manage(
        self,
        memory: FactMemory,
        item: Item,
        facts: list[Fact] | None,
        before: list[Fact],
        vectors: Mapping[str, np.ndarray],
    ) -> FactMemory | None:
        """The memory after the facts of a part; None where there are none to be had."""
        if not facts:
            return None if facts is None else memory
        related = self.relate(memory, facts, vectors)
        shown = {id for ids in related for id in ids}
        managed = self.attempt(
            self.manage,
            session_date=format_time(item.time) if item.time else "unknown",
            **({"earlier_facts": before} if self.earlier else {}),
            memories=_stored(memory, shown),
            new_facts=[
                NewFact(**fact.model_dump(), related_memory_ids=ids) for fact, ids in zip(facts, related, strict=True)
            ],
        )
        return None if managed is None else self._applied(self.manage, memory, item, facts, shown, managed.operations)

    def _edit(self, memory: FactMemory, item: Item, chunks: Sequence[Sequence[Turn]], n: int) -> FactMemory | None:
        """The one prompt of the single agent."""
        turns = chunks[n]
        shown = {id for ids in self._related(memory, [(turn.speaker, turn.content) for turn in turns]) for id in ids}
        edited = self.attempt(
            self.edit,
            session_date=format_time(item.time) if item.time else "unknown",
            memories=_stored(memory, shown),
            earlier=_lines(item, chunks[:n]) if self.earlier else "",
            dialogue=_lines(item, [turns]),
        )
        said = [Fact(speaker=turn.speaker, turn_id=turn.id, fact=turn.content) for turn in turns]
        return None if edited is None else self._applied(self.edit, memory, item, said, shown, edited.operations)

    def _applied(
        self,
        asked: Predictor,
        memory: FactMemory,
        item: Item,
        facts: Sequence[Fact],
        shown: set[str],
        operations: Sequence[Operation],
    ) -> FactMemory:
        after = memory.apply([_edit(operation, facts) for operation in operations], sorted(shown), item.time)
        refuse(asked, after.counts.get("refused", 0) - memory.counts.get("refused", 0))
        return after


def _spoken(item: Item) -> Sequence[Turn]:
    return [turn for turn in item.turns if turn.content.strip()]


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
        if (left := as_left(fact, memory.entry)) is not None
    ]


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
    named = re.split("[,;]", operation.turn_id or "")[0].strip()
    sources = (named,) if named in turns else turns
    speaker = operation.speaker or next((fact.speaker for fact in facts if fact.turn_id in sources), "")
    target = None if operation.op == "INSERT" else operation.memory_id
    return Edit(operation.op, target, speaker, operation.content, tuple(s for s in sources if s))
