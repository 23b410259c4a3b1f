"""RGMem's operators by a language model: what each is shown, and how its answer becomes a theory.

    R_K1  `relation`   inference before, fresh conclusions and raw events        -> fact summary + inferred traits
    R_K2  `concept`    projection (Eq. 9), then synthesis (Eq. 10 to 12)          -> Sigma + Delta
    R_K3  `parent`     (Sigma, Delta) of every concept below (Eq. 13)             -> macro-law, traits + restrictions
    w/o RG `rewrite`   summary before, raw evidence                               -> one text

Projection by rule (`projected`): fresh relation theories come first; of the fresh units only those stay that no such
theory already covers, and of their conclusions only those of high relevance, if there are any.

Limits: an answer without words counts as none, so that the operator tries again at the next step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...records import Failure, format_time
from ...signatures.rgmem_operators import SubSummary
from ..recording import record_failure
from .extraction import Ask, conclusion_line
from .memory import Evidence, GraphMemory, Node, Relation, Theory
from .theories import joined

_BULLET = re.compile(r"^(?:[-*•#]+\s*)*(?:inferred trait(?:/interest)?s?:\s*)?", re.I)


@dataclass(frozen=True)
class LanguageOperators:
    """The operators; each is given as what calls its predictor."""

    infer: Ask
    abstract: Ask
    flow: Ask
    rewrite_summary: Ask

    def relation(self, memory: GraphMemory, relation: Relation) -> Theory | None:
        """R_K1 (Eq. 6); see `evolution.Operators`."""
        before, fresh = relation.theory, [mention.evidence for mention in relation.fresh]
        units = [memory.evidence[id] for id in fresh]
        said = self.infer(
            source_entity=memory.nodes[relation.source].name,
            target_entity=memory.nodes[relation.target].name,
            inference_before="\n".join(_inference(before)) if before else "",
            new_evidence=[*_conclusions(units), *_raw_events(memory, relation, fresh)],
        )
        if said is None:
            return None
        return _theory(
            memory, "infer", said.fact_summary, said.inferred_traits, before.evidence if before else (), fresh
        )

    def concept(self, memory: GraphMemory, node: Node) -> Theory | None:
        """R_K2 = synthesis after projection (Eq. 8 to 12); see `evolution.Operators`."""
        before = node.own
        said = self.abstract(
            core_entity=node.name,
            general_before=before.sigma if before else "",
            specific_before=before.delta if before else "",
            new_evidence=projected(memory, node),
        )
        if said is None:
            return None
        used = [memory.relations[id].theory for id in node.fresh_relations]
        rests = [theory.evidence for theory in (before, *used) if theory]
        return _theory(memory, "abstract", said.general_facts, said.specific_facts, *rests, node.fresh)

    def parent(self, memory: GraphMemory, node: Node) -> Theory | None:
        """R_K3 (Eq. 13); see `evolution.Operators`."""
        below = microstates(memory, node)
        if not below:
            return None
        parts = [SubSummary(name=name, common=theory.sigma, particular=theory.delta) for name, theory in below]
        said = self.flow(core_entity=node.name, sub_summaries=parts)
        if said is None:
            return None
        sigma = f"{said.macro_law or ''}\n{said.core_traits or ''}"
        return _theory(memory, "flow", sigma, said.restrictions, *(theory.evidence for _, theory in below))

    def rewrite(self, memory: GraphMemory, node: Node) -> Theory | None:
        """Without RG; see `evolution.Operators`."""
        before = node.own
        units = [memory.evidence[id] for id in node.fresh]
        lines = [*_conclusions(units, every=True), *_raw_of(memory, node, node.fresh)]
        said = self.rewrite_summary(
            concept=node.name, summary_before=before.sigma if before else "", new_evidence=lines
        )
        if said is None:
            return None
        return _theory(memory, "rewrite", said.concept_summary, "", before.evidence if before else (), node.fresh)


def projected(memory: GraphMemory, node: Node) -> list[str]:
    """The projection-selection P (Eq. 9): a concept's fresh evidence, what is aggregated before what is raw."""
    fresh = [memory.relations[id] for id in node.fresh_relations]
    theories = [(memory.nodes[relation.target].name, relation.theory) for relation in fresh if relation.theory]
    covered = {id for _, theory in theories for id in theory.evidence}
    raw = [id for id in node.fresh if id not in covered]
    lines = [f"Inference about {name}. {' '.join(_inference(theory))}" for name, theory in theories]
    return [*lines, *_conclusions([memory.evidence[id] for id in raw]), *_raw_of(memory, node, raw)]


def microstates(memory: GraphMemory, node: Node) -> list[tuple[str, Theory]]:
    """What R_K3 joins: the theories of the concepts below, and the parent's own where it has evidence itself."""
    below = [(memory.nodes[id].name, memory.nodes[id].theory) for id in memory.children(node.id)]
    parts = [*below, (f"{node.name}, from evidence of its own", node.own)]
    return [(name, theory) for name, theory in parts if theory]


def shown(theory: Theory) -> str:
    """A theory on one line: the first part, then the second."""
    return " ".join(part for part in (sentences(theory.sigma), sentences(theory.delta)) if part)


def _inference(theory: Theory) -> list[str]:
    """A relation's theory as the operators are shown it, its two parts labelled."""
    parts = {"Fact summary": theory.sigma, "Inferred traits": theory.delta}
    return [f"{label}: {sentences(text)}" for label, text in parts.items() if text]


def _theory(memory: GraphMemory, where: str, sigma: Any, delta: Any, *evidence: Sequence[str]) -> Theory | None:
    """A theory from an answer's two parts, a line each item; None, and a failure, where the first has no words."""
    first, second = _lines(sigma), _lines(delta)
    if not first and not second:
        record_failure(Failure(kind="parse", where=where, message="the theory is empty; the one before it was kept"))
        return None
    # All that is known may be particular: then that is the theory's first part.
    first, second = (first, second) if first else (second, first)
    return Theory(sigma="\n".join(first), delta="\n".join(second), evidence=joined(memory, *evidence), step=memory.step)


def _lines(text: Any) -> list[str]:
    """The lines of an answer without bullets, headers' marks and the phrase that the paper puts before a trait."""
    lines = (_BULLET.sub("", " ".join(line.split())) for line in str(text or "").splitlines())
    return list(dict.fromkeys(line for line in lines if line))


def sentences(text: str) -> str:
    """Lines as running text, each with an end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(line if line[-1] in ".!?。！？" else f"{line}." for line in lines)


def _conclusions(units: Sequence[Evidence], every: bool = False) -> list[str]:
    return [
        f"Conclusion {conclusion_line(one, unit.time)}"
        for unit in units
        for one in (unit.conclusions if every else unit.seeds)
    ]


def _raw_events(memory: GraphMemory, relation: Relation, units: Sequence[str]) -> list[str]:
    way = f"{memory.nodes[relation.source].name} to {memory.nodes[relation.target].name}"
    found: list[str] = []
    for mention in relation.mentions:
        if mention.evidence in units and mention.label:
            time = memory.evidence[mention.evidence].time
            found.append(f"Raw event {f'({format_time(time)}) ' if time else ''}{way}: {mention.label}")
    return found


def _raw_of(memory: GraphMemory, node: Node, units: Sequence[str]) -> list[str]:
    """Raw events of some units on the event edges below a concept."""
    edges = memory.below().get(node.id, ())
    return [line for id in edges for line in _raw_events(memory, memory.relations[id], units)]
