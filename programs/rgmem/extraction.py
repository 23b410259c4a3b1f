"""From a session to units of evidence, and to their places in the graph (Eq. 4 and 5; algorithm 1, lines 10 to 14).

    session ── segments ──> synthesize ──> fact, conclusions ──> extract ──> paths ──> label ──> labelled paths
    GraphMemory ── taken_in(units with paths) ──> GraphMemory      nodes, edges, counters; the old one is unchanged

Segmentation is by rule: pieces of equal length, of at most `segment_turns` turns. Drafts need no memory, so all
segments of all sessions are drafted at once; of one segment the three calls follow one another.

A path is a base concept, concepts and events. Two names are one node when their stems without function words are the
same ("Running", "to run"), or when the cosine of their embeddings reaches the threshold and they hold the same numbers
("Marathon 2022" is not "Marathon 2023"): merging is aggressive, as in the paper (appendix C.7), which gives no rule.
Class edges never close a cycle: one that would is refused and counted; the path continues from the node it led to. A
base concept hangs on the user alone. A unit counts once on an event edge, and once on the lowest concept of its paths.

Example:
    >>> from mempiler.programs.rgmem.extraction import GraphPath, taken_in
    >>> from mempiler.programs.rgmem.memory import Evidence, GraphMemory
    >>> path = GraphPath("Dining", events=("Steak",), labels=("user avoids eating due to allergy",))
    >>> memory = taken_in(GraphMemory(), [(Evidence(id="e1", step=1, fact="..."), [path])])
    >>> memory.relations["r2"].count
    1

Limits: nothing leaves the graph; a wrong path stays, outweighed by later ones. A cosine belongs to its embedder: the
offline one joins "Pottery class" with "Pottery classes", never "Movies" with "Films".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np

from ...memory.words import tokens
from ...records import Item, Turn, format_time, one_line
from ...signatures.rgmem import DrawnConclusion, EntityPath, PathSegment, SegmentLabel
from ..method import Lost
from ..part import Ask
from .memory import USER, ClassEdge, Conclusion, Evidence, GraphMemory, Mention, Node, Relation, Tier

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

    @property
    def names(self) -> tuple[str, ...]:
        """All names below the base."""
        return (*self.concepts, *self.events)


@dataclass(frozen=True)
class Draft:
    """One unit that has no id yet, with its paths."""

    fact: str
    conclusions: tuple[Conclusion, ...] = ()
    time: datetime | None = None
    sources: tuple[str, ...] = ()
    paths: tuple[GraphPath, ...] = ()

    def evidence(self, id: str, step: int) -> Evidence:
        """The unit under an id."""
        return Evidence(
            id=id, step=step, fact=self.fact, conclusions=self.conclusions, time=self.time, sources=self.sources
        )


def segments(item: Item, most: int) -> list[list[Turn]]:
    """f_seg: the turns with words in as few pieces of at most `most` as there can be, equal in length up to one."""
    turns = [turn for turn in item.turns if turn.content.strip()]
    pieces = -(-len(turns) // most)
    cuts = [-(-len(turns) * n // pieces) for n in range(pieces + 1)] if pieces else []
    return [turns[a:b] for a, b in pairwise(cuts)]


def synthesized(turns: Sequence[Turn], time: datetime | None, ask: Ask) -> Draft | Lost | None:
    """f_synth: one segment as a unit; None where there is nothing in it worth keeping."""
    said = ask("synthesize", dialogue="\n".join(turn.line(time) for turn in turns))
    if said is None:
        return Lost(frozenset(turn.id for turn in turns))
    ids = [turn.id for turn in turns]
    conclusions: list[DrawnConclusion] = said.conclusions or []
    drawn = [_conclusion(one, ids) for one in conclusions if one.text.strip()]
    fact = " ".join(str(said.fact or "").split())
    if not fact and not drawn:
        return None
    unique = {conclusion.text.casefold(): conclusion for conclusion in reversed(drawn)}
    return Draft(fact, tuple(reversed(unique.values())), turns[0].time or time, tuple(ids))


def placed(draft: Draft, ask: Ask) -> Draft:
    """f_extract: the unit with its labelled paths; without any where the model gave none."""
    text = fragment(draft)
    said = ask("extract", fragment=text)
    drawn: list[EntityPath] = said.entity_paths or [] if said else []
    paths = tuple(path for path in dict.fromkeys(map(_path, drawn)) if path.events)
    if not paths:
        return draft
    parts = _segments(paths)
    labelled = ask("label", fragment=text, segments=[part for row in parts for part in row])
    edges: list[SegmentLabel] = labelled.edge_labels or [] if labelled else []
    labels = {one.segment_id.strip("[]() "): one.label for one in edges}
    return replace(
        draft,
        paths=tuple(
            replace(path, labels=tuple(labels.get(part.segment_id, "") for part in row))
            for path, row in zip(paths, parts, strict=True)
        ),
    )


def fragment(draft: Draft) -> str:
    """A unit as prompts show it: the fact, then the conclusions with the turns they rest on."""
    when = f"({format_time(draft.time)}) " if draft.time else ""
    lines = [one_line(f"{when}{draft.fact}")] if draft.fact else []
    return "\n".join([*lines, *(conclusion_line(one, draft.time) for one in draft.conclusions)])


def conclusion_line(conclusion: Conclusion, time: datetime | None) -> str:
    """`[D1:3] (8 May 2023, Monday) Ann likes jazz`; the turn ids also show an optimizer which step saw the evidence."""
    when = f"({format_time(time)}) " if time else ""
    return one_line(f"[{', '.join(conclusion.sources)}] {when}{conclusion.text}")


def _conclusion(drawn: DrawnConclusion, ids: Sequence[str]) -> Conclusion:
    named = [id.strip("[]() ") for id in drawn.turn_ids]
    sources = tuple(id for id in dict.fromkeys(named) if id in ids) or tuple(ids)
    return Conclusion(text=" ".join(drawn.text.split()), high=drawn.relevance == "high", sources=sources)


def _path(path: EntityPath) -> GraphPath:
    concepts = tuple(" ".join(name.split()) for name in path.concepts if name.strip())
    return GraphPath(path.base, concepts, tuple(" ".join(name.split()) for name in path.events if name.strip()))


def _segments(paths: Sequence[GraphPath]) -> list[list[PathSegment]]:
    """The segments that lead to an event, by path, numbered through all of them; equal ones count each."""
    found: list[list[PathSegment]] = []
    number = 0
    for path in paths:
        way = [path.concepts[-1] if path.concepts else path.base, *path.events]
        row: list[Any] = []
        for source, target in pairwise(way):
            number += 1
            whole = " > ".join(["User", path.base, *path.names])
            row.append(PathSegment(segment_id=f"s{number}", source=source, target=target, path=whole))
        found.append(row)
    return found


def taken_in(
    memory: GraphMemory,
    units: Sequence[tuple[Evidence, Sequence[GraphPath]]],
    vectors: Mapping[str, np.ndarray] | None = None,
    min_cosine: float = 0.85,
) -> GraphMemory:
    """The memory with further units, each with where it belongs, as if they had come one by one.

    What is known of the graph is gathered once, however many units there are.

    Args:
        memory: The memory so far.
        units: Each with a new id, and where it belongs; a path whose base is none is left out, and so is one without an
            event.
        vectors: Embeddings of the names of nodes and paths, for merging by meaning; without, only equal names merge.
        min_cosine: Lowest cosine of names that are merged.
    """
    draft = _Draft(memory, vectors or {}, min_cosine)
    for evidence, paths in units:
        draft.take_in(evidence, paths)
    return memory.model_copy(
        update={
            "evidence": {**memory.evidence, **{evidence.id: evidence for evidence, _ in units}},
            "nodes": draft.nodes,
            "classes": (*memory.classes, *draft.classes),
            "relations": draft.relations,
            "issued": draft.issued,
            "counts": dict(draft.counts),
        }
    )


class _Draft:
    """The mutable state of one `taken_in`."""

    def __init__(self, memory: GraphMemory, vectors: Mapping[str, np.ndarray], min_cosine: float) -> None:
        self.nodes = dict(memory.nodes)
        self.relations = dict(memory.relations)
        self.classes: list[ClassEdge] = []
        self.issued = memory.issued
        self.counts = Counter(memory.counts)
        self._seen: Counter[str] = Counter()
        """What was counted of the unit."""
        self._names = Names(self.nodes.values(), vectors, min_cosine)
        self._bases = {normal(self.nodes[id].name): id for id in memory.children(USER)}
        self._above: dict[str, set[str]] = {id: set() for id in self.nodes}
        for edge in memory.classes:
            self._above[edge.child].add(edge.parent)
        self._edges = {(relation.source, relation.target): relation.id for relation in self.relations.values()}

    def take_in(self, evidence: Evidence, paths: Sequence[GraphPath]) -> None:
        self._evidence, self._seen = evidence, Counter()
        for path in paths:
            self._walk(path)
        self._seen["pathless"] += not any(path.events for path in paths)
        self.counts += self._seen

    def _walk(self, path: GraphPath) -> None:
        at = self._bases.get(normal(path.base))
        events = [(name, label) for name, label in zip(path.events, self._labels(path), strict=True) if name.strip()]
        if at is None or not events:
            return
        for name in path.concepts:
            # Models like to begin a path with its root.
            if name.strip() and normal(name) != normal(self.nodes[USER].name):
                at = self._descend(at, self._node(name, "abstract"))
        self._score(at)
        for n, (name, label) in enumerate(events):
            target = self._node(name, "general" if n + 1 < len(events) else "instance")
            if target != at:
                self._mention(at, target, label)
                self._note(target)
            at = target

    def _labels(self, path: GraphPath) -> list[str]:
        return [*path.labels, *[""] * len(path.events)][: len(path.events)]

    def _descend(self, parent: str, child: str) -> str:
        """Joins two concepts, unless joined already or closing a cycle; the path continues from the lower one."""
        if child == parent or parent in self._above[child]:
            return child
        if child in self._bases.values():
            self._seen["misplaced"] += 1
            return child
        if child in self._ancestors(parent):
            self._seen["cycles"] += 1
            return child
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

    def _node(self, name: str, tier: Tier) -> str:
        name = " ".join(name.split())
        abstract = tier == "abstract"
        known = self._names.find(name, abstract)
        if known is None:
            self.issued += 1
            node = Node(id=f"n{self.issued}", name=name, tier=tier)
            self.nodes[node.id] = node
            self._above[node.id] = set()
            self._names.add(node)
            return node.id
        id, by_cosine = known
        node = self.nodes[id]
        changes: dict[str, object] = {}
        if by_cosine:
            self._seen["merged"] += 1
            changes["aliases"] = (*node.aliases, name)
        if (node.tier, tier) == ("instance", "general"):
            changes["tier"] = tier
        if changes:
            self.nodes[id] = node.model_copy(update=changes)
            self._names.add(self.nodes[id])
        return id

    def _score(self, id: str) -> None:
        """The unit is new evidence of the path's lowest concept: +1."""
        node, unit = self.nodes[id], self._evidence.id
        if unit not in node.evidence:
            changes = {"evidence": (*node.evidence, unit), "fresh": (*node.fresh, unit), "score": node.score + 1}
            self.nodes[id] = node.model_copy(update=changes)

    def _note(self, id: str) -> None:
        node, unit = self.nodes[id], self._evidence.id
        if unit not in node.evidence:
            self.nodes[id] = node.model_copy(update={"evidence": (*node.evidence, unit)})

    def _mention(self, source: str, target: str, label: str) -> None:
        id = self._edges.get((source, target))
        if id is None:
            self.issued += 1
            id = self._edges[(source, target)] = f"r{self.issued}"
            self.relations[id] = Relation(id=id, source=source, target=target)
        relation, unit = self.relations[id], self._evidence.id
        if any(mention.evidence == unit for mention in relation.mentions[-1:]):
            return
        label = " ".join(label.split())
        self._seen["unlabelled"] += not label
        mention = Mention(evidence=unit, label=label or self._evidence.fact)
        changes = {"mentions": (*relation.mentions, mention), "count": relation.count + 1}
        self.relations[id] = relation.model_copy(update=changes)


class Names:
    """The names of a graph's nodes, to which new ones can be added.

    Args:
        nodes: The nodes so far; the user is not among those that are found.
        vectors: Embeddings of all names, also of those asked for, each of length 1 or 0.
        min_cosine: Lowest cosine of names that mean one node.
    """

    def __init__(self, nodes: Iterable[Node], vectors: Mapping[str, np.ndarray], min_cosine: float) -> None:
        self._vectors = vectors
        self._min = min_cosine
        self._exact: dict[tuple[bool, tuple[str, ...]], str] = {}
        self._known: dict[bool, dict[str, str]] = {True: {}, False: {}}
        """Names that can be merged into, of concepts and of events, by the ids of their nodes."""
        for node in nodes:
            if node.tier != "user":
                self.add(node)

    def add(self, node: Node) -> None:
        """Makes a node's name and aliases known."""
        abstract = node.tier == "abstract"
        for name in (node.name, *node.aliases):
            self._exact.setdefault((abstract, normal(name)), node.id)
        if node.name in self._vectors:
            self._known[abstract].setdefault(node.id, node.name)

    def find(self, name: str, abstract: bool) -> tuple[str, bool] | None:
        """The node that a name means, and whether its embedding decided; None for a new one.

        Of several that are near the nearest counts, of equally near ones the first.
        """
        known = self._exact.get((abstract, normal(name)))
        if known is not None:
            return known, False
        others = [(id, other) for id, other in self._known[abstract].items()]
        if not others or name not in self._vectors:
            return None
        # In double precision, so that a pair of equal texts reaches a threshold of 1.
        rows = np.stack([self._vectors[other] for _, other in others]).astype(np.float64)
        cosines = rows @ self._vectors[name].astype(np.float64)
        near = (n for n in np.argsort(-cosines, kind="stable") if cosines[n] >= self._min - 1e-6)
        same = (others[n][0] for n in near if _DIGITS.findall(others[n][1]) == _DIGITS.findall(name))
        return next(((id, True) for id in same), None)


def normal(name: str) -> tuple[str, ...]:
    """A name as the stems of its words, without case, punctuation and function words (with them if it has no other)."""
    return tuple(tokens(name)) or tuple(name.casefold().split())
