"""How RGMem reads: a plan of keywords with layers, and what they find in evidence and graph (section 3.4).

    question ── plan ──> keywords ──> facts, conclusions (BM25), profiles, inferences, history (cosine)

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents", section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...memory.amending import Amend
from ...memory.index import Embedder
from ...memory.indexes import Indexes
from ...records import Context, Hit, Query
from ...signatures.rgmem import Keyword, PlanRetrieval
from ..method import ANY_COSINE, FEW, EntryReader
from ..predictor import predictor
from .amending import amended
from .memory import GraphMemory
from .retrieval import Retrieval, entries_of, in_blocks, name_entries, searched


class GraphReader(EntryReader):
    """Plans what to look for, from the question and its options, and reads it at every scale.

    `search` finds evidence and theories of all scales by BM25 (without L0 theories alone).

    Args:
        embedder: Vectors of the names of nodes and of keywords.
        use_l0: Whether evidence is recalled.
        use_l1: Whether there is a graph.
        facts: Facts recalled per question.
        conclusions: Conclusions recalled per question.
        nodes: Concepts recalled per question, and events.
        node_cosine: Lowest cosine of a keyword and a node's name.
        hybrid: Whether texts are found by BM25 and cosine together, instead of by BM25.
    """

    def __init__(
        self,
        embedder: Embedder,
        use_l0: bool,
        use_l1: bool,
        facts: int,
        conclusions: int,
        nodes: int,
        node_cosine: float,
        hybrid: bool,
    ) -> None:
        indexes = Indexes(
            embedder if hybrid else None,
            hybrid=True,
            parts=lambda memory: searched(memory, use_l0),
            made=lambda memory, part: entries_of(part),
        )
        super().__init__(min_score=ANY_COSINE, indexes=indexes, hybrid=hybrid)
        self.use_l0 = use_l0
        self.use_l1 = use_l1
        self.facts = facts
        self.conclusions = conclusions
        self.nodes = nodes
        self.node_cosine = node_cosine
        self.names = Indexes(embedder, parts=name_entries)
        self.plan = predictor(PlanRetrieval)

    def otherwise(self, memory: GraphMemory, query: Query) -> Sequence[Hit]:
        """What the newest evidence says; without L0, theories."""
        parts = reversed(searched(memory, self.use_l0))
        found = [entry.hit() for part in parts for entry in reversed(entries_of(part))]
        return in_blocks(sorted(found, key=lambda hit: not hit.is_evidence)[:FEW])

    def amended(self, memory: GraphMemory, amend: Amend) -> GraphMemory:
        return amended(memory, amend)

    def recall(self, memory: GraphMemory, query: Query) -> Context:
        """The context of section 3.4; empty, without a call, for an empty memory.

        `counts` holds what was recalled by kind, the `tokens` of the context and the LM `calls`. A plan that stays
        unparseable is replaced by the question as the one keyword, for summaries.
        """
        if not memory.evidence:
            return Context()
        asked = "\n".join([query.probe, *(["Options:", *query.options] if query.options else [])])
        said = self.attempt(self.plan, question=asked)
        planned: list[Keyword] = said.keywords or [] if said else []
        keywords = [keyword for keyword in planned if keyword.name.strip()] or [
            Keyword(name=query.probe, retrieve=["summary"])
        ]
        found = Retrieval(
            memory,
            self.indexes,
            self.names if self.use_l1 else None,
            self.facts,
            self.conclusions,
            self.nodes,
            self.node_cosine,
            self.use_l0,
        ).context(query.probe, keywords)
        return found.model_copy(update={"counts": {**found.counts, "calls": 1}})
