"""How PGR reads: the prospection policy over any search.

Source: Chopra et al., "Thinking Ahead: Prospection-Guided Retrieval of Memory with Language Models", section 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...memory.amending import Amend
from ...memory.index import Entry
from ...records import Context, Hit, Query
from ..method import ANY_COSINE, FEW, EntryReader, Reader
from .memory import PersonalFact, PersonalMemory
from .prospection import Prospection


class FactReader(EntryReader):
    """Recalls the facts nearest to the query; the query-only baseline of Figure 3."""

    def recall(self, memory: PersonalMemory, query: Query) -> Context:
        hits = super().recall(memory, query).hits
        return Context(hits=hits, counts={"facts": len(hits), "first": len(hits), "calls": 0})

    def amended(self, memory: PersonalMemory, amend: Amend) -> PersonalMemory:
        def reworded(fact: PersonalFact, text: str) -> PersonalFact:
            return fact.model_copy(update={"info": text, "earlier": ()})

        return memory.model_copy(update={"facts": amend.parts(memory.facts, memory.entry, reworded)})


class ProspectiveReader(Reader):
    """Recalls by a policy over another reader's search.

    Args:
        inner: Searches.
        policy: How to recall.
    """

    def __init__(self, inner: Reader, policy: Prospection) -> None:
        super().__init__()
        self.inner = inner
        self.policy = policy
        self.hybrid = inner.hybrid

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.inner.search(memory, queries, k, min_score)

    def entries(self, memory: Any) -> Sequence[Entry]:
        return self.inner.entries(memory)

    def amended(self, memory: Any, amend: Amend) -> Any:
        return self.inner.amended(memory, amend)

    def otherwise(self, memory: Any, query: Query) -> Sequence[Hit]:
        """What is nearest to the query, below any threshold; what the inner method has where nothing is."""
        near = self.search(memory, [query.probe], FEW, ANY_COSINE)[0]
        return [hit.model_copy(update={"score": 0.0}) for hit in near] or self.inner.otherwise(memory, query)

    def recall(self, memory: Any, query: Query) -> Context:
        """What the policy finds; nothing, without a call, in an empty memory."""
        if memory == type(memory)():
            return Context()
        return self.policy.recall(lambda texts, k, low: self.search(memory, texts, k, low), query.probe, query.date)
