"""RGMem's operators: when they fire, what a model is shown, what it changes (algorithm 1, lines 16 to 29)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

from ...records import Failure, format_time
from ...signatures.rgmem import SubSummary
from ..component import CallPredictor
from ..recording import record_failure
from ..threads import gather
from .extraction import conclusion_line
from .memory import GraphMemory, Mention, Node, Relation, Theory, seeds

_BULLET = re.compile(r"^(?:[-*•#]+\s*)*(?:inferred trait(?:/interest)?s?:\s*)?", re.I)


def evolve(memory: GraphMemory, operators: Operators, theta_inf: int, theta_sum: int) -> GraphMemory:
    """The memory, with the new evidence of a step in it, after the operators that are due at these thresholds."""
    due = [relation for relation in memory.relations.values() if relation.count >= theta_inf]
    memory = _fired(memory, due, operators.relation, inferred)
    ready = [node for node in memory.nodes.values() if node.tier == "abstract" and node.score >= theta_sum]
    memory = _fired(memory, ready, operators.concept, abstracted)
    for ids in levels(memory):
        dirty = [memory.nodes[id] for id in ids if memory.nodes[id].dirty]
        memory = _fired(memory, dirty, operators.parent, flowed)
    return memory


def single_scale(memory: GraphMemory, operators: Operators) -> GraphMemory:
    """The variant w/o RG: every concept with new evidence is rewritten at every step, from raw evidence alone."""
    due = [node for node in memory.nodes.values() if node.fresh]
    return _fired(memory, due, operators.rewrite, partial(abstracted, flows=False))


def _fired(memory: GraphMemory, due: Sequence[Any], operator: Callable[..., Any], change: Any) -> GraphMemory:
    """The memory after an operator on all that is due, which is asked of at once."""
    after = memory
    for part, theory in zip(due, gather([partial(operator, memory, part) for part in due]), strict=True):
        after = change(after, part.id, theory) if theory else after
    return after


class Operators:
    """The operators by a language model; each makes a theory, or None where no usable answer came."""

    def __init__(self, ask: CallPredictor) -> None:
        self._ask = ask

    def relation(self, memory: GraphMemory, relation: Relation) -> Theory | None:
        """R_K1 (Eq. 6): a relation's theory, updated with its fresh mentions."""
        before, fresh = relation.theory, [mention.evidence for mention in relation.fresh]
        person = memory.nodes[relation.source].person
        # Eq. 6 takes in all new evidence of the relation, base conclusions too; only R_K2 selects among it.
        conclusions = _conclusions(memory, relation.fresh, person, every=True)
        inputs = {
            "user": memory.user_of(person),
            "source_entity": memory.nodes[relation.source].name,
            "target_entity": memory.nodes[relation.target].name,
            "inference_before": "\n".join(_inference(before)) if before else "",
            "new_evidence": [*conclusions, *_raw_events(memory, relation, fresh)],
        }
        outputs = ("fact_summary",), ("inferred_traits",)
        return self._theory(memory, "infer", inputs, outputs, [_evidence(before), fresh])

    def concept(self, memory: GraphMemory, node: Node) -> Theory | None:
        """R_K2 = synthesis after projection (Eq. 8 to 12): a concept's own theory, updated with its fresh evidence."""
        before = node.own
        inputs = {
            "user": memory.user_of(node.person),
            "core_entity": node.name,
            "general_before": before.sigma if before else "",
            "specific_before": before.delta if before else "",
            "new_evidence": projected(memory, node),
        }
        used = [_evidence(memory.relations[id].theory) for id in node.fresh_relations]
        outputs = ("general_facts",), ("specific_facts",)
        return self._theory(memory, "abstract", inputs, outputs, [_evidence(before), *used, node.fresh])

    def parent(self, memory: GraphMemory, node: Node) -> Theory | None:
        """R_K3 (Eq. 13): a parent's theory from those of its children."""
        below = microstates(memory, node)
        if not below:
            return None
        parts = [SubSummary(name=name, common=theory.sigma, particular=theory.delta) for name, theory in below]
        inputs = {"user": memory.user_of(node.person), "core_entity": node.name, "sub_summaries": parts}
        outputs = ("macro_law", "core_traits"), ("restrictions",)
        return self._theory(memory, "flow", inputs, outputs, [theory.evidence for _, theory in below])

    def rewrite(self, memory: GraphMemory, node: Node) -> Theory | None:
        """Without RG: a concept's one summary, updated with its fresh evidence."""
        before = node.own
        lines = _evidence_of(memory, node, node.fresh, every=True)
        inputs = {
            "user": memory.user_of(node.person),
            "concept": node.name,
            "summary_before": before.sigma if before else "",
            "new_evidence": lines,
        }
        return self._theory(memory, "rewrite", inputs, (("concept_summary",), ()), [_evidence(before), node.fresh])

    def _theory(
        self,
        memory: GraphMemory,
        where: str,
        inputs: dict[str, Any],
        outputs: tuple[Sequence[str], Sequence[str]],
        evidence: Sequence[Sequence[str]],
    ) -> Theory | None:
        """A theory from an answer's two parts, a line each item; None, and a failure, where it has no words."""
        said = self._ask(where, **inputs)
        if said is None:
            return None
        first, second = (_lines("\n".join(str(said[name] or "") for name in names)) for names in outputs)
        if not first and not second:
            message = "the theory is empty; the one before it was kept"
            record_failure(Failure(kind="parse", where=where, message=message))
            return None
        # All that is known may be particular: then that is the theory's first part.
        first, second = (first, second) if first else (second, first)
        rests = joined(memory, *evidence)
        return Theory(sigma="\n".join(first), delta="\n".join(second), evidence=rests, step=memory.step)


def projected(memory: GraphMemory, node: Node) -> list[str]:
    """The projection-selection P (Eq. 9): a concept's fresh evidence, what is aggregated before what is raw."""
    fresh = [memory.relations[id] for id in node.fresh_relations]
    theories = [(memory.nodes[relation.target].name, relation.theory) for relation in fresh if relation.theory]
    covered = {id for _, theory in theories for id in theory.evidence}
    raw = [id for id in node.fresh if id not in covered]
    lines = [f"Inference about {name}. {' '.join(_inference(theory))}" for name, theory in theories]
    return [*lines, *_evidence_of(memory, node, raw)]


def microstates(memory: GraphMemory, node: Node) -> list[tuple[str, Theory]]:
    """What R_K3 joins: the theories of the concepts below, and the parent's own where it has evidence itself."""
    below = [(memory.nodes[id].name, memory.nodes[id].theory) for id in memory.children(node.id)]
    parts = [*below, (f"{node.name}, from evidence of its own", node.own)]
    return [(name, theory) for name, theory in parts if theory]


def shown(theory: Theory) -> str:
    """A theory on one line: the first part, then the second."""
    return " ".join(part for part in (sentences(theory.sigma), sentences(theory.delta)) if part)


def _inference(theory: Theory) -> list[str]:
    parts = {"Fact summary": theory.sigma, "Inferred traits": theory.delta}
    return [f"{label}: {sentences(text)}" for label, text in parts.items() if text]


def _evidence(theory: Theory | None) -> tuple[str, ...]:
    return theory.evidence if theory else ()


def _lines(text: str) -> list[str]:
    """The lines of an answer without bullets, headers' marks and the phrase that the paper puts before a trait."""
    lines = (_BULLET.sub("", " ".join(line.split())) for line in text.splitlines())
    return list(dict.fromkeys(line for line in lines if line))


def sentences(text: str) -> str:
    """Lines as running text, each with an end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(line if line[-1] in ".!?。！？" else f"{line}." for line in lines)


def _conclusions(memory: GraphMemory, mentions: Iterable[Mention], person: str, every: bool = False) -> list[str]:
    """Return the conclusions about a person that mentions are about, each once.

    Of every unit those of high relevance are taken, or `every` one.
    """
    places: dict[str, set[int]] = {}
    for mention in mentions:
        whole = memory.evidence[mention.evidence].conclusions_about(person)
        linked = whole if mention.conclusions is None else mention.conclusions
        places.setdefault(mention.evidence, set()).update(linked)
    lines: list[str] = []
    for id, found in places.items():
        unit = memory.evidence[id]
        drawn = tuple(unit.conclusions[n] for n in sorted(found))
        shown = drawn if every else seeds(drawn)
        lines += [f"Conclusion {conclusion_line(one, unit.time)}" for one in shown if one.text]
    return lines


def _evidence_of(memory: GraphMemory, node: Node, units: Sequence[str], every: bool = False) -> list[str]:
    """Conclusions and raw events of some units on the event edges below a concept; all of a unit that is on none."""
    edges = [memory.relations[id] for id in memory.below().get(node.id, ())]
    found: dict[str, list[Mention]] = {id: [] for id in units}
    for mention in (mention for edge in edges for mention in edge.mentions if mention.evidence in found):
        found[mention.evidence].append(mention)
    mentions = [one for id, those in found.items() for one in those or [Mention(evidence=id, label="")]]
    raw = [line for edge in edges for line in _raw_events(memory, edge, units)]
    return [*_conclusions(memory, mentions, node.person, every), *raw]


def _raw_events(memory: GraphMemory, relation: Relation, units: Sequence[str]) -> list[str]:
    way = f"{memory.nodes[relation.source].name} to {memory.nodes[relation.target].name}"
    found: list[str] = []
    for mention in relation.mentions:
        if mention.evidence in units and mention.label:
            time = memory.evidence[mention.evidence].time
            found.append(f"Raw event {f'({format_time(time)}) ' if time else ''}{way}: {mention.label}")
    return found


def inferred(memory: GraphMemory, id: str, theory: Theory) -> GraphMemory:
    """R_K1 fired on an event edge (Eq. 6): its mentions are processed, and every concept above has fresh evidence."""
    relation = memory.relations[id].replace(theory=theory, count=0)
    nodes = dict(memory.nodes)
    for concept, edges in memory.below().items():
        if id in edges:
            node = nodes[concept]
            fresh = tuple(dict.fromkeys((*node.fresh_relations, id)))
            nodes[concept] = node.replace(score=node.score + 1, fresh_relations=fresh)
    return memory.replace(nodes=nodes, relations={**memory.relations, id: relation})


def abstracted(memory: GraphMemory, id: str, theory: Theory, flows: bool = True) -> GraphMemory:
    """R_K2 fired on a concept (Eq. 10): its evidence is processed; if it `flows`, those above are dirty."""
    processed = memory.nodes[id].replace(own=theory, fresh=(), fresh_relations=(), score=0)
    nodes = {**memory.nodes, id: processed}
    if flows:
        below = any(nodes[child].theory for child in memory.children(id))
        nodes = _dirty(nodes, (*memory.parents(id), *([id] if below else ())))
    return memory.replace(nodes=nodes)


def flowed(memory: GraphMemory, id: str, theory: Theory) -> GraphMemory:
    """R_K3 fired on a parent concept (Eq. 13): it is clean, its own parents are dirty."""
    nodes = {**memory.nodes, id: memory.nodes[id].replace(flow=theory, dirty=False)}
    return memory.replace(nodes=_dirty(nodes, memory.parents(id)))


def levels(memory: GraphMemory) -> list[list[str]]:
    """The dirty concepts and all above them, in topological order: those of a level depend on earlier levels alone."""
    sorter, queue = TopologicalSorter[str](), [node.id for node in memory.nodes.values() if node.dirty]
    for id in queue:
        sorter.add(id)
        for parent in memory.parents(id):
            sorter.add(parent, id)
            if parent not in queue:
                queue.append(parent)
    found: list[list[str]] = []
    sorter.prepare()
    while ready := sorter.get_ready():
        found.append([id for id in memory.nodes if id in ready])
        sorter.done(*ready)
    return found


def joined(memory: GraphMemory, *parts: Iterable[str]) -> tuple[str, ...]:
    """Ids of units of evidence from several places, each once, oldest first."""
    wanted = {id for part in parts for id in part}
    return tuple(id for id in memory.evidence if id in wanted)


def _dirty(nodes: dict[str, Node], ids: Iterable[str]) -> dict[str, Node]:
    for id in ids:
        nodes[id] = nodes[id].replace(dirty=True)
    return nodes
