"""RGMem's memory after a user changed single entries of it: units of evidence, and theories, at all scales.

fact, conclusions of a unit ── reworded, or without words; the unit stays, for theories and nodes name it
theory                      ── reworded, or none; labels of mentions go with the fact of their unit
"""

from __future__ import annotations

from collections.abc import Sequence

from ...memory.amending import Amend
from ...memory.index import entry_of
from ...records import Hit
from .memory import Evidence, GraphMemory, Node, Relation, Theory
from .retrieval import entries_of, inference_hit, profile_hit, restrictions_of, traits_of


def amended(memory: GraphMemory, amend: Amend) -> GraphMemory:
    """The memory with what is left of its evidence and theories."""
    evidence = {id: _unit(unit, amend) for id, unit in memory.evidence.items()}
    changed = {id for id, unit in evidence.items() if unit.fact != memory.evidence[id].fact}
    relations = {id: _relation(memory, one, amend, changed) for id, one in memory.relations.items()}
    nodes = {id: _node(memory, node, amend) for id, node in memory.nodes.items()}
    return memory.model_copy(update={"evidence": evidence, "relations": relations, "nodes": nodes})


def _unit(unit: Evidence, amend: Amend) -> Evidence:
    entries = entries_of(unit)
    if not any(amend.touches(entry.id, entry.sources) for entry in entries):
        return unit
    said = {entry.id: entry.text for entry in amend.entries(entries)}
    texts = [said.get(f"{unit.id}.{n}", "") for n in range(1, len(unit.conclusions) + 1)]
    if said == {entry.id: entry.text for entry in entries}:
        return unit
    conclusions = [one.model_copy(update={"text": text}) for one, text in zip(unit.conclusions, texts, strict=True)]
    return unit.model_copy(update={"fact": said.get(unit.id, ""), "conclusions": tuple(conclusions)})


def _relation(memory: GraphMemory, relation: Relation, amend: Amend, changed: set[str]) -> Relation:
    mentions = relation.mentions
    if any(mention.evidence in changed for mention in mentions):
        bare = ({"label": ""} if mention.evidence in changed else {} for mention in mentions)
        mentions = tuple(m.model_copy(update=update) for m, update in zip(mentions, bare, strict=True))
    theory = relation.theory
    if theory is not None:
        theory = _theory(theory, [inference_hit(memory, relation), *traits_of(memory, relation, 0.0)], amend)
    if theory is relation.theory and mentions is relation.mentions:
        return relation
    return relation.model_copy(update={"mentions": mentions, "theory": theory})


def _node(memory: GraphMemory, node: Node, amend: Amend) -> Node:
    if node.theory is None:
        return node
    theory = _theory(node.theory, [profile_hit(memory, node), *restrictions_of(memory, node, 0.0)], amend)
    if theory is node.theory:
        return node
    # What flowed up has taken the node's own theory in.
    return node.model_copy(update={"own": None, "flow": theory})


def _theory(theory: Theory, hits: Sequence[Hit], amend: Amend) -> Theory | None:
    """A theory after its texts were looked at, the first of which is the whole."""
    left = [amend(entry_of(hit)) for hit in hits]
    whole = left[0]
    if whole is None:
        return None
    if any(after is None for after in left[1:]):
        return theory.model_copy(update={"delta": ""})
    if whole.text == hits[0].text:
        return theory
    said = whole.text.removeprefix(hits[0].text.partition(": ")[0]).removeprefix(": ")
    return theory.model_copy(update={"sigma": said, "delta": ""})
