"""PGR: prospection-guided retrieval, over a store of dated facts of its own or over any other method's memory.

    sessions ── every 3 ──> upsert ── every 50 new facts ──> consolidate ──> facts       (`FactStore`)
    question ── Prospection over search ──> facts and a summary                          (`PGR`, `PGROver`)

`PGROver(method, policy)` is `pgr+METHOD`: it writes what the method writes and calls nothing of it but `search`. Its
memories are the method's own (`Method.store`), so that all switches of the policy share one written memory.

Example:
    >>> program = build("pgr", embedder=embedder, strategy="chain")
    >>> program = build("pgr+turn-rag", iterations=2, inner_k=10)

Critical path: one update per three sessions of the whole history, in order, and per fifty new facts one merge (its
groups at once); a question takes the calls of `Prospection` and one answer.

Limits: the paper leaves open how many sessions an upsert takes and which cosine joins a cluster; 3 and .8 are ours. An
update sees all facts so far, as in the paper: prompts grow with the memory.

Source: Chopra et al., "Thinking Ahead: Prospection-Guided Retrieval of Memory with Language Models", section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy
from pydantic import BaseModel

from ...errors import UserError
from ...memory.dense import DenseIndex
from ...memory.index import Embedder, Index
from ...records import Context, Hit, Item, format_time
from ...signatures.pgr import FactChange, KnownFact, MergeFacts, UpdateFacts
from ..gather import gather
from ..method import Method
from ..predictor import predictor
from .memory import Change, PersonalFact, PersonalMemory, merge_groups
from .prospection import Prospection


class FactStore(Method):
    """PGR's long-term memory (section 3.2), searched with the query alone: the query-only baseline of Figure 3.

    Args:
        embedder: Vectors of facts and queries.
        every: Sessions per upsert; those that wait are taken in where the history ends.
        merge_after: New facts after which the memory is consolidated.
        merge_score: Lowest cosine of facts that may be merged.
        window_days: Most days between the latest dates of facts that are merged.
        k: Facts recalled per query.
    """

    Memory = PersonalMemory
    writing = ("update", "merge")

    def __init__(
        self,
        embedder: Embedder,
        every: int = 3,
        merge_after: int = 50,
        merge_score: float = 0.8,
        window_days: int = 7,
        k: int = 20,
    ) -> None:
        super().__init__(embedder)
        for name, number in (("every", every), ("merge_after", merge_after)):
            if number < 1:
                raise UserError(f"{name} = {number} is less than 1")
        self.every = every
        self.merge_after = merge_after
        self.merge_score = merge_score
        self.window_days = window_days
        self.k = k
        self.update = predictor(UpdateFacts)
        self.merge = predictor(MergeFacts)

    def write(self, memory: PersonalMemory, item: Item, prepared: Any = None) -> PersonalMemory:
        waiting = memory.model_copy(update={"pending": (*memory.pending, item)})
        return self._upserted(waiting) if len(waiting.pending) >= self.every else waiting

    def settle(self, memory: PersonalMemory) -> PersonalMemory:
        """Takes in the sessions that wait."""
        return self._upserted(memory) if memory.pending else memory

    def search(
        self, memory: PersonalMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.index(memory).search(queries, k, 0.0 if min_score is None else min_score)

    def recall(self, memory: PersonalMemory, query: str, **hints: Any) -> Context:
        hits = tuple(self.search(memory, [query], self.k)[0])
        return Context(hits=hits, counts={"facts": len(hits), "calls": 0})

    def build_index(self, memory: PersonalMemory) -> Index:
        assert self.embedder is not None
        index = DenseIndex(self.embedder)
        index.add(memory.entries())
        return index

    def _upserted(self, memory: PersonalMemory) -> PersonalMemory:
        lines = [
            turn.line(session.time) for session in memory.pending for turn in session.turns if turn.content.strip()
        ]
        found = None
        if lines:
            known = [_shown(fact) for fact in memory.facts]
            found = self.attempt(self.update, existing_facts=known, dialogue="\n".join(lines))
        changes = [_change(fact) for fact in found.facts or []] if found else []
        memory = memory.upsert(changes, memory.pending)
        return self._consolidated(memory) if memory.fresh >= self.merge_after else memory

    def _consolidated(self, memory: PersonalMemory) -> PersonalMemory:
        """Merges what is alike and close in time; a group whose merge stays unparseable is left as it is."""
        assert self.embedder is not None
        vectors = self.embedder.embed([fact.info for fact in memory.facts])
        groups = merge_groups(memory.facts, vectors, self.merge_score, self.window_days)
        shown = {fact.id: _shown(fact) for fact in memory.facts}

        def merged(ids: Sequence[str]) -> Any:
            return self.attempt(self.merge, similar_facts=[shown[id] for id in ids])

        for ids, said in zip(groups, gather([lambda ids=ids: merged(ids) for ids in groups]), strict=True):
            new = said.merged_fact if said else None
            if new is not None:
                memory = memory.merge(ids, new.info, new.type, new.related_entities)
        return memory.model_copy(update={"fresh": 0})


class Prospective(Method):
    """Prospection over a method's memory: that method writes and searches, the policy recalls.

    Args:
        inner: The method beneath.
        policy: How to recall.
    """

    def __init__(self, inner: Method, policy: Prospection) -> None:
        super().__init__(inner.embedder)
        self.inner = inner
        self.policy = policy

    @property
    def store(self) -> Method:
        return self.inner.store

    def prepare(self, item: Item) -> Any:
        return self.inner.prepare(item)

    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        return self.inner.write(memory, item, prepared)

    def settle(self, memory: Any) -> Any:
        return self.inner.settle(memory)

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.inner.search(memory, queries, k, min_score)

    def search_evidence(self, memory: Any, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        return self.inner.search_evidence(memory, queries, k)

    def writers(self) -> dict[str, dspy.Predict]:
        return self.inner.writers()

    def recall(self, memory: Any, query: str, **hints: Any) -> Context:
        """What the policy finds; nothing, without a call, in a memory into which nothing was ever written."""
        if memory == type(memory)():
            return Context()
        return self.policy.recall(lambda texts, k, low: self.search(memory, texts, k, low), query, hints.get("date"))


class PGROver(Prospective):
    """`pgr+METHOD`: the policy over another method's `search`. Settings of the method beneath begin with `inner_`."""

    Memory = BaseModel

    def __init__(self, inner: Method, policy: Prospection) -> None:
        super().__init__(inner, policy)
        self.Memory = inner.Memory  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def config(self) -> dict[str, Any]:
        """The policy's settings and, with `inner_` before their names, those of the method beneath."""
        return {**self.policy.settings, **{f"inner_{name}": value for name, value in self.inner.config.items()}}


class PGR(Prospective):
    """The paper's method: prospection over its own store of facts.

    Args:
        embedder: Vectors of facts, queries and probes.
        every: See `FactStore`, as for the next three.
        merge_after: New facts after which the memory is consolidated.
        merge_score: Lowest cosine of facts that may be merged.
        window_days: Most days between the latest dates of facts that are merged.
        strategy: See `Prospection`, as for all others.
        k: Facts per probe.
        min_score: Lowest cosine of a probe's hit.
        augment: "rewrite", "append" or "none".
        augment_k: Facts that the augmentation sees at most.
        augment_score: Lowest cosine of those facts.
        min_new: The loop ends with a round that finds fewer new facts.
        iterations: Most rounds of refinement.
        summary: Whether the context ends with a prospection summary.
    """

    Memory = PersonalMemory

    def __init__(
        self,
        embedder: Embedder,
        every: int = 3,
        merge_after: int = 50,
        merge_score: float = 0.8,
        window_days: int = 7,
        strategy: str = "tree",
        k: int = 5,
        min_score: float = 0.3,
        augment: str = "rewrite",
        augment_k: int = 5,
        augment_score: float = 0.6,
        min_new: int = 5,
        iterations: int = 10,
        summary: bool = True,
    ) -> None:
        store = FactStore(embedder, every, merge_after, merge_score, window_days)
        policy = Prospection(strategy, k, min_score, augment, augment_k, augment_score, min_new, iterations, summary)
        super().__init__(store, policy)

    @property
    def config(self) -> dict[str, Any]:
        writing = {name: value for name, value in self.inner.config.items() if name != "k"}
        return {**writing, **self.policy.settings}


def _shown(fact: PersonalFact) -> KnownFact:
    when = format_time(fact.latest) if fact.latest else None
    shown = {"fact_id": fact.id, "info": fact.info, "type": fact.type, "frequency": fact.frequency, "date": when}
    return KnownFact.model_validate({**shown, "related_entities": list(fact.entities)})


def _change(fact: FactChange) -> Change:
    named = fact.fact_id.strip() if fact.state == "update" else None
    return Change(fact.info, fact.type, tuple(fact.related_entities), tuple(fact.turn_ids), named or None)
