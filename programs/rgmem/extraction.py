"""RGMem's extraction: from a session to units of evidence and their places in the graph.

    session ── f_seg ──> segments ── f_synth ──> units of evidence (Eq. 4)
    unit    ── f_extract ──> labelled paths ── add_units ──> graph (Eq. 5)

A segment becomes one unit of evidence, whoever speaks. Its paths are extracted for each person it
says something of.

Class edges never close a cycle: one that would is refused, and the path continues from the node it
led to. A base concept hangs on the user alone. A unit counts once on an event edge, and once on the
lowest concept of its paths.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np

from ...memory.search.tokens import tokens
from ...records import Item, Turn, format_time
from ...signatures.rgmem import DrawnConclusion, EntityPath, PathSegment, SegmentLabel
from ...text import one_line
from .._component import CallPredictor
from ..writer import ExtractionFailed
from .memory import (
    USER,
    ClassEdge,
    Conclusion,
    Evidence,
    GraphMemory,
    Mention,
    Node,
    Relation,
    Tier,
    new_graph,
)

_DIGITS = re.compile(r"\d+")
_AROUND_IDS = "[]() "
"""What models put around ids and names."""
_ROUNDING = 1e-6
"""How far a cosine may fall below its threshold by rounding alone."""


class EventStep(NamedTuple):
    """One step of a path: the event that an event edge leads to, and what the edge holds."""

    event: str
    label: str
    conclusions: tuple[int, ...] | None


@dataclass(frozen=True)
class GraphPath:
    """One extracted path, from a base concept down to an event."""

    base: str
    """Name of a base concept."""
    concepts: tuple[str, ...] = ()
    """Names of further concepts, from broad to narrow."""
    events: tuple[str, ...] = ()
    """Names of events, the instance last."""
    labels: tuple[str, ...] = ()
    """Labels of the edges that lead to the events; "" or missing for one without."""
    linked: tuple[tuple[int, ...] | None, ...] = ()
    """For each such edge, which conclusions of the unit are about it, as in `Mention`.

    All of them where it is missing.
    """
    person: str = USER
    """The person whose graph it belongs to."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names below the base."""
        return (*self.concepts, *self.events)

    def event_steps(self) -> list[EventStep]:
        """Return the steps to events with a name."""
        steps: list[EventStep] = []
        for event, label, conclusions in zip_longest(self.events, self.labels, self.linked):
            if event and event.strip():
                steps.append(EventStep(event, label or "", conclusions))
        return steps


def split_into_segments(item: Item, max_turns: int) -> list[list[Turn]]:
    """Split the turns with words into segments (f_seg, section 3.3.1).

    There are as few segments of at most `max_turns` as there can be; their lengths differ by at
    most one turn.
    """
    turns = list(item.spoken)
    if not turns:
        return []

    segment_count = math.ceil(len(turns) / max_turns)
    cuts = [math.ceil(len(turns) * number / segment_count) for number in range(segment_count + 1)]
    return [turns[start:end] for start, end in pairwise(cuts)]


def synthesize(
    turns: Sequence[Turn],
    time: datetime | None,
    call_predictor: CallPredictor,
    users: str = USER,
    people: Sequence[str] = (),
) -> Evidence | ExtractionFailed | None:
    """Turn one segment into a unit of evidence without an id (f_synth, Eq. 4).

    Args:
        turns: The segment.
        time: When it was said, for turns without a time of their own.
        call_predictor: Calls one of the writer's predictors by its name.
        users: What the prompt calls those whom conclusions are drawn about.
        people: The speakers whom a conclusion may be attributed to; empty where there is one graph
            for all.

    Returns:
        The unit, None where there is nothing in it worth keeping, or the turns that are lost where
        no usable answer came.
    """
    turn_ids = tuple(turn.id for turn in turns)
    dialogue = "\n".join(turn.line(time) for turn in turns)
    answer = call_predictor("synthesize", users=users, dialogue=dialogue)
    if answer is None:
        return ExtractionFailed(frozenset(turn_ids))

    fact = one_line(answer.fact)
    drawn_conclusions: list[DrawnConclusion] = answer.conclusions or []
    conclusions: list[Conclusion] = []
    for drawn in drawn_conclusions:
        if drawn.text.strip():
            conclusions.append(_to_conclusion(drawn, turns, people))
    if not fact and not conclusions:
        return None

    return Evidence(
        id="",
        step=0,
        fact=fact,
        conclusions=_without_repetitions(conclusions),
        time=turns[0].time or time,
        sources=turn_ids,
    )


def _without_repetitions(conclusions: Sequence[Conclusion]) -> tuple[Conclusion, ...]:
    """Return each conclusion once: as it was first drawn, in the place of its last repetition."""
    unique: dict[str, Conclusion] = {}
    for conclusion in conclusions:
        text = conclusion.text.casefold()
        first_drawn = unique.pop(text, conclusion)
        unique[text] = first_drawn
    return tuple(unique.values())


def _to_conclusion(
    drawn: DrawnConclusion, turns: Sequence[Turn], people: Sequence[str]
) -> Conclusion:
    """Return what a model drew from a segment as a part of a memory.

    It rests on all turns of the segment where the model names none of them.
    """
    turn_ids = [turn.id for turn in turns]
    named_ids = dict.fromkeys(name.strip(_AROUND_IDS) for name in drawn.turn_ids)
    sources = [turn_id for turn_id in named_ids if turn_id in turn_ids]
    if not sources:
        sources = turn_ids
    speakers = [turn.speaker for turn in turns if turn.id in sources]
    return Conclusion(
        text=one_line(drawn.text),
        high=drawn.relevance == "high",
        person=_person_of(drawn, speakers, people),
        sources=tuple(sources),
    )


def _person_of(drawn: DrawnConclusion, speakers: Sequence[str], people: Sequence[str]) -> str:
    """Return whom a conclusion is about, or "" if that is not known.

    That is the person it names, or else the only speaker of the turns it rests on.

    Args:
        drawn: The conclusion.
        speakers: The speakers of the turns that it rests on.
        people: Those whom a conclusion may be attributed to.
    """
    people_by_name = {_bare_name(person): person for person in people}
    named_person = people_by_name.get(_bare_name(drawn.speaker))
    if named_person is not None:
        return named_person

    is_one_speaker = len(set(speakers)) == 1
    if is_one_speaker and speakers[0] in people:
        return speakers[0]
    return ""


def _bare_name(name: str) -> str:
    """Return a name without brackets that a model puts around it, or that it ends in itself."""
    return name.strip(_AROUND_IDS).casefold()


def extract_paths(
    unit: Evidence,
    call_predictor: CallPredictor,
    person: str = USER,
    user: str | None = None,
    linked: bool = True,
) -> tuple[GraphPath, ...]:
    """Return the labelled paths of a unit in one person's graph (f_extract, Eq. 5).

    Args:
        unit: The unit of evidence.
        call_predictor: Calls one of the writer's predictors by its name.
        person: Whose graph it is.
        user: What the prompts call the person, if that is not the name.
        linked: Whether an edge takes the conclusions that its label names. Without it, and where no
            label names any, an edge takes all that are about the person.

    Returns:
        The paths; none where the model gave none.
    """
    user = user or person
    answer = call_predictor("extract_paths", user=user, fragment=format_fragment(unit, person))
    entity_paths: list[EntityPath] = []
    if answer is not None:
        entity_paths = answer.entity_paths or []

    # A dict, so that equal paths are labelled once.
    unique_paths: dict[GraphPath, None] = {}
    for entity_path in entity_paths:
        path = _to_graph_path(entity_path, person)
        if path.events:
            unique_paths[path] = None
    if not unique_paths:
        return ()
    return _label_paths(list(unique_paths), unit, call_predictor, user, linked)


def _to_graph_path(entity_path: EntityPath, person: str) -> GraphPath:
    concepts = [one_line(name) for name in entity_path.concepts if name.strip()]
    events = [one_line(name) for name in entity_path.events if name.strip()]
    return GraphPath(entity_path.base, tuple(concepts), tuple(events), person=person)


def _label_paths(
    paths: Sequence[GraphPath],
    unit: Evidence,
    call_predictor: CallPredictor,
    user: str,
    linked: bool,
) -> tuple[GraphPath, ...]:
    """Ask for the labels of all edges that lead to events, and return the paths with them.

    The arguments are those of `extract_paths`; all paths belong to one graph.
    """
    person = paths[0].person
    segments_by_path = _path_segments(paths, user)
    answer = call_predictor(
        "label",
        user=user,
        fragment=format_numbered_fragment(unit, person),
        segments=[segment for segments in segments_by_path for segment in segments],
    )
    edge_labels: list[SegmentLabel] = []
    if answer is not None:
        edge_labels = answer.edge_labels or []

    labels: dict[str, str] = {}
    conclusions: dict[str, tuple[int, ...]] = {}
    for edge_label in edge_labels:
        segment_id = edge_label.segment_id.strip(_AROUND_IDS)
        labels[segment_id] = edge_label.label
        conclusions[segment_id] = _named_conclusions(edge_label.conclusions, unit, person)

    uses_links = linked and any(conclusions.values())
    links = conclusions if uses_links else None
    labelled_paths: list[GraphPath] = []
    for path, segments in zip(paths, segments_by_path, strict=True):
        labelled_paths.append(_with_labels(path, segments, labels, links))
    return tuple(labelled_paths)


def _with_labels(
    path: GraphPath,
    segments: Sequence[PathSegment],
    labels: Mapping[str, str],
    links: Mapping[str, tuple[int, ...]] | None,
) -> GraphPath:
    """Return a path with the labels of its edges, and the conclusions that these are about.

    Args:
        path: The path.
        segments: Its segments that lead to events.
        labels: Labels by the id of a segment.
        links: Positions of conclusions by the id of a segment; None if an edge takes all.
    """
    segment_ids = [segment.segment_id for segment in segments]
    path_labels = tuple(labels.get(segment_id, "") for segment_id in segment_ids)
    if links is None:
        return replace(path, labels=path_labels, linked=(None,) * len(segment_ids))
    path_links = tuple(links.get(segment_id, ()) for segment_id in segment_ids)
    return replace(path, labels=path_labels, linked=path_links)


def _path_segments(paths: Sequence[GraphPath], user: str) -> list[list[PathSegment]]:
    """Return for each path the segments that lead to its events.

    Segments are numbered through all paths; equal segments of two paths have two numbers.
    """
    # Of several users, the name of the root is the names alone, without the remark that follows.
    root_name = user.partition(" (")[0]
    segments_by_path: list[list[PathSegment]] = []
    segment_count = 0
    for path in paths:
        whole_path = " > ".join([root_name, path.base, *path.names])
        lowest_concept = path.concepts[-1] if path.concepts else path.base
        segments: list[PathSegment] = []
        for source, target in pairwise([lowest_concept, *path.events]):
            segment_count += 1
            segment = PathSegment(
                segment_id=f"s{segment_count}", source=source, target=target, path=whole_path
            )
            segments.append(segment)
        segments_by_path.append(segments)
    return segments_by_path


def _named_conclusions(names: Sequence[str], unit: Evidence, person: str) -> tuple[int, ...]:
    """Return the positions of a person's conclusions that a model names.

    It names them by their ids in the prompt, or by the ids of their turns.
    """
    ids = {name.strip(_AROUND_IDS) for name in names}
    positions: list[int] = []
    for position in unit.conclusions_about(person):
        sources = unit.conclusions[position].sources
        if _conclusion_id(position) in ids or ids.intersection(sources):
            positions.append(position)
    return tuple(positions)


def people_concerned(unit: Evidence, people: Sequence[str]) -> list[str]:
    """Return the people whose graphs a unit belongs in.

    Those are the people it draws conclusions about. They are all people if it draws none, or if it
    is not known whom one is about.
    """
    named_people = {conclusion.person for conclusion in unit.conclusions}
    if not named_people or "" in named_people:
        return list(people)
    return [person for person in people if person in named_people]


def format_fragment(unit: Evidence, person: str = USER) -> str:
    """Return a unit as prompts show it: the fact, then the conclusions about a person."""
    lines = _fact_lines(unit)
    for position in unit.conclusions_about(person):
        lines.append(format_conclusion(unit.conclusions[position], unit.time))
    return "\n".join(lines)


def format_numbered_fragment(unit: Evidence, person: str) -> str:
    """Return what `format_fragment` returns, with an id before each conclusion: c1, c2, ..."""
    lines = _fact_lines(unit)
    for position in unit.conclusions_about(person):
        conclusion_id = _conclusion_id(position)
        lines.append(format_conclusion(unit.conclusions[position], unit.time, conclusion_id))
    return "\n".join(lines)


def _conclusion_id(position: int) -> str:
    """Return the id that prompts give to a unit's conclusion at a position."""
    return f"c{position + 1}"


def _fact_lines(unit: Evidence) -> list[str]:
    """Return the line of a unit's fact; none if it has no fact."""
    if not unit.fact:
        return []
    return [one_line(f"{time_prefix(unit.time)}{unit.fact}")]


def format_conclusion(conclusion: Conclusion, time: datetime | None, *ids: str) -> str:
    """Return the line of a conclusion: `[D1:3] (8 May 2023, Monday) Ann likes jazz`.

    The ids of its turns stand first, behind further `ids`. They also show an optimizer which step
    saw the evidence.
    """
    shown_ids = ", ".join((*ids, *conclusion.sources))
    return one_line(f"[{shown_ids}] {time_prefix(time)}{conclusion.text}")


def time_prefix(time: datetime | None) -> str:
    """Return a date as prompts show it before a text; "" if it is not known."""
    if time is None:
        return ""
    return f"({format_time(time)}) "


def add_units(
    memory: GraphMemory,
    units: Sequence[tuple[Evidence, Sequence[GraphPath]]],
    vectors: Mapping[str, np.ndarray] | None = None,
    min_cosine: float = 0.85,
) -> GraphMemory:
    """Return the memory with further units (algorithm 1, lines 10, 13 and 14).

    The units come in one by one; several at once give the same memory. A path whose base is no base
    concept is left out, and so is one without an event.

    Two names are one node in two cases. Their stems without function words are the same ("Running",
    "to run"), or the cosine of their embeddings reaches the threshold and they hold the same
    numbers ("Marathon 2022" is not "Marathon 2023"). Merging is aggressive, as in the paper, which
    gives no rule (appendix C.7).

    Args:
        memory: The memory so far.
        units: Units of evidence with ids, each with its paths.
        vectors: Embeddings of the names of nodes and paths, of length 1. Without them only names
            with the same stems merge.
        min_cosine: Lowest cosine of two names that are one node.
    """
    draft = _GraphDraft(memory, vectors or {}, min_cosine)
    evidence = dict(memory.evidence)
    for unit, paths in units:
        evidence[unit.id] = unit
        for path in paths:
            draft.add_path(unit, path)

    return memory.replace(
        evidence=evidence,
        nodes=draft.nodes,
        classes=tuple(draft.classes),
        relations=draft.relations,
        issued=draft.issued,
    )


Stems = tuple[str, ...]
"""A name as `stems_of` returns it."""


class _GraphDraft:
    """A graph that can be changed, while units are added to it (UpdateGraph of algorithm 1).

    Args:
        memory: The memory with the graph to begin with.
        vectors: Embeddings by name.
        min_cosine: Lowest cosine of two names that are one node.
    """

    def __init__(
        self, memory: GraphMemory, vectors: Mapping[str, np.ndarray], min_cosine: float
    ) -> None:
        self.nodes = dict(memory.nodes)
        self.relations = dict(memory.relations)
        self.classes = list(memory.classes)
        self.issued = memory.issued
        self._vectors = vectors
        self._min_cosine = min_cosine
        self._roots = memory.roots
        """Ids of roots by person."""
        self._bases: dict[tuple[str, Stems], str] = {}
        """Ids of base concepts by person and name."""
        self._ids_by_name: dict[tuple[str, bool, Stems], str] = {}
        """Ids of nodes by person, whether they are concepts, and name or alias."""
        self._parents: dict[str, set[str]] = {}
        """Ids of the concepts right above each node."""
        self._relation_ids: dict[tuple[str, str], str] = {}
        """Ids of event edges by source and target."""

        for node in self.nodes.values():
            self._index_node(node)
        for edge in memory.classes:
            self._index_class_edge(edge)
        for relation in self.relations.values():
            self._relation_ids[relation.source, relation.target] = relation.id

    def add_path(self, unit: Evidence, path: GraphPath) -> None:
        """Add the nodes and edges of a path, and the unit as evidence of them."""
        self._begin_graph(path.person)
        base_id = self._bases.get((path.person, stems_of(path.base)))
        steps = path.event_steps()
        if base_id is None or not steps:
            return

        concept_id = self._add_concepts(base_id, path)
        self._add_scoring_evidence(concept_id, unit)

        source_id = concept_id
        last_step = steps[-1]
        for step in steps:
            tier: Tier = "instance" if step is last_step else "general"
            event_id = self._find_or_add_node(path.person, step.event, tier)
            if event_id != source_id:
                self._add_mention(source_id, event_id, unit, step)
                self._add_evidence(event_id, unit)
            source_id = event_id

    def _add_concepts(self, base_id: str, path: GraphPath) -> str:
        """Add the concepts of a path below its base; return the id of the lowest one."""
        # Models like to begin a path with its root.
        root_names = (stems_of(USER), stems_of(path.person))
        parent_id = base_id
        for name in path.concepts:
            if not name.strip() or stems_of(name) in root_names:
                continue
            child_id = self._find_or_add_node(path.person, name, "abstract")
            self._join_concepts(parent_id, child_id)
            parent_id = child_id
        return parent_id

    def _begin_graph(self, person: str) -> None:
        """Add the root and the base concepts of a person who has no graph yet."""
        if person in self._roots:
            return

        nodes, edges = new_graph(person, number=len(self._roots))
        root = nodes[0]
        self._roots[person] = root.id
        self.classes.extend(edges)
        for node in nodes:
            self.nodes[node.id] = node
            self._index_node(node)
        for edge in edges:
            self._index_class_edge(edge)

    def _index_node(self, node: Node) -> None:
        """Make a node known by its name and aliases; the root has no name to be found by."""
        self._parents.setdefault(node.id, set())
        if node.tier == "user":
            return
        for name in (node.name, *node.aliases):
            key = (node.person, node.tier == "abstract", stems_of(name))
            self._ids_by_name.setdefault(key, node.id)

    def _index_class_edge(self, edge: ClassEdge) -> None:
        self._parents[edge.child].add(edge.parent)
        if edge.parent in self._roots.values():
            base = self.nodes[edge.child]
            self._bases[base.person, stems_of(base.name)] = base.id

    def _join_concepts(self, parent_id: str, child_id: str) -> None:
        """Join two concepts by a class edge.

        They are not joined if they are already, if the lower one is a base concept, or if the edge
        would close a cycle.
        """
        if child_id == parent_id or parent_id in self._parents[child_id]:
            return
        if child_id in self._bases.values() or child_id in self._ancestors(parent_id):
            return
        self._parents[child_id].add(parent_id)
        self.classes.append(ClassEdge(parent=parent_id, child=child_id))

    def _ancestors(self, node_id: str) -> set[str]:
        """Return the ids of all concepts above a node."""
        ancestors: set[str] = set()
        queue = [node_id]
        while queue:
            new_parents = self._parents[queue.pop()] - ancestors
            ancestors.update(new_parents)
            queue.extend(new_parents)
        return ancestors

    def _find_or_add_node(self, person: str, name: str, tier: Tier) -> str:
        """Return the id of the node that a name means in a person's graph; add it if it is new."""
        name = one_line(name)
        is_concept = tier == "abstract"
        node_id = self._ids_by_name.get((person, is_concept, stems_of(name)))
        if node_id is None:
            node_id = self._merge_with_nearest(person, name, is_concept)
        if node_id is None:
            node_id = self._add_node(person, name, tier)

        node = self.nodes[node_id]
        if node.tier == "instance" and tier == "general":
            self.nodes[node_id] = node.replace(tier="general")
        return node_id

    def _add_node(self, person: str, name: str, tier: Tier) -> str:
        self.issued += 1
        node = Node(id=f"n{self.issued}", name=name, tier=tier, person=person)
        self.nodes[node.id] = node
        self._index_node(node)
        return node.id

    def _merge_with_nearest(self, person: str, name: str, is_concept: bool) -> str | None:
        """Make a new name an alias of the nearest node; return its id, or None if none is near."""
        node = self._nearest_node(person, name, is_concept)
        if node is None:
            return None
        node = node.replace(aliases=(*node.aliases, name))
        self.nodes[node.id] = node
        self._index_node(node)
        return node.id

    def _nearest_node(self, person: str, name: str, is_concept: bool) -> Node | None:
        """Return the person's node whose name is nearest to a new one and holds the same numbers.

        None is returned if no cosine reaches the threshold.
        """
        candidates: list[Node] = []
        for node in self.nodes.values():
            is_same_tier = node.tier != "user" and (node.tier == "abstract") == is_concept
            if node.person == person and is_same_tier and node.name in self._vectors:
                candidates.append(node)
        if not candidates or name not in self._vectors:
            return None

        # In double precision, so that a pair of equal texts reaches a threshold of 1.
        rows = np.stack([self._vectors[node.name] for node in candidates]).astype(np.float64)
        cosines = rows @ self._vectors[name].astype(np.float64)
        numbers = _DIGITS.findall(name)
        for position in np.argsort(-cosines, kind="stable"):
            if cosines[position] < self._min_cosine - _ROUNDING:
                return None
            if _DIGITS.findall(candidates[position].name) == numbers:
                return candidates[position]
        return None

    def _add_evidence(self, event_id: str, unit: Evidence) -> None:
        """Note that a unit is evidence of an event."""
        event = self.nodes[event_id]
        if unit.id not in event.evidence:
            self.nodes[event_id] = event.replace(evidence=(*event.evidence, unit.id))

    def _add_scoring_evidence(self, concept_id: str, unit: Evidence) -> None:
        """Note that a unit is evidence of the lowest concept of a path: +1 to score(v)."""
        concept = self.nodes[concept_id]
        if unit.id not in concept.evidence:
            self.nodes[concept_id] = concept.replace(
                evidence=(*concept.evidence, unit.id),
                fresh=(*concept.fresh, unit.id),
                score=concept.score + 1,
            )

    def _add_mention(self, source_id: str, target_id: str, unit: Evidence, step: EventStep) -> None:
        """Note what a unit says on an event edge: +1 to mentions(e), once per unit."""
        relation = self._find_or_add_relation(source_id, target_id)
        last = relation.mentions[-1] if relation.mentions else None
        if last is not None and last.evidence == unit.id:
            conclusions = _union_of_conclusions(last.conclusions, step.conclusions)
            mentions = (*relation.mentions[:-1], last.replace(conclusions=conclusions))
            self.relations[relation.id] = relation.replace(mentions=mentions)
            return

        label = one_line(step.label) or unit.fact
        mention = Mention(evidence=unit.id, label=label, conclusions=step.conclusions)
        self.relations[relation.id] = relation.replace(
            mentions=(*relation.mentions, mention), count=relation.count + 1
        )

    def _find_or_add_relation(self, source_id: str, target_id: str) -> Relation:
        relation_id = self._relation_ids.get((source_id, target_id))
        if relation_id is not None:
            return self.relations[relation_id]

        self.issued += 1
        relation = Relation(id=f"r{self.issued}", source=source_id, target=target_id)
        self._relation_ids[source_id, target_id] = relation.id
        self.relations[relation.id] = relation
        return relation


def _union_of_conclusions(
    first: tuple[int, ...] | None, second: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return the positions in either of two links to conclusions; None stands for all."""
    if first is None or second is None:
        return None
    return tuple(sorted({*first, *second}))


def stems_of(name: str) -> Stems:
    """Return a name as the stems of its words, without case, punctuation and function words.

    A name of function words alone keeps them.
    """
    stems = tuple(tokens(name))
    return stems or tuple(name.casefold().split())
