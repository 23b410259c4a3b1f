"""How a new unit of evidence changes RGMem's graph: nodes, edges, counters (algorithm 1, lines 10 to 14).

    GraphMemory ── taken_in(units) ──> GraphMemory      the units of a step, in one pass; the old one is unchanged

A path is a base concept, concepts and events. Names find their nodes by `entities`. Class edges never close a
cycle: one that would is refused and counted; the path continues from the node it led to. A base concept hangs on the
user alone. A unit counts once on an event edge, and once on the lowest concept of its paths, however many paths say so.

Example:
    >>> from mempiler.programs.rgmem.graph_update import GraphPath, taken_in
    >>> from mempiler.programs.rgmem.memory import Evidence, GraphMemory
    >>> path = GraphPath("Dining", events=("Steak",), labels=("user avoids eating due to allergy",))
    >>> memory = taken_in(GraphMemory(), [(Evidence(id="e1", step=1, fact="..."), [path])])
    >>> memory.relations["r2"].count
    1

Limits: nothing leaves the graph; a wrong path stays, outweighed by later ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .entities import Names, normal
from .memory import USER, ClassEdge, Evidence, GraphMemory, Mention, Node, Relation, Tier


@dataclass(frozen=True)
class GraphPath:
    """One extracted path."""

    base: str
    """Name of a base concept."""
    concepts: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    labels: tuple[str, ...] = field(default=())
    """Labels of the edges that lead to the events; "" or missing for one without."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names below the base."""
        return (*self.concepts, *self.events)


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
