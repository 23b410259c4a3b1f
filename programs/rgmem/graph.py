"""RGMem's graph, and how units of evidence are added to it (Eq. 5; algorithm 1, lines 13 and 14).

    unit of evidence, and its paths ── add_units ──> graph

A path leads from a base concept, one of the fixed topics right below the user, over narrower
concepts to events. Its names become nodes, or mean nodes that are there already.

Class edges, from a concept to a narrower one, never close a cycle: an edge that would is refused,
and the path continues from the node that it led to. A base concept hangs on the user alone. A unit
counts once on an event edge, and once on the lowest concept of its paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from ...memory.search.tokens import tokens
from ...text import one_line
from .memory import (
    USER,
    ClassEdge,
    Evidence,
    GraphMemory,
    Mention,
    Node,
    Relation,
    Tier,
    new_graph,
)

_DIGITS = re.compile(r"\d+")
_ROUNDING = 1e-6
"""How far a cosine may fall below its threshold by rounding alone."""


class EventStep(NamedTuple):
    """One step of a path: an event, and what a unit of evidence says on the edge to it."""

    event: str
    label: str
    conclusions: tuple[int, ...] | None
    """Positions of the unit's conclusions that are about the edge; None stands for all."""


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
        """Return the events of the path, each with what is said on the edge that leads to it.

        This is a label, and which conclusions are about the edge. Events without a name are left
        out.
        """
        steps: list[EventStep] = []
        # `linked` holds the conclusions for each edge. There may be fewer labels and links than
        # events: `zip_longest` fills up with None.
        for event, label, conclusions in zip_longest(self.events, self.labels, self.linked):
            if event and event.strip():
                steps.append(EventStep(event, label or "", conclusions))
        return steps


def add_units(
    memory: GraphMemory,
    units: Sequence[tuple[Evidence, Sequence[GraphPath]]],
    vectors: Mapping[str, np.ndarray] | None = None,
    min_cosine: float = 0.85,
) -> GraphMemory:
    """Return the memory with more evidence in it, and with a larger graph of topics and events.

    A unit of evidence is what one part of a conversation says. It has paths, which lead from a
    fixed topic down to an event; a path that lacks either is left out. Names become one node if
    their words have the same stems ("Running", "to run"), or if their embeddings are similar and
    they hold the same numbers ("Marathon 2022" is not "Marathon 2023").

    This is algorithm 1, lines 10, 13 and 14; the rule for names is ours (appendix C.7 has none).

    Args:
        memory: The memory so far.
        units: Units of evidence with ids, each with its paths.
        vectors: Embeddings of the names of nodes and paths, of length 1. Without them only names
            with the same stems merge.
        min_cosine: Lowest cosine of two names that are one node.
    """
    # A memory cannot be changed. So a draft, which can, starts as a copy of the graph, adds the
    # paths to it, and decides which names become one node.
    draft = _GraphDraft(memory, vectors or {}, min_cosine)
    evidence = dict(memory.evidence)
    for unit, paths in units:
        evidence[unit.id] = unit
        for path in paths:
            draft.add_path(unit, path)

    # `classes` are edges between topics, `relations` are edges to events. `issued` counts the ids
    # given to nodes and edges so far.
    return memory.replace(
        evidence=evidence,
        nodes=draft.nodes,
        classes=tuple(draft.classes),
        relations=draft.relations,
        issued=draft.issued,
    )


Stems = tuple[str, ...]
"""A name as `stems_of` returns it."""


class _BaseKey(NamedTuple):
    """What a base concept is looked up by."""

    person: str
    stems: Stems


class _NameKey(NamedTuple):
    """What a node is looked up by: a concept and an event of the same name are two nodes."""

    person: str
    is_concept: bool
    stems: Stems


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
        self._root_ids = memory.roots
        """Ids of roots by person."""
        self._base_ids: dict[_BaseKey, str] = {}
        self._ids_by_name: dict[_NameKey, str] = {}
        """Ids of nodes by their names and aliases."""
        self._parent_ids: dict[str, set[str]] = {}
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
        """Add to the graph a path from a unit of evidence: its topics, its events and its edges.

        A path leads from a fixed topic (base concept) over narrower topics to events. A path with
        an unknown base, or without events, is left out.
        """
        self._ensure_graph_of(path.person)
        base_id = self._base_ids.get(_BaseKey(path.person, stems_of(path.base)))
        if base_id is None or not path.event_steps():
            return

        lowest_topic_id = self._add_concepts(base_id, path)
        self._add_evidence_of_concept(lowest_topic_id, unit)
        self._add_events(lowest_topic_id, path, unit)

    def _add_events(self, lowest_topic_id: str, path: GraphPath, unit: Evidence) -> None:
        """Add the events of a path, and the edges from its lowest topic to the events.

        The first edge leads from the topic to the first event, the next from there to the second
        event, and so on. What the unit of evidence says on an edge is noted there as a mention.
        """
        steps = path.event_steps()
        # Where the edge to the next event begins.
        source_id = lowest_topic_id
        for number, step in enumerate(steps, 1):
            # The last event of a path is an instance, such as one race. The events before it are
            # general: kinds of events, such as races.
            tier: Tier = "instance" if number == len(steps) else "general"
            event_id = self._find_or_add_node(path.person, step.event, tier)
            # Successive names that mean the same event need no edge between them.
            if event_id != source_id:
                self._add_mention(source_id, event_id, unit, step)
                self._add_evidence_of_event(event_id, unit)
            source_id = event_id

    def _add_concepts(self, base_id: str, path: GraphPath) -> str:
        """Add the topics (concepts) of a path below its base, from broad to narrow.

        Returns:
            The id of the lowest topic of the path; that of the base if it names no other.
        """
        # Models often repeat the person in a path. The person is the root, above all topics.
        root_names = (stems_of(USER), stems_of(path.person))
        parent_id = base_id
        for name in path.concepts:
            if not name.strip() or stems_of(name) in root_names:
                continue
            child_id = self._find_or_add_node(path.person, name, "abstract")
            self._join_concepts(parent_id, child_id)
            parent_id = child_id
        return parent_id

    def _ensure_graph_of(self, person: str) -> None:
        """Add the root and the fixed topics (base concepts) of a person who has no graph yet."""
        if person in self._root_ids:
            return

        nodes, edges = new_graph(person, number=len(self._root_ids))
        root = nodes[0]
        self._root_ids[person] = root.id
        self.classes.extend(edges)
        for node in nodes:
            self.nodes[node.id] = node
            self._index_node(node)
        for edge in edges:
            self._index_class_edge(edge)

    def _index_node(self, node: Node) -> None:
        """Make a node findable by its name and its aliases.

        The root of a graph is left out: no name in a path may mean it.
        """
        self._parent_ids.setdefault(node.id, set())
        if node.tier == "user":
            return

        is_concept = node.tier == "abstract"
        for name in (node.name, *node.aliases):
            key = _NameKey(node.person, is_concept, stems_of(name))
            # Of two nodes with the same name, the older one is meant.
            self._ids_by_name.setdefault(key, node.id)

    def _index_class_edge(self, edge: ClassEdge) -> None:
        """Note that an edge leads from a topic to a narrower one, to find the topics above later.

        A topic right below a root is a fixed topic (base concept), and is noted by its name as
        well.
        """
        self._parent_ids[edge.child].add(edge.parent)
        if edge.parent in self._root_ids.values():
            base = self.nodes[edge.child]
            self._base_ids[_BaseKey(base.person, stems_of(base.name))] = base.id

    def _join_concepts(self, parent_id: str, child_id: str) -> None:
        """Add an edge from a topic (concept) to a narrower one, unless it is there or not allowed.

        An edge must not close a cycle. The fixed topics (base concepts) stand right below the root
        of the graph and nowhere else, so no further edge may lead to them.
        """
        is_joined = parent_id in self._parent_ids[child_id]
        is_base = child_id in self._base_ids.values()
        if is_joined or is_base:
            return

        closes_cycle = child_id == parent_id or child_id in self._ancestors(parent_id)
        if closes_cycle:
            return

        self._parent_ids[child_id].add(parent_id)
        self.classes.append(ClassEdge(parent=parent_id, child=child_id))

    def _ancestors(self, node_id: str) -> set[str]:
        """Return the ids of all topics (concepts) above a node."""
        ancestors: set[str] = set()
        queue = [node_id]
        while queue:
            new_parents = self._parent_ids[queue.pop()] - ancestors
            ancestors.update(new_parents)
            queue.extend(new_parents)
        return ancestors

    def _find_or_add_node(self, person: str, name: str, tier: Tier) -> str:
        """Return the id of the node that a name means in a person's graph; add it if it is new.

        A name means a node if the stems of their words are the same, or else if their embeddings
        are similar enough.
        """
        name = one_line(name)
        is_concept = tier == "abstract"
        node_id = self._ids_by_name.get(_NameKey(person, is_concept, stems_of(name)))
        if node_id is None:
            # None is returned if there is no node with a similar name.
            node_id = self._add_alias_of_similar_node(person, name, is_concept)
        if node_id is None:
            node_id = self._add_node(person, name, tier)

        # An event is an instance, such as one race, if it ends all its paths. In this path another
        # event follows it, so from now on it counts as general: a kind of events, such as races.
        node = self.nodes[node_id]
        if node.tier == "instance" and tier == "general":
            self.nodes[node_id] = node.replace(tier="general")
        return node_id

    def _add_node(self, person: str, name: str, tier: Tier) -> str:
        """Add a node with the next free id, and return the id."""
        self.issued += 1
        node = Node(id=f"n{self.issued}", name=name, tier=tier, person=person)
        self.nodes[node.id] = node
        self._index_node(node)
        return node.id

    def _add_alias_of_similar_node(self, person: str, name: str, is_concept: bool) -> str | None:
        """Make a new name an alias of the node with the most similar name.

        Returns:
            The id of the node. If no node has a name that is similar enough, nothing is changed and
            None is returned.
        """
        node = self._nearest_node(person, name, is_concept)
        if node is None:
            return None

        node = node.replace(aliases=(*node.aliases, name))
        self.nodes[node.id] = node
        self._index_node(node)
        return node.id

    def _nearest_node(self, person: str, name: str, is_concept: bool) -> Node | None:
        """Return the topic or event of a person with the name most similar to a new name.

        The names must hold the same numbers: "Marathon 2022" is not "Marathon 2023". If no such
        name has a cosine of at least `min_cosine`, return None.
        """
        candidates = self._nodes_with_vectors(person, is_concept)
        if not candidates or name not in self._vectors:
            return None

        # Vectors have length 1, so their products are cosines. In double precision the product of
        # a vector with itself reaches a threshold of 1.
        rows = np.stack([self._vectors[node.name] for node in candidates]).astype(np.float64)
        cosines = rows @ self._vectors[name].astype(np.float64)

        numbers = _DIGITS.findall(name)
        for position in np.argsort(-cosines, kind="stable"):
            # All further candidates are less similar still.
            if cosines[position] < self._min_cosine - _ROUNDING:
                return None
            if _DIGITS.findall(candidates[position].name) == numbers:
                return candidates[position]
        return None

    def _nodes_with_vectors(self, person: str, is_concept: bool) -> list[Node]:
        """Return the nodes of a person's graph with names that have an embedding.

        Args:
            person: Whose graph it is.
            is_concept: Whether topics (concepts) are returned; if not, events are.
        """
        tiers: tuple[Tier, ...] = ("abstract",)
        if not is_concept:
            # An event is a kind of events, such as races, or an instance, such as one race.
            tiers = ("general", "instance")

        nodes: list[Node] = []
        for node in self.nodes.values():
            if node.person == person and node.tier in tiers and node.name in self._vectors:
                nodes.append(node)
        return nodes

    def _add_evidence_of_event(self, event_id: str, unit: Evidence) -> None:
        """Note once that an event occurs in a unit of evidence, a part of a conversation."""
        event = self.nodes[event_id]
        if unit.id not in event.evidence:
            self.nodes[event_id] = event.replace(evidence=(*event.evidence, unit.id))

    def _add_evidence_of_concept(self, concept_id: str, unit: Evidence) -> None:
        """Note once that a unit of evidence, a part of a conversation, is about a topic (concept).

        The unit waits in `fresh` until the summary of the topic is renewed, which happens when
        `score` is high enough.
        """
        concept = self.nodes[concept_id]
        if unit.id in concept.evidence:
            return
        self.nodes[concept_id] = concept.replace(
            evidence=(*concept.evidence, unit.id),
            fresh=(*concept.fresh, unit.id),
            score=concept.score + 1,
        )

    def _add_mention(self, source_id: str, target_id: str, unit: Evidence, step: EventStep) -> None:
        """Note on the edge to an event what a unit of evidence says there, as a mention.

        A unit has one mention on an edge. If another of its paths takes the same edge, the mention
        gets the conclusions of that path too, and is not counted again.
        """
        relation = self._find_or_add_relation(source_id, target_id)

        # Units are added one after another, so only the last mention can be of this unit.
        last_mention = relation.mentions[-1] if relation.mentions else None
        if last_mention is not None and last_mention.evidence == unit.id:
            conclusions = _union_of_conclusions(last_mention.conclusions, step.conclusions)
            widened_mention = last_mention.replace(conclusions=conclusions)
            mentions = (*relation.mentions[:-1], widened_mention)
            self.relations[relation.id] = relation.replace(mentions=mentions)
            return

        # Where the model gave no label, the fact of the unit says what happened.
        label = one_line(step.label) or unit.fact
        new_mention = Mention(evidence=unit.id, label=label, conclusions=step.conclusions)
        # `count`: how many mentions came after the summary of the edge was written.
        self.relations[relation.id] = relation.replace(
            mentions=(*relation.mentions, new_mention), count=relation.count + 1
        )

    def _find_or_add_relation(self, source_id: str, target_id: str) -> Relation:
        """Return the edge (relation) from a topic or event to an event; add it if it is new."""
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
    """Return the positions of the conclusions that are in at least one of two selections.

    A selection of None stands for all conclusions of the unit, and so does its union with another.
    """
    if first is None or second is None:
        return None
    return tuple(sorted({*first, *second}))


def stems_of(name: str) -> Stems:
    """Return the stems of a name's words, by which names are compared.

    Case, punctuation and function words do not count, so "Running" and "to run" are equal. A name
    of function words alone, such as "the", keeps its words.
    """
    stems = tuple(tokens(name))
    if not stems:
        return tuple(name.casefold().split())
    return stems
