"""When RGMem's operators fire: algorithm 1, lines 16 to 29, for one step.

    1. R_K1 on every event edge with mentions >= theta_inf          all at once
    2. R_K2 on every concept with score >= theta_sum                all at once
    3. R_K3 on every dirty parent, children first, each once        a level at a time, all of a level at once

A call whose answer stays unusable changes nothing: the counter or the flag stays, so the operator fires again at the
next step. `single_scale` is what takes the place of all three in the variant w/o RG.

Source: RGMem, section 3.3.2 and appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..gather import gather
from .memory import GraphMemory, Node, Relation, Theory
from .theories import abstracted, flowed, inferred, levels, rewritten

Together = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""Runs calls that do not depend on one another, and gives their results in order."""


class Operators(Protocol):
    """What makes theories; None where no usable answer came."""

    def relation(self, memory: GraphMemory, relation: Relation) -> Theory | None:
        """R_K1: a relation's theory, updated with its fresh mentions."""
        ...

    def concept(self, memory: GraphMemory, node: Node) -> Theory | None:
        """R_K2: a concept's own theory, updated with its fresh evidence."""
        ...

    def parent(self, memory: GraphMemory, node: Node) -> Theory | None:
        """R_K3: a parent's theory from those of its children."""
        ...

    def rewrite(self, memory: GraphMemory, node: Node) -> Theory | None:
        """Without RG: a concept's one summary, updated with its fresh evidence."""
        ...


def evolve(
    memory: GraphMemory, operators: Operators, theta_inf: int, theta_sum: int, together: Together = gather
) -> GraphMemory:
    """The memory after the operators that are due.

    Args:
        memory: The memory with the new evidence of the step in it.
        operators: Make the theories.
        theta_inf: Mentions of an event edge at which R_K1 fires.
        theta_sum: Score of a concept at which R_K2 fires.
        together: Runs the calls of one level.
    """
    due = [relation for relation in memory.relations.values() if relation.count >= theta_inf]
    found = together([lambda r=r: operators.relation(memory, r) for r in due])
    inferring = memory
    for relation, theory in zip(due, found, strict=True):
        inferring = inferred(inferring, relation.id, theory) if theory else inferring
    return _flow(_abstract(inferring, operators, theta_sum, together), operators, together)


def single_scale(memory: GraphMemory, operators: Operators, together: Together = gather) -> GraphMemory:
    """The variant w/o RG: every concept with new evidence is rewritten at every step, from raw evidence alone."""
    due = [node for node in memory.nodes.values() if node.fresh]
    found = together([lambda n=n: operators.rewrite(memory, n) for n in due])
    new = memory
    for node, theory in zip(due, found, strict=True):
        new = rewritten(new, node.id, theory) if theory else new
    return new


def _abstract(memory: GraphMemory, operators: Operators, theta_sum: int, together: Together) -> GraphMemory:
    due = [node for node in memory.nodes.values() if node.tier == "abstract" and node.score >= theta_sum]
    found = together([lambda n=n: operators.concept(memory, n) for n in due])
    new = memory
    for node, theory in zip(due, found, strict=True):
        new = abstracted(new, node.id, theory) if theory else new
    return new


def _flow(memory: GraphMemory, operators: Operators, together: Together) -> GraphMemory:
    for level, ids in enumerate(levels(memory)):
        due = [memory.nodes[id] for id in ids if memory.nodes[id].dirty]
        found = together([lambda n=n, m=memory: operators.parent(m, n) for n in due])
        for node, theory in zip(due, found, strict=True):
            memory = flowed(memory, node.id, theory, level) if theory else memory
    return memory
