"""RGMem's operators: when they run, what a model is shown, and what they change.

After each step the new evidence evolves the graph (algorithm 1, lines 16 to 29):

    R_K1  every event edge with mentions(e) >= theta_inf     theory T_e               Eq. 6
    R_K2  every concept with score(v) >= theta_sum           Sigma_v and Delta_v      Eq. 7 to 12
    R_K3  every dirty parent, children before their parents  Sigma_vp and Delta_vp    Eq. 13

Calls of one operator that do not depend on one another run at the same time. Where a call gives no
usable theory, the edge or concept keeps its counters, so that the next step tries again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from graphlib import TopologicalSorter
from typing import Any, Protocol

import dspy

from ...records import Failure
from ...signatures.rgmem import SubSummary
from ..predictor import Predictor
from ..recording import record_failure
from ..threads import gather
from .extraction import format_conclusion, time_prefix
from .memory import Conclusion, Evidence, GraphMemory, Mention, Node, Relation, Theory, seeds

_LINE_PREFIX = re.compile(r"^(?:[-*•#]+\s*)*(?:inferred trait(?:/interest)?s?:\s*)?", re.I)
"""A bullet or a header's mark, and the phrase that the paper's prompt puts before a trait."""
_SENTENCE_ENDS = ".!?。！？"
_NO_THEORY = Theory(sigma="")
"""Stands for the theory before the first one."""


class EvolutionPrompts(Protocol):
    """The prompts of a writer that make and renew theories, and how they are called.

    A writer has only those prompts that its settings use.
    """

    infer: Predictor
    abstract: Predictor
    flow: Predictor
    rewrite: Predictor

    def try_call(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Call a predictor; None if no answer can be read."""
        ...


def evolve(
    memory: GraphMemory, operators: Operators, theta_inf: int, theta_sum: int
) -> GraphMemory:
    """Return the memory with new summaries (theories) wherever enough new evidence has come in.

    First come the summaries of edges to events, which say what happened. Then follow those of
    topics (concepts), which use the summaries of edges, and last those of the broader topics above
    (Eq. 3; algorithm 1, lines 16 to 29).

    Args:
        memory: A memory that already holds the new evidence of the step.
        operators: Ask a model for summaries.
        theta_inf: How many new mentions of an edge it takes to renew its summary (R_K1).
        theta_sum: How many new units of evidence and new summaries of edges it takes to renew the
            summary of a topic (R_K2).
    """
    memory = _infer_relations(memory, operators, theta_inf)
    memory = _abstract_concepts(memory, operators, theta_sum)
    return _integrate_concepts(memory, operators)


def _infer_relations(memory: GraphMemory, operators: Operators, theta_inf: int) -> GraphMemory:
    """Return the memory with new summaries of edges (relations) that have enough new mentions.

    Such an edge leads to an event, and a mention is what one part of a conversation says on it. The
    model is asked about all edges at the same time (R_K1, lines 17 to 20).
    """
    # `count`: how many mentions came after the edge's last summary.
    due = [relation for relation in memory.relations.values() if relation.count >= theta_inf]
    theories = gather([partial(operators.infer_relation, memory, relation) for relation in due])
    for relation, theory in zip(due, theories, strict=True):
        # Without a usable answer the edge stays due, so that the next step tries again.
        if theory is not None:
            memory = with_relation_theory(memory, relation.id, theory)
    return memory


def _abstract_concepts(memory: GraphMemory, operators: Operators, theta_sum: int) -> GraphMemory:
    """Return the memory with new summaries (theories) of topics that have enough new evidence.

    The summaries of the broader topics above are made from these, so they are marked as dirty,
    which means out of date (R_K2, lines 21 to 25).
    """
    # Topics (concepts) are the nodes of the tier "abstract". `score`: how much is new at a topic.
    concepts = [node for node in memory.nodes.values() if node.tier == "abstract"]
    due = [concept for concept in concepts if concept.score >= theta_sum]
    theories = gather([partial(operators.abstract_concept, memory, concept) for concept in due])
    for concept, theory in zip(due, theories, strict=True):
        # Without a usable answer the topic stays due, so that the next step tries again.
        if theory is not None:
            memory = with_concept_theory(memory, concept.id, theory)
            memory = _mark_dependents_dirty(memory, concept.id)
    return memory


def _integrate_concepts(memory: GraphMemory, operators: Operators) -> GraphMemory:
    """Return the memory with new summaries (theories) of broad topics that are out of date.

    The summary of a broad topic is made from the summaries of the narrower topics below it. So
    narrow topics come before broad ones (R_K3, lines 26 to 29).
    """
    # `dirty`: out of date, since a summary that the topic's own is made from has changed.
    for level in dirty_levels(memory):
        # A new summary makes the topics right above it dirty, and these stand in a later level. So
        # which topics of a level are dirty is known only once the levels before are done.
        concepts = [memory.nodes[concept_id] for concept_id in level]
        dirty = [concept for concept in concepts if concept.dirty]
        theories = gather(
            [partial(operators.integrate_concept, memory, concept) for concept in dirty]
        )
        for concept, theory in zip(dirty, theories, strict=True):
            # Without a usable answer the topic stays dirty, so that the next step tries again.
            if theory is not None:
                memory = with_parent_theory(memory, concept.id, theory)
    return memory


def evolve_without_rg(memory: GraphMemory, operators: Operators) -> GraphMemory:
    """Return the memory with a new summary (theory) of every topic that has new evidence.

    This is the paper's ablation without operators: no thresholds, no summaries of edges, and no
    summaries of summaries ("w/o RG", Tables 3 and 4).
    """
    # `fresh`: ids of evidence that is not in the summary yet. Events have no summary, so theirs is
    # always empty.
    due = [node for node in memory.nodes.values() if node.fresh]
    theories = gather([partial(operators.rewrite_summary, memory, concept) for concept in due])
    for concept, theory in zip(due, theories, strict=True):
        # Without a usable answer the evidence stays fresh, so that the next step tries again.
        if theory is not None:
            memory = with_concept_theory(memory, concept.id, theory)
    return memory


class Operators:
    """The operators R_K1, R_K2 and R_K3, and the rewriting without them, by a language model.

    Each method returns a new theory. It returns None, and records the failure, if the model gives
    no usable answer.

    Args:
        prompts: The writer with the prompts.
    """

    def __init__(self, prompts: EvolutionPrompts) -> None:
        self._prompts = prompts

    def infer_relation(self, memory: GraphMemory, relation: Relation) -> Theory | None:
        """Return a new summary (theory) of an edge to an event, or None without a usable answer.

        A model writes it from the old summary and the new mentions: what parts of the conversation
        have said on the edge since then (R_K1, Eq. 6).
        """
        source = memory.nodes[relation.source]
        target = memory.nodes[relation.target]
        previous = relation.theory or _NO_THEORY
        # `fresh`: the mentions that the old summary does not reflect. The `evidence` of a mention
        # is the id of the part of the conversation that it comes from.
        fresh_ids = [mention.evidence for mention in relation.fresh]

        # All conclusions about the edge are shown, also those of low relevance. (For the summary of
        # a topic those are left out.)
        conclusions = linked_conclusions(memory, relation.fresh, source.person)
        new_evidence = _conclusion_lines(memory, conclusions)
        new_evidence.extend(_raw_event_lines(memory, relation, fresh_ids))

        # The model writes the whole new summary, not a change to the one before.
        answer = self._prompts.try_call(
            self._prompts.infer,
            user=memory.user_of(source.person),
            source_entity=source.name,
            target_entity=target.name,
            inference_before="\n".join(_inference_parts(previous)),
            new_evidence=new_evidence,
        )
        if answer is None:
            return None

        evidence_ids = union_of_evidence(memory, previous.evidence, fresh_ids)
        return _make_theory(
            memory,
            "infer",
            sigma_texts=[answer.fact_summary],
            delta_texts=[answer.inferred_traits],
            evidence_ids=evidence_ids,
        )

    def abstract_concept(self, memory: GraphMemory, node: Node) -> Theory | None:
        """Return a new summary (theory) of a topic, or None without a usable answer.

        A model writes it from the old summary and the new evidence. A summary has a general part
        (`sigma`) and a particular part (`delta`), both from one call (R_K2, Eq. 8 and 10).
        """
        # `own`: the summary from evidence on the topic itself, not on the topics below it.
        previous = node.own or _NO_THEORY
        answer = self._prompts.try_call(
            self._prompts.abstract,
            user=memory.user_of(node.person),
            core_entity=node.name,
            general_before=previous.sigma,
            specific_before=previous.delta,
            new_evidence=project(memory, node),
        )
        if answer is None:
            return None

        # The new summary rests on the evidence of the old one, and on the new evidence (`fresh`).
        evidence_ids = [*previous.evidence, *node.fresh]
        # The model was also shown the new summaries of edges below the topic (`fresh_relations`),
        # so their evidence belongs to the new summary too.
        for relation_id in node.fresh_relations:
            relation_theory = memory.relations[relation_id].theory
            if relation_theory is not None:
                evidence_ids.extend(relation_theory.evidence)
        return _make_theory(
            memory,
            "abstract",
            sigma_texts=[answer.general_facts],
            delta_texts=[answer.specific_facts],
            evidence_ids=union_of_evidence(memory, evidence_ids),
        )

    def integrate_concept(self, memory: GraphMemory, node: Node) -> Theory | None:
        """Return a summary (theory) of a broad topic, made from those of the topics below it.

        A model writes it. A summary has a general part (`sigma`) and a particular part (`delta`).
        None is returned if there is nothing to summarize, or no usable answer (R_K3, Eq. 13).
        """
        # The summaries that the new one is made from, each with the name of its topic.
        named_theories = microstates(memory, node)
        if not named_theories:
            return None

        sub_summaries: list[SubSummary] = []
        evidence_ids: list[str] = []
        for name, theory in named_theories:
            # The prompt calls the general part of a summary `common`.
            sub_summary = SubSummary(name=name, common=theory.sigma, particular=theory.delta)
            sub_summaries.append(sub_summary)
            # The new summary rests on all evidence of the summaries that it is made from.
            evidence_ids.extend(theory.evidence)

        answer = self._prompts.try_call(
            self._prompts.flow,
            user=memory.user_of(node.person),
            core_entity=node.name,
            sub_summaries=sub_summaries,
        )
        if answer is None:
            return None

        # The law and the core traits are the general part of the new summary, the restrictions are
        # the particular part.
        return _make_theory(
            memory,
            "flow",
            sigma_texts=[answer.macro_law, answer.core_traits],
            delta_texts=[answer.restrictions],
            evidence_ids=union_of_evidence(memory, evidence_ids),
        )

    def rewrite_summary(self, memory: GraphMemory, node: Node) -> Theory | None:
        """Return a new summary of a topic, or None if the model gives no usable answer.

        A model rewrites the old summary with the new evidence, in one plain step. This is used only
        in an experiment that leaves out the usual steps, to show what they bring.
        """
        # `own` holds the old summary. Its text is `sigma`; a second part, `delta`, is not used
        # here. `fresh` holds the ids of the evidence that the old summary does not cover yet.
        previous = node.own or _NO_THEORY
        conclusions = _conclusions_below(memory, node, node.fresh)
        new_evidence = _conclusion_lines(memory, conclusions)
        new_evidence.extend(_raw_event_lines_below(memory, node, node.fresh))

        answer = self._prompts.try_call(
            self._prompts.rewrite,
            user=memory.user_of(node.person),
            concept=node.name,
            summary_before=previous.sigma,
            new_evidence=new_evidence,
        )
        if answer is None:
            return None

        evidence_ids = union_of_evidence(memory, previous.evidence, node.fresh)
        return _make_theory(
            memory,
            "rewrite",
            sigma_texts=[answer.concept_summary],
            delta_texts=[],
            evidence_ids=evidence_ids,
        )


def _make_theory(
    memory: GraphMemory,
    predictor_name: str,
    sigma_texts: Sequence[str | None],
    delta_texts: Sequence[str | None],
    evidence_ids: tuple[str, ...],
) -> Theory | None:
    """Return a summary (theory) made from a model's outputs, or None if they hold no statement.

    A summary has a general part (`sigma`) and a particular part (`delta`), with one line for each
    statement. If both are empty, a failure is recorded.

    Args:
        memory: The memory that the model was shown.
        predictor_name: The predictor that was called, for the report of a failure.
        sigma_texts: The outputs for `sigma`.
        delta_texts: The outputs for `delta`.
        evidence_ids: Ids of the units of evidence that the summary rests on.
    """
    sigma = _statements(sigma_texts)
    delta = _statements(delta_texts)
    if not sigma and not delta:
        message = "the theory is empty; the one before it was kept"
        record_failure(Failure(kind="parse", where=predictor_name, message=message))
        return None

    # The model may have written particular statements alone. A summary must not have an empty
    # `sigma`, so they become its `sigma`, and `delta` is left empty.
    if not sigma:
        sigma = delta
        delta = []
    return Theory(
        sigma="\n".join(sigma),
        delta="\n".join(delta),
        evidence=evidence_ids,
        step=memory.step,
    )


def _statements(texts: Sequence[str | None]) -> list[str]:
    """Return the lines of a model's outputs, each once, without bullets and other prefixes."""
    statements: list[str] = []
    for text in texts:
        # A model may answer null for an output.
        if not text:
            continue
        for line in str(text).splitlines():
            words = " ".join(line.split())
            statement = _LINE_PREFIX.sub("", words)
            if statement and statement not in statements:
                statements.append(statement)
    return statements


def project(memory: GraphMemory, node: Node) -> list[str]:
    """Return prompt lines that say what is new about a topic since its last summary (theory).

    First come the new summaries of edges to events below the topic. New evidence that is not in any
    of them follows: its conclusions, then its events (the projection P, Eq. 7 and 9).
    """
    theory_lines: list[str] = []
    covered_ids: set[str] = set()
    # `fresh_relations`: ids of the edges with summaries that the topic's summary does not reflect.
    for relation_id in node.fresh_relations:
        relation = memory.relations[relation_id]
        if relation.theory is None:
            continue
        inference = " ".join(_inference_parts(relation.theory))
        target = memory.nodes[relation.target]
        theory_lines.append(f"Inference about {target.name}. {inference}")
        covered_ids.update(relation.theory.evidence)

    # `fresh`: ids of the units of evidence that the topic's summary does not reflect.
    uncovered_ids = [evidence_id for evidence_id in node.fresh if evidence_id not in covered_ids]
    salient: dict[str, tuple[Conclusion, ...]] = {}
    for evidence_id, conclusions in _conclusions_below(memory, node, uncovered_ids).items():
        # `seeds` keeps the conclusions of high relevance, or all of them if none is.
        salient[evidence_id] = seeds(conclusions)
    return [
        *theory_lines,
        *_conclusion_lines(memory, salient),
        *_raw_event_lines_below(memory, node, uncovered_ids),
    ]


def microstates(memory: GraphMemory, node: Node) -> list[tuple[str, Theory]]:
    """Return the summaries (theories) from which that of a broad topic is made, with names.

    They are the summaries of the topics right below it, each with the name of its topic. Last comes
    the summary from evidence on the broad topic itself, if there is one (the microstates of Eq.
    13).
    """
    named_theories: list[tuple[str, Theory]] = []
    for child_id in memory.children(node.id):
        child = memory.nodes[child_id]
        if child.theory is not None:
            named_theories.append((child.name, child.theory))
    # `own`: the summary from evidence on the topic itself, not on the topics below it.
    if node.own is not None:
        named_theories.append((f"{node.name}, from evidence of its own", node.own))
    return named_theories


def theory_as_text(theory: Theory) -> str:
    """Return both parts of a summary (theory), general and particular, as running text."""
    parts = [as_sentences(theory.sigma), as_sentences(theory.delta)]
    return " ".join(part for part in parts if part)


def as_sentences(text: str) -> str:
    """Join lines into running text; a line that does not end like a sentence gets a full stop."""
    sentences: list[str] = []
    for line in text.splitlines():
        sentence = line.strip()
        if not sentence:
            continue
        if sentence[-1] not in _SENTENCE_ENDS:
            sentence += "."
        sentences.append(sentence)
    return " ".join(sentences)


def _inference_parts(theory: Theory) -> list[str]:
    """Return the summary of an edge to an event for a prompt: its facts, then inferred traits.

    A part of the summary that is empty is left out.
    """
    parts: list[str] = []
    if theory.sigma:
        parts.append(f"Fact summary: {as_sentences(theory.sigma)}")
    if theory.delta:
        parts.append(f"Inferred traits: {as_sentences(theory.delta)}")
    return parts


def linked_conclusions(
    memory: GraphMemory, mentions: Iterable[Mention], person: str
) -> dict[str, tuple[Conclusion, ...]]:
    """Return the conclusions that some mentions refer to, by the id of their unit of evidence.

    A unit of evidence is what one part of a conversation says, with the conclusions drawn from it.
    A mention ties a unit to an edge of the graph, and says which of its conclusions are about the
    edge.

    Args:
        memory: The memory with the units.
        mentions: The mentions.
        person: Whose graph the edges belong to.
    """
    # A set, since several mentions may refer to the same conclusion. `evidence`: id of the unit.
    positions_by_unit: dict[str, set[int]] = {}
    for mention in mentions:
        positions = _linked_positions(memory, mention, person)
        positions_by_unit.setdefault(mention.evidence, set()).update(positions)

    conclusions_by_unit: dict[str, tuple[Conclusion, ...]] = {}
    for unit_id, unit_positions in positions_by_unit.items():
        unit = memory.evidence[unit_id]
        conclusions_by_unit[unit_id] = _conclusions_at(unit, sorted(unit_positions))
    return conclusions_by_unit


def _linked_positions(memory: GraphMemory, mention: Mention, person: str) -> Sequence[int]:
    """Return which conclusions a mention refers to, as positions in a unit's list of conclusions.

    A unit of evidence is what one part of a conversation says, with the conclusions drawn from it.
    A mention notes that the unit tells of some event in the person's graph.
    """
    # None: it was not noted which conclusions concern the event, so all about the person count.
    # An empty tuple is different: it was noted that none does.
    if mention.conclusions is not None:
        return mention.conclusions
    # `mention.evidence` is the id of the unit.
    unit = memory.evidence[mention.evidence]
    return unit.conclusions_about(person)


def _conclusions_at(unit: Evidence, positions: Sequence[int]) -> tuple[Conclusion, ...]:
    """Return the conclusions of a unit of evidence that stand at some positions."""
    return tuple(unit.conclusions[position] for position in positions)


def _conclusions_below(
    memory: GraphMemory, node: Node, evidence_ids: Sequence[str]
) -> dict[str, tuple[Conclusion, ...]]:
    """Return the conclusions about a topic in some units of evidence, by the id of the unit.

    A unit of evidence is what one part of a conversation says. If it is mentioned on edges to
    events below the topic, only its conclusions about these edges are returned. Otherwise they are
    all its conclusions about the person whose graph it is.
    """
    # A mention says which conclusions of a unit (`mention.evidence` is its id) are about an edge.
    mentions: list[Mention] = []
    for relation in _relations_below(memory, node):
        for mention in relation.mentions:
            if mention.evidence in evidence_ids:
                mentions.append(mention)
    conclusions_about_edges = linked_conclusions(memory, mentions, node.person)

    conclusions_by_unit: dict[str, tuple[Conclusion, ...]] = {}
    for unit_id in evidence_ids:
        if unit_id in conclusions_about_edges:
            conclusions_by_unit[unit_id] = conclusions_about_edges[unit_id]
        else:
            unit = memory.evidence[unit_id]
            positions = unit.conclusions_about(node.person)
            conclusions_by_unit[unit_id] = _conclusions_at(unit, positions)
    return conclusions_by_unit


def _relations_below(memory: GraphMemory, node: Node) -> list[Relation]:
    """Return the edges to all events below a topic, and from these to further events."""
    relation_ids = memory.relations_below().get(node.id, ())
    return [memory.relations[relation_id] for relation_id in relation_ids]


def _conclusion_lines(
    memory: GraphMemory, conclusions_by_unit: Mapping[str, Sequence[Conclusion]]
) -> list[str]:
    """Return conclusions as lines of a prompt, each with the date of its unit of evidence.

    A unit of evidence is what one part of a conversation says. A conclusion that the user has
    hidden has no words, and is left out.
    """
    lines: list[str] = []
    for evidence_id, conclusions in conclusions_by_unit.items():
        unit = memory.evidence[evidence_id]
        for conclusion in conclusions:
            if conclusion.text:
                lines.append(f"Conclusion {format_conclusion(conclusion, unit.time)}")
    return lines


def _raw_event_lines_below(
    memory: GraphMemory, node: Node, evidence_ids: Sequence[str]
) -> list[str]:
    """Return what some units of evidence say on the edges to events below a topic.

    Each is a line of a prompt, such as `Raw event (8 May 2023, Monday) Sports to City Race: Ann ran
    it`, where the edge leads from Sports to City Race.

    Args:
        memory: The memory with the units.
        node: The topic.
        evidence_ids: Ids of the units.
    """
    lines: list[str] = []
    for relation in _relations_below(memory, node):
        lines.extend(_raw_event_lines(memory, relation, evidence_ids))
    return lines


def _raw_event_lines(
    memory: GraphMemory, relation: Relation, evidence_ids: Sequence[str]
) -> list[str]:
    """Return what some units of evidence say on the edge to an event, as lines of a prompt.

    A line reads `Raw event (8 May 2023, Monday) Sports to City Race: Ann ran it with Bob`, where
    the edge leads from Sports to City Race.
    """
    source = memory.nodes[relation.source]
    target = memory.nodes[relation.target]
    lines: list[str] = []
    for mention in relation.mentions:
        # A mention is what one unit (`evidence`) says on the edge, and its label says it in words.
        # A label that the user has hidden is empty.
        if mention.evidence in evidence_ids and mention.label:
            when = time_prefix(memory.evidence[mention.evidence].time)
            lines.append(f"Raw event {when}{source.name} to {target.name}: {mention.label}")
    return lines


def with_relation_theory(memory: GraphMemory, relation_id: str, theory: Theory) -> GraphMemory:
    """Return the memory with a new summary (theory) of an edge (relation) to an event.

    The edge is noted at the topics above it as one with a new summary. Once enough is new at a
    topic, its summary is renewed too (after R_K1; algorithm 1, lines 18 and 19).
    """
    # `count`: how often the edge was mentioned after its last summary. The new one reflects all
    # mentions.
    relation = memory.relations[relation_id].replace(theory=theory, count=0)
    nodes = dict(memory.nodes)
    # Topics are called concepts here. The edge may lie below several of them.
    for concept_id, ids_of_relations_below in memory.relations_below().items():
        if relation_id in ids_of_relations_below:
            nodes[concept_id] = _with_new_relation_theory(nodes[concept_id], relation_id)
    return memory.replace(nodes=nodes, relations={**memory.relations, relation_id: relation})


def _with_new_relation_theory(concept: Node, relation_id: str) -> Node:
    """Return a topic with a note that an edge (relation) to an event has a new summary.

    The edge lies below the topic, and the topic's score, which counts what is new, rises by 1. When
    it is high enough, the summary of the topic is renewed.
    """
    # `fresh_relations`: ids of the edges with summaries that the topic's summary does not reflect.
    # The edge may be there already, with an earlier summary; the new one counts nevertheless.
    fresh_relations = concept.fresh_relations
    if relation_id not in fresh_relations:
        fresh_relations = (*fresh_relations, relation_id)
    return concept.replace(score=concept.score + 1, fresh_relations=fresh_relations)


def with_concept_theory(memory: GraphMemory, concept_id: str, theory: Theory) -> GraphMemory:
    """Return the memory with a new summary (theory) of a topic, made from evidence on the topic.

    The summary reflects all evidence so far, so nothing counts as new at the topic any more (after
    R_K2; algorithm 1, lines 22 and 23).
    """
    # `own`: the summary from evidence on the topic itself, not on the topics below it.
    # `fresh` and `fresh_relations`: the evidence, and the edges with new summaries, that the
    # topic's summary does not reflect. `score` counts them.
    concept = memory.nodes[concept_id].replace(own=theory, fresh=(), fresh_relations=(), score=0)
    return memory.replace(nodes={**memory.nodes, concept_id: concept})


def _mark_dependents_dirty(memory: GraphMemory, concept_id: str) -> GraphMemory:
    """Return the memory with those topics marked as dirty that a topic's new summary affects.

    To be dirty means that a summary is out of date. The topics right above are dirty now, and so is
    the topic itself if topics lie below it: its second summary joins the new one with theirs
    (algorithm 1, line 24).
    """
    # The summaries of the parents are made from that of the topic.
    dirty_ids = list(memory.parents(concept_id))

    # Where no topic below has a summary, there is nothing to join.
    children = [memory.nodes[child_id] for child_id in memory.children(concept_id)]
    if any(child.theory for child in children):
        dirty_ids.append(concept_id)
    return _mark_dirty(memory, dirty_ids)


def with_parent_theory(memory: GraphMemory, parent_id: str, theory: Theory) -> GraphMemory:
    """Return the memory with a new summary (called a theory) of a broad topic, the parent.

    The summary was made from those of the topics below. The topic is now up to date; the topics
    right above it become dirty (out of date), since their summaries are made from this one
    (algorithm 1, lines 27 and 28).
    """
    # A topic keeps the summary that is made from the topics below it in the field `flow`.
    parent = memory.nodes[parent_id].replace(flow=theory, dirty=False)
    memory = memory.replace(nodes={**memory.nodes, parent_id: parent})
    return _mark_dirty(memory, memory.parents(parent_id))


def _mark_dirty(memory: GraphMemory, node_ids: Iterable[str]) -> GraphMemory:
    """Return the memory with some topics marked as dirty: their summaries are out of date."""
    nodes = dict(memory.nodes)
    for node_id in node_ids:
        nodes[node_id] = nodes[node_id].replace(dirty=True)
    return memory.replace(nodes=nodes)


def dirty_levels(memory: GraphMemory) -> list[list[str]]:
    """Return the ids of the topics to renew, those out of date and all above them, in levels.

    The summary of a topic is made from those of the topics below it, its children. So children
    stand in an earlier level than their parents, and the topics of one level can be renewed
    together.
    """
    sorter = TopologicalSorter[str]()
    concept_ids = [node.id for node in memory.nodes.values() if node.dirty]
    # The loop appends to the list that it runs over, so it also visits the parents of parents.
    for concept_id in concept_ids:
        sorter.add(concept_id)
        for parent_id in memory.parents(concept_id):
            # The parent comes after the topic.
            sorter.add(parent_id, concept_id)
            if parent_id not in concept_ids:
                concept_ids.append(parent_id)

    levels: list[list[str]] = []
    sorter.prepare()
    while sorter.is_active():
        # Ready are the topics with no children left to sort. They are the next level, in the order
        # of the graph.
        ready = sorter.get_ready()
        levels.append([node_id for node_id in memory.nodes if node_id in ready])
        sorter.done(*ready)
    return levels


def union_of_evidence(memory: GraphMemory, *id_groups: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of units of evidence from several groups, each once, oldest first."""
    ids: set[str] = set()
    for group in id_groups:
        ids.update(group)
    return tuple(evidence_id for evidence_id in memory.evidence if evidence_id in ids)
