"""What an operator's result changes in RGMem's graph: the theory, the counters, the flags above it, the journal.

Algorithm 1, lines 17 to 29. The functions ask no model; which operator fires is decided in `evolution`.

    inferred (R_K1)     relation: theory, count 0         concepts above it: score + 1
    abstracted (R_K2)   concept: own theory, score 0      its parents: dirty; itself too, if it has concepts below
    flowed (R_K3)       parent: flow theory, clean        its parents: dirty
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .memory import Firing, GraphMemory, Node, Operator, Theory


def inferred(memory: GraphMemory, id: str, theory: Theory) -> GraphMemory:
    """R_K1 fired on an event edge (Eq. 6): its mentions are processed, and every concept above has fresh evidence."""
    relation = memory.relations[id].model_copy(update={"theory": theory, "count": 0})
    nodes = dict(memory.nodes)
    for concept, edges in memory.below().items():
        if id in edges:
            node = nodes[concept]
            fresh = tuple(dict.fromkeys((*node.fresh_relations, id)))
            nodes[concept] = node.model_copy(update={"score": node.score + 1, "fresh_relations": fresh})
    return _fired(memory, "infer", id, 0, theory, nodes=nodes, relations={**memory.relations, id: relation})


def abstracted(memory: GraphMemory, id: str, theory: Theory, operator: Operator = "abstract") -> GraphMemory:
    """R_K2 fired on a concept (Eq. 10): its evidence is processed, and the concepts above have to be renewed."""
    changes = {"own": theory, "fresh": (), "fresh_relations": (), "score": 0}
    nodes = {**memory.nodes, id: memory.nodes[id].model_copy(update=changes)}
    above = memory.parents(id) if operator == "abstract" else ()
    below = [child for child in memory.children(id) if nodes[child].theory] if operator == "abstract" else ()
    return _fired(memory, operator, id, 0, theory, nodes=_dirty(nodes, (*above, *([id] if below else ()))))


def rewritten(memory: GraphMemory, id: str, theory: Theory) -> GraphMemory:
    """The single-scale update of the variant w/o RG: the concept's one summary is replaced, without flow."""
    return abstracted(memory, id, theory, "rewrite")


def flowed(memory: GraphMemory, id: str, theory: Theory, level: int = 0) -> GraphMemory:
    """R_K3 fired on a parent concept (Eq. 13): it is clean, its own parents are dirty."""
    nodes = {**memory.nodes, id: memory.nodes[id].model_copy(update={"flow": theory, "dirty": False})}
    return _fired(memory, "flow", id, level, theory, nodes=_dirty(nodes, memory.parents(id)))


def levels(memory: GraphMemory) -> list[list[str]]:
    """The dirty concepts and all above them, in topological order: those of a level depend on earlier levels alone."""
    above: dict[str, set[str]] = {}
    for edge in memory.classes:
        above.setdefault(edge.child, set()).add(edge.parent)
    height: dict[str, int] = {}
    for id in (node.id for node in memory.nodes.values() if node.dirty):
        _raise(id, 0, above, height)
    order = {id: n for n, id in enumerate(memory.nodes)}
    found: list[list[str]] = [[] for _ in range(max(height.values(), default=-1) + 1)]
    for id in sorted(height, key=lambda id: order[id]):
        found[height[id]].append(id)
    return found


def joined(memory: GraphMemory, *parts: Iterable[str]) -> tuple[str, ...]:
    """Ids of units of evidence from several places, each once, oldest first."""
    wanted = {id for part in parts for id in part}
    return tuple(id for id in memory.evidence if id in wanted)


def _raise(id: str, level: int, above: dict[str, set[str]], height: dict[str, int]) -> None:
    """Longest way from a dirty concept; terminates since the class edges have no cycle."""
    queue = [(id, level)]
    while queue:
        at, level = queue.pop()
        if height.get(at, -1) < level:
            height[at] = level
            queue += [(parent, level + 1) for parent in above.get(at, ())]


def _dirty(nodes: dict[str, Node], ids: Iterable[str]) -> dict[str, Node]:
    for id in ids:
        nodes[id] = nodes[id].model_copy(update={"dirty": True})
    return nodes


def _fired(memory: GraphMemory, operator: Operator, id: str, level: int, theory: Theory, **changes: Any) -> GraphMemory:
    entry = Firing(step=memory.step, operator=operator, target=id, level=level, theory=theory)
    return memory.model_copy(update={"journal": (*memory.journal, entry), **changes})
