"""RGMem: a memory at several scales, which changes where enough evidence has come together.

    session ── segments ── synthesize ──> facts, conclusions (L0) ── extract, label ──> graph (L1)
    step    ── R_K1 (mentions >= theta_inf) ── R_K2 (score >= theta_sum) ── R_K3 (dirty, children first) ──> theories
    question ── plan ──> keywords ──> facts, conclusions (BM25), profiles, inferences, history (cosine) ──> answer (L2)

Critical path, in LM calls that must follow one another: 3 for all sessions together (synthesize, extract, label), then
per session 1 if an R_K1 fires, 1 if an R_K2 fires, and 1 per level of concepts that R_K3 renews. A question takes 1 to
plan and 1 to answer.

Deviations: where the plan finds nothing, the five newest facts and conclusions are recalled; `hybrid` (off) finds texts
by BM25 and cosine together.

Not in the paper, so ours: a step is one item; the rule of segmentation; score(v) counts +1 per new unit at a concept
and +1 per fresh R_K1 theory of an event edge below it; a renewed parent makes its own parents dirty, up to the user; a
concept with evidence and sub-concepts keeps both theories, and R_K3 takes its own one in; names are merged by stems and
cosine (`extraction.Names`, merge_cosine); where two people talk, both are the user; the synthesis prompt; the variants
w/o L0 (the graph is written as ever, but no evidence is recalled or searched), w/o L1 (no graph) and w/o RG (every
concept with new evidence is rewritten at every step from raw evidence, with one flat prompt).

Limits: merge_cosine and node_cosine belong to their embedder (`programs.catalog`). The offline one compares
spelling: "Pottery class" and "Pottery classes" have .90, "Pottery" and "Pottery class" .71, "Running" and "Jogging"
.21, unrelated names 0; so .85 joins spellings of one name, and its node_cosine is .27, not the paper's .5. The offline
engine plans no keyword but the question, which reaches that with few names, and files everything under the first base
concept: with it the graph is written and evolves, but recall rests on L0. A fact rests
on all turns of its segment, a theory on those of all its units: recall of evidence leaves theories out, and facts still
count for more turns than a single one.

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from ...memory.amending import Amend
from ...memory.index import Embedder
from ...memory.indexes import Indexes
from ...records import Context, Hit, Item, Query, Turn
from ...signatures.rgmem import (
    AbstractConcept,
    ExtractEntityPaths,
    InferRelation,
    IntegrateConcept,
    Keyword,
    LabelSegments,
    PlanRetrieval,
    RewriteConceptSummary,
    SynthesizeEvidence,
)
from ..gather import gather
from ..method import ANY_COSINE, FEW, EntryReader, Lost, Method, Writer
from ..predictor import predictor
from ..settings import Settings
from .evolution import Operators, evolve, single_scale
from .extraction import Draft, placed, segments, synthesized, taken_in
from .memory import GraphMemory
from .retrieval import RecallSettings, Retrieval, amended, entries_of, in_blocks, name_entries, searched


class GraphSettings(Settings):
    """How evidence and graph are written."""

    theta_inf: int = Field(3, ge=1, description="mentions of an event edge at which R_K1 fires (Eq. 6, Figure 4)")
    theta_sum: int = Field(6, ge=1, description="score of a concept at which R_K2 fires; twice theta_inf in the paper")
    use_l1: bool = Field(True, description="whether there is a graph (w/o L1, Tables 3 and 4)")
    use_rg: bool = Field(True, description="whether the operators evolve it (w/o RG: one flat summary per concept)")
    merge_cosine: float = Field(0.85, ge=-1, le=1, description="lowest cosine of two names that are one node; ours")
    segment_turns: int = Field(8, ge=1, description="most turns of a segment; ours")


class RGMemSettings(RecallSettings, GraphSettings):
    """What can be set of `RGMem`."""

    @model_validator(mode="after")
    def _recalls_something(self) -> Self:
        if not (self.use_l0 or self.use_l1):
            raise ValueError("use_l0 and use_l1 are both off: nothing is left to recall; leave one on")
        return self


class GraphWriter(Writer):
    """Writes evidence and evolves a graph over it.

    Args:
        embedder: Vectors of the names of nodes.
        settings: How.
    """

    Memory = GraphMemory

    def __init__(self, embedder: Embedder, settings: GraphSettings) -> None:
        super().__init__()
        self.embedder, self.settings = embedder, settings
        # Only what the settings use, so that an optimizer does not tune unused prompts.
        self.synthesize = predictor(SynthesizeEvidence)
        if settings.use_l1:
            self.extract = predictor(ExtractEntityPaths)
            self.label = predictor(LabelSegments)
        if settings.use_l1 and settings.use_rg:
            self.infer = predictor(InferRelation)
            self.abstract = predictor(AbstractConcept)
            self.flow = predictor(IntegrateConcept)
        elif settings.use_l1:
            self.rewrite = predictor(RewriteConceptSummary)

    def prepare(self, item: Item) -> list[Draft | Lost]:
        """The units of an item with their places in the graph; all segments at once."""
        pieces = segments(item, self.settings.segment_turns)
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
        if not self.settings.use_l1:
            new = {unit.id: unit for unit, _ in units}
            return memory.model_copy(update={"evidence": {**memory.evidence, **new}})
        memory = taken_in(memory, units, self._vectors(memory, drafts), self.settings.merge_cosine)
        if not self.settings.use_rg:
            return single_scale(memory, Operators(self.ask))
        return evolve(memory, Operators(self.ask), self.settings.theta_inf, self.settings.theta_sum)

    def _draft(self, item: Item, turns: Sequence[Turn]) -> Draft | Lost | None:
        draft = synthesized(turns, item.time, self.ask)
        return placed(draft, self.ask) if isinstance(draft, Draft) and self.settings.use_l1 else draft

    def _vectors(self, memory: GraphMemory, drafts: Sequence[Draft]) -> dict[str, Any]:
        """Embeddings of all names that may have to be compared; one call."""
        new = {name for draft in drafts for path in draft.paths for name in path.names}
        if not new:
            return {}
        names = list(dict.fromkeys([*(node.name for node in memory.nodes.values()), *sorted(new)]))
        return dict(zip(names, self.embedder.embed(names), strict=True))


class GraphReader(EntryReader):
    """Plans what to look for, from the question and its options, and reads it at every scale (section 3.4).

    `search` finds evidence and theories of all scales by BM25 (without L0 theories alone).

    Args:
        embedder: Vectors of the names of nodes and of keywords.
        settings: Of the method.
    """

    def __init__(self, embedder: Embedder, settings: RGMemSettings) -> None:
        indexes = Indexes(
            embedder if settings.hybrid else None,
            hybrid=True,
            parts=lambda memory: searched(memory, settings.use_l0),
            made=lambda memory, part: entries_of(part),
        )
        super().__init__(min_score=ANY_COSINE, indexes=indexes, hybrid=settings.hybrid)
        self.settings = settings
        self.names = Indexes(embedder, parts=name_entries)
        self.plan = predictor(PlanRetrieval)

    def otherwise(self, memory: GraphMemory, query: Query) -> Sequence[Hit]:
        """What the newest evidence says; without L0, theories."""
        parts = reversed(searched(memory, self.settings.use_l0))
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
        names = self.names if self.settings.use_l1 else None
        found = Retrieval(memory, self.indexes, names, self.settings).context(query.probe, keywords)
        return found.model_copy(update={"counts": {**found.counts, "calls": 1}})


class RGMem(Method):
    """The method.

    Args:
        embedder: Vectors of the names of nodes and of keywords.
        settings: `RGMemSettings`.
    """

    Settings = RGMemSettings

    def __init__(self, embedder: Embedder, settings: RGMemSettings) -> None:
        writer = GraphWriter(embedder, settings.only(GraphSettings))
        super().__init__(writer, GraphReader(embedder, settings), embedder)
