"""RGMem: a memory at several scales, which changes where enough evidence has come together.

    session ── segments ── synthesize ──> facts, conclusions (L0) ── extract, label ──> graph (L1)
    step    ── R_K1 (mentions >= theta_inf) ── R_K2 (score >= theta_sum) ── R_K3 (dirty, children first) ──> theories
    question ── plan ──> keywords ──> facts, conclusions (BM25), profiles, inferences, history (cosine) ──> answer (L2)

Equations to functions:
    Eq. 2       memory state                     `memory.GraphMemory`
    Eq. 4       f_cg = f_synth after f_seg       `extraction.segments`, `extraction.synthesized`
    Eq. 5       f_extract                        `extraction.placed`, `graph_update.taken_in`
    Eq. 3       one step T(s) -> T(s+1)          `evolution.evolve`
    Eq. 6       R_K1                             `operators.LanguageOperators.relation`, `theories.inferred`
    Eq. 7, 9    mixed-scale input, projection    `operators.projected`
    Eq. 8-12    R_K2                             `operators.LanguageOperators.concept`, `theories.abstracted`
    Eq. 13      R_K3                             `operators.LanguageOperators.parent`, `theories.flowed`
    section 3.4 multi-scale observation          `RGMem.recall`, `retrieval.Retrieval`
    Eq. 1, 14-21 are motivation; nothing computes them.

Critical path, in LM calls that must follow one another: 3 for all sessions together (synthesize, extract, label), then
per session 1 if an R_K1 fires, 1 if an R_K2 fires, and 1 per level of concepts that R_K3 renews;
`GraphMemory.depth()` counts the latter. A question takes 1 to plan and 1 to answer.

Not in the paper, so ours: a step is one item; the rule of segmentation; score(v) counts +1 per new unit at a concept
and +1 per fresh R_K1 theory of an event edge below it; a renewed parent makes its own parents dirty, up to the user; a
concept with evidence and sub-concepts keeps both theories, and R_K3 takes its own one in; names are merged by stems and
cosine (`entities`, merge_cosine); where two people talk, both are the user; the synthesis prompt; the variants
w/o L0 (the graph is written as ever, but no evidence is recalled or searched), w/o L1 (no graph) and w/o RG (every
concept with new evidence is rewritten at every step from raw evidence, with one flat prompt).

Example:
    >>> program = build("rgmem", embedder=embedder, theta_inf=3, theta_sum=6)
    >>> memory = program.remember(history).memory
    >>> [firing.theory.sigma for firing in memory.course("user")]

Limits: merge_cosine and node_cosine belong to their embedder. The offline one compares spelling: "Pottery class" and
"Pottery classes" have .90, "Pottery" and "Pottery class" .71, "Running" and "Jogging" .21, unrelated names 0; so .85
joins spellings of one name, and the paper's .5 finds names that share most of their letters. The offline engine plans
no keyword but the question, which reaches .5 with next to no name, and files everything under the first base concept:
with it the graph is written and evolves, but recall rests on L0. A fact rests on all turns of its segment, a theory on
those of all its units: `search_evidence` leaves theories out, and facts still count for more turns than a single one.

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dspy
from pydantic import BaseModel

from ...errors import UserError
from ...memory.dense import DenseIndex
from ...memory.flight import Flight
from ...memory.index import Embedder, Index
from ...memory.sparse import SparseIndex
from ...records import Context, Hit, Item
from ...signatures.rgmem import Keyword, PlanRetrieval, RewriteConceptSummary, SynthesizeEvidence
from ...signatures.rgmem_graph import ExtractEntityPaths, LabelSegments
from ...signatures.rgmem_operators import AbstractConcept, InferRelation, IntegrateConcept
from ..gather import gather
from ..method import Method
from ..predictor import predictor
from .evolution import evolve, single_scale
from .extraction import Draft, placed, segments, synthesized
from .graph_update import taken_in
from .memory import GraphMemory
from .operators import LanguageOperators
from .retrieval import Retrieval, entries, name_entries


class RGMem(Method):
    """The method.

    Args:
        embedder: Vectors of the names of nodes and of keywords.
        theta_inf: Mentions of an event edge at which R_K1 fires.
        theta_sum: Score of a concept at which R_K2 fires; the paper sets it to twice theta_inf.
        use_l0: Whether evidence is recalled (w/o L0).
        use_l1: Whether there is a graph (w/o L1).
        use_rg: Whether the operators evolve it (w/o RG: one flat summary per concept, renewed at every step).
        facts: Facts recalled per question.
        conclusions: Conclusions recalled per question.
        nodes: Concepts recalled per question, and events.
        node_cosine: Lowest cosine of a keyword and a node's name.
        merge_cosine: Lowest cosine of two names that are one node.
        segment_turns: Most turns of a segment.

    Raises:
        UserError: A setting has no such value.
    """

    Memory = GraphMemory
    writing = ("synthesize", "extract", "label", "infer", "abstract", "flow", "rewrite")

    def __init__(
        self,
        embedder: Embedder,
        theta_inf: int = 3,
        theta_sum: int = 6,
        use_l0: bool = True,
        use_l1: bool = True,
        use_rg: bool = True,
        facts: int = 5,
        conclusions: int = 30,
        nodes: int = 3,
        node_cosine: float = 0.5,
        merge_cosine: float = 0.85,
        segment_turns: int = 8,
    ) -> None:
        super().__init__(embedder)
        numbers = {"theta_inf": theta_inf, "theta_sum": theta_sum, "segment_turns": segment_turns}
        for name, number in numbers.items():
            if number < 1:
                raise UserError(f"{name} = {number} is less than 1")
        for name, number in {"facts": facts, "conclusions": conclusions, "nodes": nodes}.items():
            if number < 0:
                raise UserError(f"{name} = {number} is less than 0")
        if not (use_l0 or use_l1):
            raise UserError("use_l0 and use_l1 are both off: nothing is left to recall; leave one on")
        self.theta_inf = theta_inf
        self.theta_sum = theta_sum
        self.use_l0 = use_l0
        self.use_l1 = use_l1
        self.use_rg = use_rg
        self.facts = facts
        self.conclusions = conclusions
        self.nodes = nodes
        self.node_cosine = node_cosine
        self.merge_cosine = merge_cosine
        self.segment_turns = segment_turns
        self._names = Flight(capacity=64)
        self._make_predictors()

    def _make_predictors(self) -> None:
        """Only what the settings use: an optimizer spends nothing on prompts that are never asked."""
        self.synthesize = predictor(SynthesizeEvidence)
        self.plan = predictor(PlanRetrieval)
        if self.use_l1:
            self.extract = predictor(ExtractEntityPaths)
            self.label = predictor(LabelSegments)
        if self.use_l1 and self.use_rg:
            self.infer = predictor(InferRelation)
            self.abstract = predictor(AbstractConcept)
            self.flow = predictor(IntegrateConcept)
        elif self.use_l1:
            self.rewrite = predictor(RewriteConceptSummary)

    def writers(self) -> dict[str, dspy.Predict]:
        """The writing predictors that the settings use, by attribute name."""
        return {name: getattr(self, name) for name in self.writing if hasattr(self, name)}

    def prepare(self, item: Item) -> list[Draft]:
        """The units of an item with their places in the graph; all segments at once."""
        pieces = segments(item, self.segment_turns)
        found = gather([lambda turns=turns: self._draft(item, turns) for turns in pieces])
        return [draft for draft in found if draft is not None]

    def write(self, memory: GraphMemory, item: Item, prepared: list[Draft] | None = None) -> GraphMemory:
        """One step: the item's units come in, then the operators that are due fire."""
        drafts = self.prepare(item) if prepared is None else prepared
        memory = memory.model_copy(update={"step": memory.step + 1})
        vectors = self._vectors(memory, drafts)
        for draft in drafts:
            unit = draft.evidence(f"e{len(memory.evidence) + 1}", memory.step)
            if self.use_l1:
                memory = taken_in(memory, unit, draft.paths, vectors, self.merge_cosine)
            else:
                memory = memory.model_copy(update={"evidence": {**memory.evidence, unit.id: unit}})
        if not self.use_l1:
            return memory
        if not self.use_rg:
            return single_scale(memory, self._operators())
        return evolve(memory, self._operators(), self.theta_inf, self.theta_sum)

    def search(
        self, memory: GraphMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Evidence and theories of all scales by BM25 (without L0 theories alone)."""
        return self.index(memory).search(queries, k, 0.0 if min_score is None else min_score)

    def search_evidence(self, memory: GraphMemory, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Conclusions and facts alone: a theory rests on so many turns that it would count as finding everything."""
        index = self.index(memory)
        assert isinstance(index, SparseIndex)
        return index.search(queries, k, 0.0, lambda entry: entry.tags["layer"] != "theory")

    def recall(self, memory: GraphMemory, query: str, **hints: Any) -> Context:
        """The context of section 3.4; nothing, without a call, from an empty memory.

        `counts` holds what was recalled by kind, the `tokens` of the context and the LM `calls`. A plan that stays
        unparseable is replaced by the question as the one keyword, for summaries.
        """
        if not memory.evidence:
            return Context()
        said = self.attempt(self.plan, question=query)
        keywords = [keyword for keyword in said.keywords or [] if keyword.name.strip()] if said else []
        keywords = keywords or [Keyword(name=query, retrieve=["summary"])]
        texts = self.index(memory)
        assert isinstance(texts, SparseIndex)
        names = self._name_index(memory) if self.use_l1 else None
        found = Retrieval(
            memory, texts, names, self.facts, self.conclusions, self.nodes, self.node_cosine, self.use_l0
        ).context(query, keywords)
        return found.model_copy(update={"counts": {**found.counts, "calls": 1}})

    def build_index(self, memory: GraphMemory) -> Index:
        index = SparseIndex()
        index.add(entries(memory, self.use_l0))
        return index

    def forget(self, memories: Sequence[BaseModel]) -> None:
        gone = {id(memory) for memory in memories}
        self._names.drop(lambda key: key in gone)
        super().forget(memories)

    def _name_index(self, memory: GraphMemory) -> DenseIndex:
        def build() -> tuple[GraphMemory, DenseIndex]:
            assert self.embedder is not None
            index = DenseIndex(self.embedder)
            index.add(name_entries(memory))
            return memory, index

        # The memory is kept beside its index, so that its id is not given to another object meanwhile.
        return self._names.once(id(memory), build)[1]

    def _draft(self, item: Item, turns: Any) -> Draft | None:
        draft = synthesized(turns, item.time, partial(self.attempt, self.synthesize))
        if draft is None or not self.use_l1:
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
        assert self.embedder is not None
        names = list(dict.fromkeys([*(node.name for node in memory.nodes.values()), *sorted(new)]))
        return dict(zip(names, self.embedder.embed(names), strict=True))
