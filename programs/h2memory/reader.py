"""How H2Memory reads: current situations, all needs, and the backgrounds of both.

    query     ──> 3 situations of the current session, their backgrounds, 3 topics, their principles

Source: Mem-PAL, "Memory-based RAG".
"""

from __future__ import annotations

from collections.abc import Sequence

from ...memory.amending import Amend
from ...memory.index import Embedder, Entry, entry_of
from ...memory.indexes import Indexes
from ...records import Context, Hit, Query
from ...signatures.h2memory_principles import SummarizeNeed
from ..method import EntryReader
from ..predictor import predictor
from .memory import HeterogeneousMemory
from .recall import Parts, amended, entries_of, recalled, searched, whole


class UserReader(EntryReader):
    """Recalls from all four parts, or what the switches leave of them.

    Args:
        embedder: Vectors of situations, needs and queries.
        use_situations: Show situations.
        use_background: Show the background.
        use_topics: Show topics.
        use_principles: Show principles.
        situations: Situations recalled per query.
        topics: Topics recalled per query.
        need_summary: Whether a query that is a dialogue is summed up before the search.
    """

    def __init__(
        self,
        embedder: Embedder,
        use_situations: bool,
        use_background: bool,
        use_topics: bool,
        use_principles: bool,
        situations: int,
        topics: int,
        need_summary: bool,
    ) -> None:
        self.parts = parts = Parts(use_situations, use_background, use_topics, use_principles)
        indexes = Indexes(
            embedder,
            parts=lambda memory: searched(memory, parts),
            made=lambda memory, part: entries_of(part, parts),
        )
        super().__init__(indexes=indexes)
        self.situations = situations
        self.topics = topics
        self.need_summary = need_summary
        if need_summary:
            self.summarize_need = predictor(SummarizeNeed)

    def search(
        self, memory: HeterogeneousMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """All parts that are shown: situations of all sessions, backgrounds, topics and principles, by cosine."""
        low = 0.0 if min_score is None else min_score
        rows = self.indexes.search(memory, queries, k, low, lambda entry: bool(entry.tags["shown"]))
        return [whole(memory, hits) for hits in rows]

    def entries(self, memory: HeterogeneousMemory) -> Sequence[Entry]:
        """All parts that are shown, with all that there is to them."""
        hits = [entry.hit() for entry in super().entries(memory) if entry.tags["shown"]]
        return list(map(entry_of, whole(memory, hits)))

    def amended(self, memory: HeterogeneousMemory, amend: Amend) -> HeterogeneousMemory:
        return amended(memory, amend)

    def recall(self, memory: HeterogeneousMemory, query: Query) -> Context:
        """The context of a query; empty, without a call, for an empty memory.

        A query that is a dialogue is summed up first; one about needs is shown no solutions and preferences.

        Returns:
            Hits of situations, backgrounds, topics and principles, in this order; `counts` has how many of each, the
            `tokens` of all, the LM `calls`, and the `depth` of the memory.
        """
        if not (memory.situations or memory.topics):
            return Context()
        calls, probe = 0, query.probe
        if self.need_summary and query.modality == "dialogue":
            calls, said = 1, self.attempt(self.summarize_need, dialogue_so_far=probe)
            probe = (" ".join(str(said.current_need or "").split()) if said else "") or probe
        about = query.about or "solutions"
        found = recalled(memory, self.indexes, probe, self.parts, about, self.situations, self.topics)
        return found.model_copy(update={"counts": {**found.counts, "calls": calls, "depth": memory.depth()}})
