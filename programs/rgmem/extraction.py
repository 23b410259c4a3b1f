"""RGMem's extraction: from a session to units of evidence and their places in the graph (Eq. 4 and 5).

A segment becomes one unit of evidence, whoever speaks. Its paths are extracted for each person it says something of.

Class edges never close a cycle: one that would is refused; the path continues from the node it led to. A base concept
hangs on the user alone. A unit counts once on an event edge, and once on the lowest concept of its paths.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

import numpy as np

from ...memory.search.tokens import tokens
from ...records import Item, Turn, format_time
from ...signatures.rgmem import DrawnConclusion, EntityPath, PathSegment, SegmentLabel
from ...text import one_line
from ..writer import ExtractionFailed
from ..component import CallPredictor
from .memory import USER, ClassEdge, Conclusion, Evidence, GraphMemory, Mention, Node, Relation, Tier, new_graph

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class GraphPath:
    """One extracted path."""

    base: str
    """Name of a base concept."""
    concepts: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Labels of the edges that lead to the events; "" or missing for one without."""
    linked: tuple[tuple[int, ...] | None, ...] = ()
    """Of each such edge which conclusions of the unit are about it, as in `Mention`; all of them if missing."""
    person: str = USER
    """Whose graph it belongs to."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names below the base."""
        return (*self.concepts, *self.events)


def segments(item: Item, most: int) -> list[list[Turn]]:
    """f_seg: the turns with words in as few pieces of at most `most` as there can be, equal in length up to one."""
    turns = list(item.spoken)
    pieces = -(-len(turns) // most)
    cuts = [-(-len(turns) * n // pieces) for n in range(pieces + 1)] if pieces else []
    return [turns[a:b] for a, b in pairwise(cuts)]


def synthesized(
    turns: Sequence[Turn], time: datetime | None, ask: CallPredictor, users: str = USER, people: Sequence[str] = ()
) -> Evidence | ExtractionFailed | None:
    """Turn one segment into a unit of evidence without an id (f_synth).

    Args:
        turns: The segment.
        time: When it was said, for turns without a time of their own.
        ask: Calls a predictor.
        users: What the prompt calls those whom conclusions are drawn about.
        people: The speakers whom a conclusion may be attributed to; empty where there is one graph for all.

    Returns:
        The unit, None where there is nothing in it worth keeping, or what is lost where no usable answer came.
    """
    ids = tuple(turn.id for turn in turns)
    said = ask("synthesize", users=users, dialogue="\n".join(turn.line(time) for turn in turns))
    if said is None:
        return ExtractionFailed(frozenset(ids))
    conclusions: list[DrawnConclusion] = said.conclusions or []
    drawn = [_conclusion(one, turns, people) for one in conclusions if one.text.strip()]
    fact = one_line(said.fact)
    if not fact and not drawn:
        return None
    unique = {conclusion.text.casefold(): conclusion for conclusion in reversed(drawn)}
    kept, when = tuple(reversed(unique.values())), turns[0].time or time
    return Evidence(id="", step=0, fact=fact, conclusions=kept, time=when, sources=ids)


def placed(
    unit: Evidence, ask: CallPredictor, person: str = USER, user: str | None = None, linked: bool = True
) -> tuple[GraphPath, ...]:
    """Return the labelled paths of a unit in one person's graph (f_extract); none where the model gave none.

    An edge takes the conclusions that its label names; all about the person, where no label names any, or without
    `linked`. `user` is what the prompts call the person, if that is not the name.
    """
    user = user or person
    said = ask("extract_paths", user=user, fragment=fragment(unit, person))
    drawn: list[EntityPath] = said.entity_paths or [] if said else []
    paths = tuple(path for path in dict.fromkeys(_path(one, person) for one in drawn) if path.events)
    if not paths:
        return ()
    parts = _segments(paths, user)
    segments = [part for row in parts for part in row]
    labelled = ask("label", user=user, fragment=fragment(unit, person, numbered=True), segments=segments)
    edges: list[SegmentLabel] = labelled.edge_labels or [] if labelled else []
    by_id = {one.segment_id.strip("[]() "): one for one in edges}
    links = {id: _linked(one.conclusions, unit, person) for id, one in by_id.items()}
    named = linked and any(links.values())
    ids = [[part.segment_id for part in row] for row in parts]
    return tuple(
        replace(
            path,
            labels=tuple(by_id[id].label if id in by_id else "" for id in row),
            linked=tuple(links.get(id, ()) if named else None for id in row),
        )
        for path, row in zip(paths, ids, strict=True)
    )


def people_in(unit: Evidence, people: Sequence[str]) -> list[str]:
    """Return the people whose graphs a unit belongs in: those it draws conclusions about, or all if it draws none."""
    named = {conclusion.person for conclusion in unit.conclusions}
    if not named or "" in named:
        return list(people)
    return [person for person in people if person in named]


def fragment(unit: Evidence, person: str = USER, numbered: bool = False) -> str:
    """Return a unit as prompts show it: the fact, then the conclusions about a person.

    A conclusion begins with the turns it rests on; before them stands its id c1, c2, ... if they are `numbered`.
    """
    when = f"({format_time(unit.time)}) " if unit.time else ""
    lines = [one_line(f"{when}{unit.fact}")] if unit.fact else []
    for position in unit.conclusions_about(person):
        ids = (f"c{position + 1}",) if numbered else ()
        lines.append(conclusion_line(unit.conclusions[position], unit.time, *ids))
    return "\n".join(lines)


def conclusion_line(conclusion: Conclusion, time: datetime | None, *ids: str) -> str:
    """`[D1:3] (8 May 2023, Monday) Ann likes jazz`; the turn ids also show an optimizer which step saw the evidence."""
    when = f"({format_time(time)}) " if time else ""
    return one_line(f"[{', '.join((*ids, *conclusion.sources))}] {when}{conclusion.text}")


def _linked(named: Sequence[str], unit: Evidence, person: str) -> tuple[int, ...]:
    """Return the positions of a person's conclusions that are named, by their ids or by those of their turns."""
    ids = {id.strip("[]() ") for id in named}
    positions: list[int] = []
    for position in unit.conclusions_about(person):
        if f"c{position + 1}" in ids or ids.intersection(unit.conclusions[position].sources):
            positions.append(position)
    return tuple(positions)


def _conclusion(drawn: DrawnConclusion, turns: Sequence[Turn], people: Sequence[str]) -> Conclusion:
    ids = [turn.id for turn in turns]
    named = [id.strip("[]() ") for id in drawn.turn_ids]
    sources = tuple(id for id in dict.fromkeys(named) if id in ids) or tuple(ids)
    return Conclusion(
        text=one_line(drawn.text),
        high=drawn.relevance == "high",
        person=_person_of(drawn, [turn.speaker for turn in turns if turn.id in sources], people),
        sources=sources,
    )


def _person_of(drawn: DrawnConclusion, speakers: Sequence[str], people: Sequence[str]) -> str:
    """Return whom a conclusion is about: the person it names, else the one who said all it rests on, else nobody."""
    by_name = {_bare_name(person): person for person in people}
    named = by_name.get(_bare_name(drawn.speaker))
    if named is not None:
        return named
    only_speaker = speakers[0] if len(set(speakers)) == 1 else ""
    return only_speaker if only_speaker in people else ""


def _bare_name(name: str) -> str:
    """Return a name without the brackets that a model may put around it, or that the name itself may end in."""
    return name.strip("[]() ").casefold()


def _path(path: EntityPath, person: str) -> GraphPath:
    both = (path.concepts, path.events)
    concepts, events = (tuple(one_line(name) for name in names if name.strip()) for names in both)
    return GraphPath(path.base, concepts, events, person=person)


def _segments(paths: Sequence[GraphPath], user: str) -> list[list[PathSegment]]:
    """The segments that lead to an event, by path, numbered through all of them; equal ones count each."""
    number = itertools.count(1)
    return [
        [
            PathSegment(segment_id=f"s{next(number)}", source=source, target=target, path=whole)
            for source, target in pairwise([path.concepts[-1] if path.concepts else path.base, *path.events])
        ]
        for path in paths
        for whole in [" > ".join([user.partition(" (")[0], path.base, *path.names])]
    ]


def add_units(
    memory: GraphMemory,
    units: Sequence[tuple[Evidence, Sequence[GraphPath]]],
    vectors: Mapping[str, np.ndarray] | None = None,
    min_cosine: float = 0.85,
) -> GraphMemory:
    """The memory with further units, as if they had come one by one.

    A path whose base is none is left out, and so is one without an event. Two names are one node when their stems
    without function words are the same ("Running", "to run"), or when the cosine of their embeddings reaches the
    threshold and they hold the same numbers ("Marathon 2022" is not "Marathon 2023"): merging is aggressive, as in the
    paper (appendix C.7), which gives no rule. Without vectors, those of the names of nodes and paths, only equal names
    merge.
    """
    draft = _Draft(memory, vectors or {}, min_cosine)
    for evidence, paths in units:
        draft.evidence = evidence
        for path in paths:
            draft.walk(path)
    return memory.replace(
        evidence={**memory.evidence, **{evidence.id: evidence for evidence, _ in units}},
        nodes=draft.nodes,
        classes=tuple(draft.classes),
        relations=draft.relations,
        issued=draft.issued,
    )


class _Draft:
    """The mutable state of one `add_units`."""

    evidence: Evidence

    def __init__(self, memory: GraphMemory, vectors: Mapping[str, np.ndarray], min_cosine: float) -> None:
        self.nodes = dict(memory.nodes)
        self.relations = dict(memory.relations)
        self.classes = list(memory.classes)
        self.issued = memory.issued
        self._vectors, self._min = vectors, min_cosine
        self._exact: dict[tuple[str, bool, tuple[str, ...]], str] = {}
        """The nodes of names and aliases, by person; concepts and events apart."""
        for node in self.nodes.values():
            self._name(node)
        self._roots = dict(memory.roots)
        root_ids = set(self._roots.values())
        self._bases: dict[tuple[str, tuple[str, ...]], str] = {}
        """The base concepts by person and name."""
        self._above: dict[str, set[str]] = {id: set() for id in self.nodes}
        for edge in memory.classes:
            self._above[edge.child].add(edge.parent)
            if edge.parent in root_ids:
                self._name_base(self.nodes[edge.child])
        self._edges = {(relation.source, relation.target): relation.id for relation in self.relations.values()}

    def walk(self, path: GraphPath) -> None:
        self._begin_graph(path.person)
        at = self._bases.get((path.person, normal(path.base)))
        rows = itertools.zip_longest(path.events, path.labels, path.linked)
        events = [(name, label or "", linked) for name, label, linked in rows if name and name.strip()]
        if at is None or not events:
            return
        for name in path.concepts:
            # Models like to begin a path with its root.
            if name.strip() and normal(name) not in (normal(USER), normal(path.person)):
                at = self._descend(at, self._node(path.person, name, "abstract"))
        self._rest_on(at, lowest=True)
        for n, (name, label, linked) in enumerate(events):
            target = self._node(path.person, name, "general" if n + 1 < len(events) else "instance")
            if target != at:
                self._mention(at, target, label, linked)
                self._rest_on(target)
            at = target

    def _begin_graph(self, person: str) -> None:
        """Add the root and the base concepts of a person who has no graph yet."""
        if person in self._roots:
            return
        nodes, edges = new_graph(person, number=len(self._roots))
        self._roots[person] = nodes[0].id
        self.classes += edges
        for node in nodes:
            self.nodes[node.id] = node
            self._above[node.id] = set()
            self._name(node)
        for edge in edges:
            self._above[edge.child].add(edge.parent)
            self._name_base(self.nodes[edge.child])

    def _name_base(self, node: Node) -> None:
        self._bases[(node.person, normal(node.name))] = node.id

    def _descend(self, parent: str, child: str) -> str:
        """Joins two concepts, unless joined already or closing a cycle; the path continues from the lower one."""
        known = child == parent or parent in self._above[child]
        if not known and child not in self._bases.values() and child not in self._ancestors(parent):
            self._above[child].add(parent)
            self.classes.append(ClassEdge(parent=parent, child=child))
        return child

    def _ancestors(self, id: str) -> set[str]:
        found: set[str] = set()
        queue = [id]
        while queue:
            for parent in self._above[queue.pop()] - found:
                found.add(parent)
                queue.append(parent)
        return found

    def _node(self, person: str, name: str, tier: Tier) -> str:
        name, abstract = one_line(name), tier == "abstract"
        id = self._exact.get((person, abstract, normal(name)))
        near = None if id else self._near(person, name, abstract)
        id = id or near
        if not id:
            self.issued += 1
            id = f"n{self.issued}"
            self.nodes[id] = Node(id=id, name=name, tier=tier, person=person)
            self._above[id] = set()
        node = self.nodes[id]
        higher = tier if (node.tier, tier) == ("instance", "general") else node.tier
        self.nodes[id] = node.replace(tier=higher, aliases=(*node.aliases, name) if near else node.aliases)
        self._name(self.nodes[id])
        return id

    def _name(self, node: Node) -> None:
        for name in (node.name, *node.aliases) if node.tier != "user" else ():
            self._exact.setdefault((node.person, node.tier == "abstract", normal(name)), node.id)

    def _near(self, person: str, name: str, abstract: bool) -> str | None:
        """Return the person's node whose name is nearest to a new one and holds the same numbers."""
        own = [node for node in self.nodes.values() if node.person == person and node.tier != "user"]
        alike = [node for node in own if (node.tier == "abstract") is abstract]
        others = [node for node in alike if node.name in self._vectors]
        if not others or name not in self._vectors:
            return None
        # In double precision, so that a pair of equal texts reaches a threshold of 1.
        rows = np.stack([self._vectors[other.name] for other in others]).astype(np.float64)
        cosines = rows @ self._vectors[name].astype(np.float64)
        near = (n for n in np.argsort(-cosines, kind="stable") if cosines[n] >= self._min - 1e-6)
        return next((others[n].id for n in near if _DIGITS.findall(others[n].name) == _DIGITS.findall(name)), None)

    def _rest_on(self, id: str, lowest: bool = False) -> None:
        """The unit is evidence of a node; new evidence of the path's lowest concept: +1."""
        node, unit = self.nodes[id], self.evidence.id
        if unit not in node.evidence:
            new = {"fresh": (*node.fresh, unit), "score": node.score + 1} if lowest else {}
            self.nodes[id] = node.replace(evidence=(*node.evidence, unit), **new)

    def _mention(self, source: str, target: str, label: str, linked: tuple[int, ...] | None) -> None:
        id = self._edges.get((source, target))
        if id is None:
            self.issued += 1
            id = self._edges[(source, target)] = f"r{self.issued}"
            self.relations[id] = Relation(id=id, source=source, target=target)
        relation, unit = self.relations[id], self.evidence.id
        last = relation.mentions[-1] if relation.mentions else None
        if last and last.evidence == unit:
            whole = last.conclusions is None or linked is None
            both = None if whole else tuple(sorted({*(last.conclusions or ()), *(linked or ())}))
            self.relations[id] = relation.replace(mentions=(*relation.mentions[:-1], last.replace(conclusions=both)))
            return
        mention = Mention(evidence=unit, label=one_line(label) or self.evidence.fact, conclusions=linked)
        self.relations[id] = relation.replace(mentions=(*relation.mentions, mention), count=relation.count + 1)


def normal(name: str) -> tuple[str, ...]:
    """A name as the stems of its words, without case, punctuation and function words (with them if it has no other)."""
    return tuple(tokens(name)) or tuple(name.casefold().split())
