"""RGMem: a memory at several scales, which changes where enough evidence has come together.

    session   segments ── synthesize ──> facts, conclusions (L0) ── extract, label ──> graph (L1)
    step      R_K1 (mentions >= theta_inf) ── R_K2 (score >= theta_sum) ── R_K3 (dirty) ──> theories
    question  plan ──> keywords ──> facts and conclusions (BM25), profiles, inferences and history
              (cosine of names) ──> answer (L2)

Critical path, in LM calls that must follow one another: 3 for all sessions together (synthesize,
extract, label). Then each session takes 1 if an R_K1 fires, 1 if an R_K2 fires, and 1 per level of
concepts that R_K3 renews. A question takes 1 to plan and 1 to answer.

Each person who talks has a graph of their own over the shared evidence, assistants have none.
`extract_paths` and `label` are asked once for each person whom a segment says something of, at the
same time; `merged_graph` makes it one graph.

Limits: the offline embedder compares spelling, and the offline engine files everything under the
first base concept: with both, recall rests on L0. A fact rests on all turns of its segment, a
theory on those of all its units: recall of evidence leaves theories out.

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import dspy
import numpy as np
from pydantic import Field

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...memory.tuning_range import TuningRange
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
from .._embedders import offline_embedder
from .._fallback import MAX_FALLBACK_HITS
from ..method import Method
from ..predictor import predictor
from ..reader import ANY_COSINE, EntryReader
from ..settings import Settings
from ..tasks.answering import QuestionAnswering
from ..threads import gather
from ..writer import ExtractionFailed, Update, Writer
from .evolution import Operators, evolve, evolve_without_rg
from .extraction import extract_paths, people_concerned, split_into_segments, synthesize
from .graph import GraphPath, add_units
from .memory import USER, Evidence, GraphMemory, name_of_user, people_of
from .retrieval import (
    BLOCKS,
    RecallSettings,
    SearchedPart,
    entries_of,
    name_entries,
    recall_scales,
    searched_parts,
    trait_entries,
    with_edits,
)


class PlacedUnit(NamedTuple):
    """A unit of evidence, and its paths in the graphs of the people it concerns."""

    unit: Evidence
    paths: tuple[GraphPath, ...] = ()


class GraphSettings(Settings):
    """How evidence and graph are written."""

    theta_inf: Annotated[int, TuningRange(1, 10)] = Field(
        default=3,
        ge=1,
        description="new mentions of an event at which its summary is rewritten (R_K1; Eq. 6, "
        "Figure 4)",
    )
    theta_sum: Annotated[int, TuningRange(2, 20)] = Field(
        default=6,
        ge=1,
        description="new evidence and new summaries at which the summary of a concept is rewritten "
        "(R_K2); twice theta_inf in the paper",
    )
    use_l1: bool = Field(default=True, description="whether there is a graph (L1, Tables 3 and 4)")
    use_rg: bool = Field(
        default=True,
        description="whether summaries are rewritten bottom-up (RG); off: one flat summary per "
        "concept",
    )
    merge_cosine: Annotated[float, TuningRange(0.5, 1)] = Field(
        default=0.85,
        ge=-1,
        le=1,
        description="lowest cosine of two names that mean the same concept or event; ours",
    )
    segment_turns: Annotated[int, TuningRange(2, 20)] = Field(
        default=8, ge=1, description="most turns of a segment; ours"
    )
    linked: bool = Field(
        default=True,
        description="whether the summary of an event is made from the conclusions about it alone; "
        "off: "
        "from all conclusions of the segments that mention it",
    )
    merged_graph: bool = Field(
        default=False,
        description="whether all people who talk share one graph; off: a graph for each",
    )


class RGMemSettings(RecallSettings, GraphSettings):
    """What can be set of `RGMem`."""

    at_least_one_of = ("use_l0", "use_l1")


class GraphWriter(Writer[GraphMemory, list[PlacedUnit | ExtractionFailed]]):
    """Write evidence, and evolve a graph over it.

    Args:
        settings: The thresholds of the operators, and which layers there are.
        embedder: Compares the names of nodes.
    """

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

    def extract(self, item: Item) -> list[PlacedUnit | ExtractionFailed]:
        """Return the units of evidence in a session, with their paths in the graph.

        The session is cut into segments, which are read at the same time. A segment gives a unit,
        or says that it could not be read, or gives nothing (algorithm 1, lines 7 to 12).
        """
        segments = split_into_segments(item, self.settings.segment_turns)
        units = gather([partial(self._extract_unit, item, segment) for segment in segments])
        return [unit for unit in units if unit is not None]

    def update(
        self,
        memory: GraphMemory,
        item: Item,
        extraction: list[PlacedUnit | ExtractionFailed],
    ) -> Update[GraphMemory]:
        """Return the memory with the evidence of a session, and with the summaries renewed by it.

        The turns of segments that could not be read are reported as a failed part of the session.
        """
        new_memory = self._write_session(memory, item, extraction)
        failed_turns = _failed_turns(extraction)
        if not failed_turns:
            return Update(new_memory)
        return Update(new_memory, failed_items=(item.select_turns(failed_turns),))

    def _write_session(
        self, memory: GraphMemory, item: Item, results: Sequence[PlacedUnit | ExtractionFailed]
    ) -> GraphMemory:
        """Store what was read from a session, renew summaries of the graph, and return the memory.

        The graph has topics and events, and a model summarizes the evidence on them. A user can
        switch the graph off: then evidence is only stored, and no model is called.
        """
        # `step` counts the sessions that were written.
        memory = memory.replace(step=memory.step + 1)
        # If all people share one graph, prompts name everybody who has spoken so far.
        if self.settings.merged_graph:
            people = dict.fromkeys((*memory.shared_by, *people_of(item)))
            memory = memory.replace(shared_by=tuple(people))

        # A unit of evidence is what one part of a conversation says. Here, every unit has its paths
        # in the graph beside it.
        placed_units = _number_units(memory, results)
        # `use_l1` is the switch of the graph, which the paper calls layer L1. Paths are not needed
        # without it.
        if not self.settings.use_l1:
            new_evidence = {unit.id: unit for unit, _paths in placed_units}
            return memory.replace(evidence={**memory.evidence, **new_evidence})

        vectors = self._embed_names(memory, placed_units)
        memory = add_units(memory, placed_units, vectors, self.settings.merge_cosine)
        # Summaries are called theories in the paper.
        return self._renew_theories(memory)

    def _renew_theories(self, memory: GraphMemory) -> GraphMemory:
        """Return the memory with new summaries (theories) wherever there is enough new evidence.

        In the paper's ablation without operators (`use_rg` off), every topic with new evidence gets
        a new summary.
        """
        operators = Operators(prompts=self)
        if not self.settings.use_rg:
            return evolve_without_rg(memory, operators)
        # `theta_inf` and `theta_sum`: how much new evidence is enough, for edges and for topics.
        return evolve(memory, operators, self.settings.theta_inf, self.settings.theta_sum)

    def _extract_unit(
        self, item: Item, segment: Sequence[Turn]
    ) -> PlacedUnit | ExtractionFailed | None:
        """Return the unit of evidence in a segment, with its paths in the graphs of people.

        A unit of evidence is the fact and the conclusions that a model finds in the segment. An
        `ExtractionFailed` is returned if the answer cannot be read, and None if nothing is worth
        keeping.
        """
        people = people_of(item)
        if self.settings.merged_graph:
            return self._extract_unit_of_shared_graph(item, segment, name_of_user(people))

        users = ", ".join(people) or USER
        unit = synthesize(segment, item.time, prompts=self, users=users, people=people)
        if not isinstance(unit, Evidence):
            return unit
        # `use_l1`: whether there is a graph. Without it there are no paths.
        if not self.settings.use_l1:
            return PlacedUnit(unit)

        # Everybody in the session whom the unit is about has a graph, and paths in it. The calls
        # for several people run at the same time.
        calls: list[Callable[[], tuple[GraphPath, ...]]] = []
        # `linked`: whether paths note which conclusions are about which edge.
        linked = self.settings.linked
        for person in people_concerned(unit, people or [USER]):
            call = partial(extract_paths, unit, prompts=self, person=person, linked=linked)
            calls.append(call)
        all_paths: list[GraphPath] = []
        for paths_of_person in gather(calls):
            all_paths.extend(paths_of_person)
        return PlacedUnit(unit, tuple(all_paths))

    def _extract_unit_of_shared_graph(
        self, item: Item, segment: Sequence[Turn], user: str
    ) -> PlacedUnit | ExtractionFailed | None:
        """Return the unit of evidence in a segment, with its paths in the one graph of all people.

        A unit of evidence is the fact and the conclusions that a model finds in the segment. An
        `ExtractionFailed` is returned if the answer cannot be read, and None if nothing is worth
        keeping.

        Args:
            item: The session.
            segment: Some of its turns.
            user: The name that prompts have for all the people: "Ann and Bob (they share ...)".
        """
        unit = synthesize(segment, item.time, prompts=self, users=user)
        if not isinstance(unit, Evidence):
            return unit
        # `use_l1`: whether there is a graph. Without it there are no paths.
        if not self.settings.use_l1:
            return PlacedUnit(unit)

        # `linked`: whether paths note which conclusions are about which edge.
        linked = self.settings.linked
        paths = extract_paths(unit, prompts=self, user=user, linked=linked)
        return PlacedUnit(unit, paths)

    def _embed_names(
        self, memory: GraphMemory, units: Sequence[PlacedUnit]
    ) -> dict[str, np.ndarray]:
        """Return the embeddings of all names in the graph and in the paths of new units.

        Names are compared to find those that mean the same node. One call embeds them all.
        """
        new_names: set[str] = set()
        for _, paths in units:
            for path in paths:
                new_names.update(path.names)
        if not new_names:
            return {}

        # Sorted, since the order of a set differs from run to run.
        node_names = [node.name for node in memory.nodes.values()]
        names = list(dict.fromkeys([*node_names, *sorted(new_names)]))
        return dict(zip(names, self.embedder.embed(names), strict=True))


def _failed_turns(results: Sequence[PlacedUnit | ExtractionFailed]) -> set[str]:
    """Return the ids of the turns whose segments could not be read."""
    failed_turns: set[str] = set()
    for result in results:
        if isinstance(result, ExtractionFailed):
            failed_turns.update(result.turns or ())
    return failed_turns


def _number_units(
    memory: GraphMemory, extraction: Sequence[PlacedUnit | ExtractionFailed]
) -> list[PlacedUnit]:
    """Return the units that could be read, with the next free ids and the step of the memory."""
    numbered_units: list[PlacedUnit] = []
    for result in extraction:
        if isinstance(result, ExtractionFailed):
            continue
        unit, paths = result
        number = len(memory.evidence) + len(numbered_units) + 1
        numbered_unit = unit.replace(id=f"e{number}", step=memory.step)
        numbered_units.append(PlacedUnit(numbered_unit, paths))
    return numbered_units


class GraphReader(EntryReader[GraphMemory]):
    """Plan what to look for, from a question and its options, and read it at every scale.

    `search` finds evidence and theories of all scales by BM25; without L0, theories alone.

    Args:
        settings: How much is recalled from which layers (section 3.4).
        embedder: Compares keywords with the names of nodes.
    """

    settings: RGMemSettings

    def __init__(self, settings: RGMemSettings, embedder: Embedder) -> None:
        hybrid = settings.uses_fusion(embedder)
        indexes = IndexCache(
            embedder if hybrid else None,
            hybrid=hybrid,
            parts=partial(searched_parts, use_l0=settings.use_l0),
            part_entries=_entries_of_part,
            weights=settings.search,
        )
        super().__init__(min_score=ANY_COSINE, indexes=indexes, hybrid=hybrid, settings=settings)
        self.names = IndexCache(embedder, parts=name_entries)
        self.plan = predictor(PlanRetrieval)

    def fallback(self, memory: GraphMemory, query: Query) -> Sequence[Hit]:
        """Return some of the newest entries, which are shown where `recall` finds nothing.

        Facts and conclusions are taken first. Summaries are taken where these are too few.
        """
        # `use_l0`: whether evidence (facts and conclusions) may be shown.
        parts = searched_parts(memory, self.settings.use_l0)
        newest_first: list[Hit] = []
        for part in reversed(parts):
            newest_first.extend(entry.hit() for entry in reversed(entries_of(part)))

        evidence = [hit for hit in newest_first if hit.is_evidence]
        summaries = [hit for hit in newest_first if not hit.is_evidence]
        selected_hits = [*evidence, *summaries][:MAX_FALLBACK_HITS]
        # Only now are the hits sorted by the headings under which the context shows them.
        return in_blocks(selected_hits, BLOCKS)

    def entries(self, memory: GraphMemory) -> Sequence[Entry]:
        return (*super().entries(memory), *trait_entries(memory))

    def with_edits(self, memory: GraphMemory, edits: EntryEdits) -> GraphMemory:
        return with_edits(memory, edits)

    def recall(self, memory: GraphMemory, query: Query) -> Context:
        """Return what the memory says on a question, by keywords that a model plans (section 3.4).

        `counts` of the context holds the number of hits by kind, its `tokens` and the LM `calls`.
        """
        # An empty memory needs no plan.
        if not memory.evidence:
            return Context()

        keywords = self._plan_keywords(query)
        names = self.names if self.settings.use_l1 else None
        context = recall_scales(
            memory, self.indexes, names, self.settings, query.search_text, keywords
        )
        # The one call is the plan.
        return context.model_copy(update={"counts": {**context.counts, "calls": 1}})

    def _plan_keywords(self, query: Query) -> list[Keyword]:
        """Ask a model which keywords to look for in which layers of the memory.

        If it names none, or gives no readable answer, summaries are looked for with the whole
        question as the keyword (QueryStructuring; algorithm 1, line 33).
        """
        lines = [query.search_text]
        if query.options:
            lines.extend(["Options:", *query.options])

        answer = self.try_call(self.plan, question="\n".join(lines))
        planned: list[Keyword] = []
        if answer is not None:
            planned = answer.keywords or []

        keywords = [keyword for keyword in planned if keyword.name.strip()]
        if not keywords:
            return [Keyword(name=query.search_text, retrieve=["summary"])]
        return keywords


def _entries_of_part(memory: GraphMemory, part: SearchedPart) -> tuple[Entry, ...]:
    return entries_of(part)


class ScaleAnswering(QuestionAnswering):
    """Answer by a prompt that knows the blocks of the context."""

    prompt = AnswerFromScales


class RGMem(Method):
    """A graph of concepts and events, whose theories change when enough evidence is there.

    Args:
        settings: What is written and recalled; the defaults if None.
        embedder: Compares names of nodes with one another, and keywords with them; the offline
            embedder if None.
    """

    Settings = RGMemSettings
    embedder_use = "required"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "locomo": {"hybrid": False},
        "personamem": {"hybrid": False},
    }
    """The benchmarks of the paper, which finds texts by BM25."""
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {"question-answering": ScaleAnswering}

    def __init__(
        self, settings: RGMemSettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or RGMemSettings()
        embedder = embedder or offline_embedder()
        writer = GraphWriter(settings.restrict_to(GraphSettings), embedder)
        reader = GraphReader(settings, embedder)
        super().__init__(writer, reader, embedder, settings)
