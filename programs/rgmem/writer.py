"""How RGMem writes: evidence comes in segment by segment, then the operators that are due fire.

    session ── segments ── synthesize ──> facts, conclusions (L0) ── extract, label ──> graph (L1)
    step    ── R_K1 (mentions >= theta_inf) ── R_K2 (score >= theta_sum) ── R_K3 (dirty, children first) ──> theories

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents", sections 3.1 to 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...memory.index import Embedder
from ...records import Item
from ...signatures.rgmem import RewriteConceptSummary, SynthesizeEvidence
from ...signatures.rgmem_graph import ExtractEntityPaths, LabelSegments
from ...signatures.rgmem_operators import AbstractConcept, InferRelation, IntegrateConcept
from ..gather import gather
from ..method import Lost, Writer
from ..predictor import predictor
from .evolution import evolve, single_scale
from .extraction import Draft, placed, segments, synthesized
from .graph_update import taken_in
from .memory import GraphMemory
from .operators import LanguageOperators


class GraphWriter(Writer):
    """Writes evidence and evolves a graph over it.

    Args:
        embedder: Vectors of the names of nodes.
        theta_inf: Mentions of an event edge at which R_K1 fires.
        theta_sum: Score of a concept at which R_K2 fires.
        use_l1: Whether there is a graph.
        use_rg: Whether the operators evolve it.
        merge_cosine: Lowest cosine of two names that are one node.
        segment_turns: Most turns of a segment.
    """

    Memory = GraphMemory

    def __init__(
        self,
        embedder: Embedder,
        theta_inf: int,
        theta_sum: int,
        use_l1: bool,
        use_rg: bool,
        merge_cosine: float,
        segment_turns: int,
    ) -> None:
        super().__init__()
        self.embedder = embedder
        self.theta_inf = theta_inf
        self.theta_sum = theta_sum
        self.use_l1 = use_l1
        self.use_rg = use_rg
        self.merge_cosine = merge_cosine
        self.segment_turns = segment_turns
        # Only what the settings use, so that an optimizer does not tune unused prompts.
        self.synthesize = predictor(SynthesizeEvidence)
        if use_l1:
            self.extract = predictor(ExtractEntityPaths)
            self.label = predictor(LabelSegments)
        if use_l1 and use_rg:
            self.infer = predictor(InferRelation)
            self.abstract = predictor(AbstractConcept)
            self.flow = predictor(IntegrateConcept)
        elif use_l1:
            self.rewrite = predictor(RewriteConceptSummary)

    def prepare(self, item: Item) -> list[Draft | Lost]:
        """The units of an item with their places in the graph; all segments at once."""
        pieces = segments(item, self.segment_turns)
        found = gather([lambda turns=turns: self._draft(item, turns) for turns in pieces])
        return [draft for draft in found if draft is not None]

    def write(self, memory: GraphMemory, item: Item, prepared: list[Draft | Lost] | None = None) -> GraphMemory:
        """One step: the item's units come in, then the operators that are due fire."""
        found = self.prepare(item) if prepared is None else prepared
        drafts = [draft for draft in found if isinstance(draft, Draft)]
        memory = memory.model_copy(update={"step": memory.step + 1})
        memory = memory.left(item, {id for lost in found if isinstance(lost, Lost) for id in lost.turns or ()})
        known = len(memory.evidence)
        units = [(draft.evidence(f"e{n}", memory.step), draft.paths) for n, draft in enumerate(drafts, known + 1)]
        if not self.use_l1:
            new = {unit.id: unit for unit, _ in units}
            return memory.model_copy(update={"evidence": {**memory.evidence, **new}})
        memory = taken_in(memory, units, self._vectors(memory, drafts), self.merge_cosine)
        if not self.use_rg:
            return single_scale(memory, self._operators())
        return evolve(memory, self._operators(), self.theta_inf, self.theta_sum)

    def _draft(self, item: Item, turns: Any) -> Draft | Lost | None:
        draft = synthesized(turns, item.time, partial(self.attempt, self.synthesize))
        if not isinstance(draft, Draft) or not self.use_l1:
            return draft
        return placed(draft, partial(self.attempt, self.extract), partial(self.attempt, self.label))

    def _operators(self) -> LanguageOperators:
        """The operators over the predictors that are there; `evolve` and `single_scale` call only these."""
        names = ("infer", "abstract", "flow", "rewrite")
        return LanguageOperators(*(partial(self.attempt, getattr(self, name, None)) for name in names))  # pyright: ignore[reportArgumentType]

    def _vectors(self, memory: GraphMemory, drafts: Sequence[Draft]) -> dict[str, Any]:
        """Embeddings of all names that may have to be compared; one call."""
        new = {name for draft in drafts for path in draft.paths for name in path.names}
        if not new:
            return {}
        names = list(dict.fromkeys([*(node.name for node in memory.nodes.values()), *sorted(new)]))
        return dict(zip(names, self.embedder.embed(names), strict=True))
