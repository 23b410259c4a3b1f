"""PGR: prospection-guided retrieval, over a store of dated facts or over any other method's memory.

    sessions ── every 3 ──> upsert ── every 50 new facts ──> consolidate ──> facts        (`writer`)
    question ── Prospection over search ──> facts and a summary                      (`prospection`)

`pgr+METHOD` takes the memory of any other method and calls nothing of it but `search`, so all
settings of the policy share one written memory.

Critical path: one update per three sessions of the whole history, in order, and per fifty new facts
one consolidation, which asks for its merges at once. A question takes the calls of `Prospection`
and one answer.

Source: Chopra et al., "Thinking Ahead: Prospection-Guided Retrieval of Memory with Language
Models", section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...records import Context, Hit, Query
from .._embedders import offline_embedder
from .._fallback import MAX_FALLBACK_HITS
from ..method import Method, Policy
from ..reader import ANY_COSINE, EntryReader, Reader
from ..settings import EntryCount, SearchSettings
from ..writer import MemoryT
from .memory import PersonalMemory
from .prospection import Prospection, ProspectionSettings
from .writer import FactSettings, PersonalFactWriter

_BENCHMARKS = ("memoryquest", "implexconv", "personamem-v2")
"""The benchmarks of the paper. It ranks by cosine, and refines up to ten times."""
_FACT_STORE_PRESETS = {name: {"hybrid": False} for name in _BENCHMARKS}
_PGR_PRESETS = {name: {"hybrid": False, "iterations": 10} for name in _BENCHMARKS}
_POLICY_PRESETS = {name: {"iterations": 10} for name in _BENCHMARKS}


class FactStoreSettings(SearchSettings, FactSettings):
    """What can be set of `FactStore`."""

    k: EntryCount = Field(default=20, description="facts recalled per query (K, Figure 3)")


class PGRSettings(SearchSettings, ProspectionSettings, FactSettings):
    """What can be set of `PGR`; its `min_score` and `augment_score` are cosines in any case."""


class ProspectiveReader(Reader[MemoryT]):
    """Recall by prospection over the search of another reader.

    Args:
        inner: Searches the memory.
        policy: Decides what to search for.
    """

    def __init__(self, inner: Reader[MemoryT], policy: Prospection) -> None:
        super().__init__()
        self.inner = inner
        self.policy = policy
        self.hybrid = inner.hybrid

    def search(
        self, memory: MemoryT, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Search as the inner reader does; nothing is imagined."""
        return self.inner.search(memory, queries, k, min_score)

    def entries(self, memory: MemoryT) -> Sequence[Entry]:
        """Return the entries as the inner reader does."""
        return self.inner.entries(memory)

    def with_edits(self, memory: MemoryT, edits: EntryEdits) -> MemoryT:
        """Return the memory with its user's edits, as the inner reader does."""
        return self.inner.with_edits(memory, edits)

    def fallback(self, memory: MemoryT, query: Query) -> Iterable[Hit]:
        """Yield hits to show where prospection retrieved nothing.

        First come the few entries nearest to the query, however low they score. Then come the
        hits that the inner reader would show, without entries that were yielded before.
        """
        nearest_hits = self.search(memory, [query.search_text], MAX_FALLBACK_HITS, ANY_COSINE)[0]
        yield from nearest_hits

        nearest_ids = {hit.id for hit in nearest_hits}
        for hit in self.inner.fallback(memory, query):
            if hit.id not in nearest_ids:
                yield hit

    def recall(self, memory: MemoryT, query: Query) -> Context:
        """Search the memory with a query and with the user's next steps, which a model imagines.

        The retrieved facts are returned as a context. An empty memory gives an empty context,
        without a call of the model.
        """
        empty_memory = type(memory)()
        if memory == empty_memory:
            return Context()
        search = partial(self.search, memory)
        return self.policy.recall(search, query.search_text, query.date)


class FactStore(Method):
    """PGR's long-term memory (section 3.2), searched with the query alone.

    It is the query-only baseline of Figure 3.
    """

    Settings = FactStoreSettings
    embedder_use = "required"
    presets = _FACT_STORE_PRESETS

    def __init__(
        self, settings: FactStoreSettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or FactStoreSettings()
        embedder = embedder or offline_embedder()
        writer = PersonalFactWriter(settings.restrict_to(FactSettings), embedder)
        hybrid = settings.uses_fusion(embedder)
        reader: EntryReader[PersonalMemory] = EntryReader(
            settings.k, embedder=embedder, hybrid=hybrid, weights=settings.search
        )
        super().__init__(writer, reader, embedder, settings)


class PGR(Method):
    """The paper's method: prospection over its own store of facts."""

    Settings = PGRSettings
    embedder_use = "required"
    presets = _PGR_PRESETS

    def __init__(
        self, settings: PGRSettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or PGRSettings()
        embedder = embedder or offline_embedder()
        writer = PersonalFactWriter(settings.restrict_to(FactSettings), embedder)
        hybrid = settings.uses_fusion(embedder)
        fact_reader: EntryReader[PersonalMemory] = EntryReader(
            embedder=embedder, hybrid=hybrid, weights=settings.search
        )
        policy = Prospection(settings.restrict_to(ProspectionSettings))
        super().__init__(writer, ProspectiveReader(fact_reader, policy), embedder, settings)


class PGROver(Policy):
    """`pgr+METHOD`: prospection over another method's search (section 3.1).

    Settings of the inner method begin with `inner_`.
    """

    Settings = ProspectionSettings
    presets = _POLICY_PRESETS

    def __init__(self, inner: Method, settings: ProspectionSettings | None = None) -> None:
        settings = settings or ProspectionSettings()
        policy = Prospection(settings)
        reader: ProspectiveReader[Any] = ProspectiveReader(inner.reader, policy)
        super().__init__(inner, reader, settings=settings)
