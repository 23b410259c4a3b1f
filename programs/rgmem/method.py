"""RGMem: a memory at several scales, which changes where enough evidence has come together.

    session ── segments ── synthesize ──> facts, conclusions (L0) ── extract, label ──> graph (L1)
    step    ── R_K1 (mentions >= theta_inf) ── R_K2 (score >= theta_sum) ── R_K3 (dirty, children first) ──> theories
    question ── plan ──> keywords ──> facts, conclusions (BM25), profiles, inferences, history (cosine) ──> answer (L2)

Critical path, in LM calls that must follow one another: 3 for all sessions together (synthesize, extract, label), then
per session 1 if an R_K1 fires, 1 if an R_K2 fires, and 1 per level of concepts that R_K3 renews. A question takes 1 to
plan and 1 to answer.

Each person who talks has a graph of their own over the shared evidence, assistants have none. `extract` and `label` are
asked once for each person whom a segment says something of, at the same time; `merged_graph` makes it one graph.

Limits: the offline embedder compares spelling, and the offline engine files everything under the first base concept:
with both, recall rests on L0. A fact rests on all turns of its segment, a theory on those of all its units: recall of
evidence leaves theories out.

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import dspy
from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...records import Context, Hit, Item, Query, Turn, in_blocks
from ...signatures.rgmem import (
    AbstractConcept,
    AnswerFromScales,
    ExtractEntityPaths,
    InferRelation,
    IntegrateConcept,
    Keyword,
    LabelSegments,
    PlanRetrieval,
    RewriteConceptSummary,
    SynthesizeEvidence,
)
from ..fallback import FEW
from ..embedders import offline_embedder
from ..method import Method
from ..reader import ANY_COSINE, EntryReader
from ..settings import Settings
from ..writer import ExtractionFailed, Writer
from ..predictor import predictor
from ..tasks.task import QuestionAnswering
from ..threads import gather
from .evolution import Operators, evolve, single_scale
from .extraction import GraphPath, add_units, people_in, placed, segments, synthesized
from .memory import USER, Evidence, GraphMemory, name_of_user, people_of
from .retrieval import BLOCKS, RecallSettings, entries_of, name_entries, recalled, searched, with_edits

Unit = tuple[Evidence, tuple[GraphPath, ...]]
"""A unit of evidence, and where it belongs."""


class GraphSettings(Settings):
    """How evidence and graph are written."""

    theta_inf: int = Field(default=3, ge=1, description="mentions of an event edge at which R_K1 fires (Eq. 6, Figure 4)")
    theta_sum: int = Field(default=6, ge=1, description="score of a concept at which R_K2 fires; twice theta_inf in the paper")
    use_l1: bool = Field(default=True, description="whether there is a graph (w/o L1, Tables 3 and 4)")
    use_rg: bool = Field(default=True, description="whether the operators evolve it (w/o RG: one flat summary per concept)")
    merge_cosine: float = Field(default=0.85, ge=-1, le=1, description="lowest cosine of two names that are one node; ours")
    segment_turns: int = Field(default=8, ge=1, description="most turns of a segment; ours")
    linked: bool = Field(default=True, description="whether operators see an edge's own conclusions alone (off: its unit's)")
    merged_graph: bool = Field(default=False, description="whether people who talk share one graph (off: a graph for each)")


class RGMemSettings(RecallSettings, GraphSettings):
    """What can be set of `RGMem`."""

    at_least_one_of = ("use_l0", "use_l1")


class GraphWriter(Writer[GraphMemory]):
    """Writes evidence and evolves a graph over it; the embedder compares the names of nodes."""

    Memory = GraphMemory

    settings: GraphSettings

    def __init__(self, settings: GraphSettings, embedder: Embedder) -> None:
        super().__init__(settings)
        self.embedder = embedder
        # Only what the settings use, so that an optimizer does not tune unused prompts.
        self.synthesize = predictor(SynthesizeEvidence)
        if settings.use_l1:
            self.extract_paths = predictor(ExtractEntityPaths)
            self.label = predictor(LabelSegments)
        if settings.use_l1 and settings.use_rg:
            self.infer = predictor(InferRelation)
            self.abstract = predictor(AbstractConcept)
            self.flow = predictor(IntegrateConcept)
        elif settings.use_l1:
            self.rewrite = predictor(RewriteConceptSummary)

    def extract(self, item: Item) -> list[Unit | ExtractionFailed]:
        """The units of an item with their places in the graph; all segments at once."""
        pieces = segments(item, self.settings.segment_turns)
        found = gather([lambda turns=turns: self._unit(item, turns) for turns in pieces])
        return [unit for unit in found if unit is not None]

    def update(
        self, memory: GraphMemory, item: Item, extraction: list[Unit | ExtractionFailed] | None = None
    ) -> GraphMemory:
        """One step: the item's units come in, then the operators that are due fire."""
        found = self.extract(item) if extraction is None else extraction
        step, known = memory.step + 1, len(memory.evidence)
        if self.settings.merged_graph:
            people = dict.fromkeys((*memory.shared_by, *people_of(item)))
            memory = memory.replace(shared_by=tuple(people))
        lost = {id for each in found if isinstance(each, ExtractionFailed) for id in each.turns or ()}
        memory = memory.replace(step=step).mark_failed(item, lost)
        made = [unit for unit in found if not isinstance(unit, ExtractionFailed)]
        units = [(unit.replace(id=f"e{n}", step=step), paths) for n, (unit, paths) in enumerate(made, known + 1)]
        if not self.settings.use_l1:
            return memory.replace(evidence={**memory.evidence, **{unit.id: unit for unit, _ in units}})
        memory = add_units(memory, units, self._vectors(memory, units), self.settings.merge_cosine)
        if not self.settings.use_rg:
            return single_scale(memory, Operators(self.call_predictor))
        return evolve(memory, Operators(self.call_predictor), self.settings.theta_inf, self.settings.theta_sum)

    def _unit(self, item: Item, turns: Sequence[Turn]) -> Unit | ExtractionFailed | None:
        people = people_of(item)
        if self.settings.merged_graph:
            return self._unit_of_shared_graph(item, turns, name_of_user(people))

        unit = synthesized(turns, item.time, self.call_predictor, ", ".join(people) or USER, people)
        if not isinstance(unit, Evidence):
            return unit
        if not self.settings.use_l1:
            return unit, ()
        owners = people_in(unit, people or [USER])
        linked = self.settings.linked
        paths_by_owner = gather([partial(placed, unit, self.call_predictor, owner, linked=linked) for owner in owners])
        return unit, tuple(path for paths in paths_by_owner for path in paths)

    def _unit_of_shared_graph(self, item: Item, turns: Sequence[Turn], user: str) -> Unit | ExtractionFailed | None:
        unit = synthesized(turns, item.time, self.call_predictor, user)
        if not isinstance(unit, Evidence):
            return unit
        if not self.settings.use_l1:
            return unit, ()
        return unit, placed(unit, self.call_predictor, user=user, linked=self.settings.linked)

    def _vectors(self, memory: GraphMemory, units: Sequence[Unit]) -> dict[str, Any]:
        """Embeddings of all names that may have to be compared; one call."""
        new = {name for _, paths in units for path in paths for name in path.names}
        if not new:
            return {}
        names = list(dict.fromkeys([*(node.name for node in memory.nodes.values()), *sorted(new)]))
        return dict(zip(names, self.embedder.embed(names), strict=True))


class GraphReader(EntryReader[GraphMemory]):
    """Plans what to look for, from the question and its options, and reads it at every scale (section 3.4).

    `search` finds evidence and theories of all scales by BM25 (without L0 theories alone).
    """

    settings: RGMemSettings

    def __init__(self, settings: RGMemSettings, embedder: Embedder) -> None:
        hybrid = settings.uses_fusion(embedder)
        indexes = IndexCache(
            embedder if hybrid else None,
            hybrid=hybrid,
            parts=lambda memory: searched(memory, settings.use_l0),
            part_entries=lambda memory, part: entries_of(part),
        )
        super().__init__(min_score=ANY_COSINE, indexes=indexes, hybrid=hybrid, settings=settings)
        self.names = IndexCache(embedder, parts=name_entries)
        self.plan = predictor(PlanRetrieval)

    def fallback(self, memory: GraphMemory, query: Query) -> Sequence[Hit]:
        """What the newest evidence says; without L0, theories."""
        parts = reversed(searched(memory, self.settings.use_l0))
        found = [entry.hit() for part in parts for entry in reversed(entries_of(part))]
        return in_blocks(sorted(found, key=lambda hit: not hit.is_evidence)[:FEW], BLOCKS)

    def with_edits(self, memory: GraphMemory, edits: EntryEdits) -> GraphMemory:
        return with_edits(memory, edits)

    def recall(self, memory: GraphMemory, query: Query) -> Context:
        """The context of section 3.4; empty, without a call, for an empty memory.

        `counts` holds what was recalled by kind, the `tokens` of the context and the LM `calls`. A plan that stays
        unparseable is replaced by the question as the one keyword, for summaries.
        """
        if not memory.evidence:
            return Context()
        asked = "\n".join([query.search_text, *(["Options:", *query.options] if query.options else [])])
        said = self.try_call(self.plan, question=asked)
        planned: list[Keyword] = said.keywords or [] if said else []
        keywords = [keyword for keyword in planned if keyword.name.strip()] or [
            Keyword(name=query.search_text, retrieve=["summary"])
        ]
        names = self.names if self.settings.use_l1 else None
        found = recalled(memory, self.indexes, names, self.settings, query.search_text, keywords)
        return found.model_copy(update={"counts": {**found.counts, "calls": 1}})


class ScaleAnswering(QuestionAnswering):
    """The answer by a prompt that knows the blocks of the context."""

    prompt = AnswerFromScales


class RGMem(Method):
    """The method; its embedder compares names of nodes with one another, and keywords with them."""

    Settings = RGMemSettings
    embedder_use = "required"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {name: {"hybrid": False} for name in ("locomo", "personamem")}
    """The benchmarks of the paper, which finds texts by BM25."""
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {"question-answering": ScaleAnswering}

    def __init__(self, settings: RGMemSettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or RGMemSettings()
        embedder = embedder or offline_embedder()
        writer = GraphWriter(settings.restrict_to(GraphSettings), embedder)
        super().__init__(writer, GraphReader(settings, embedder), embedder, settings)
