"""RGMem's operators: when they make theories, what they are shown, and what happens when they fail.

RGMem files the evidence of each session, a fact with conclusions, under paths of a graph: from a
base through concepts down to an event, "Interests > Sports > Running". A step takes in the evidence
of one session. Then operators write theories, which sum up what is known:

- R_K1, "infer", writes one of an edge to an event after theta_inf new mentions of the event;
- R_K2, "abstract", writes one of a concept from its evidence after theta_sum new units of evidence
  and theories of edges;
- R_K3, "flow", writes one of a parent from those of its concepts whenever one of these is new: the
  parent is "dirty" until then.

The prompts of the three have the outputs "fact_summary", "general_facts" and "macro_law". By the
script `graph_replies` their theories are called "relation theory 1", "concept theory 1", "law 1".
Numbers of equations (Eq.) and algorithms are those of the paper.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.programs.rgmem.evolution import evolve, microstates, project, union_of_evidence
from mempiler.programs.rgmem.graph import GraphPath, add_units
from mempiler.programs.rgmem.memory import (
    Conclusion,
    Evidence,
    GraphMemory,
    Node,
    Relation,
    Theory,
)
from mempiler.programs.threads import in_order
from mempiler.programs.writing import write_items

from .conftest import graph_paths

# The schedule over random graphs


class OperatorCall(NamedTuple):
    """One call of an operator."""

    step: int
    operator: str
    target: str
    """Id of the edge or the node that the theory is of."""


class DigestOperators:
    """Operators that ask no model: a theory is a digest of all that the operator is shown.

    So two theories are equal only if their operators were shown the same.

    Args:
        fails: Whether a third of the calls give no theory, as if an answer could not be read.
    """

    def __init__(self, fails: bool) -> None:
        self._fails = fails
        self.calls: list[OperatorCall] = []
        self.calls_before_children = 0
        """Calls about a parent while a concept below it was still to be summed up."""

    def infer_relation(self, memory: GraphMemory, relation: Relation) -> Theory | None:
        evidence_ids = [mention.evidence for mention in relation.mentions]
        return self._theory("infer", memory, relation.id, relation, evidence_ids)

    def abstract_concept(self, memory: GraphMemory, node: Node) -> Theory | None:
        return self._theory("abstract", memory, node.id, project(memory, node), node.evidence)

    def integrate_concept(self, memory: GraphMemory, node: Node) -> Theory | None:
        if any(memory.nodes[child_id].dirty for child_id in memory.children(node.id)):
            self.calls_before_children += 1
        named_theories = microstates(memory, node)
        evidence_ids = [theory.evidence for _, theory in named_theories]
        return self._theory("flow", memory, node.id, named_theories, *evidence_ids)

    def _theory(
        self,
        operator: str,
        memory: GraphMemory,
        target: str,
        shown: Any,
        *evidence_ids: Iterable[str],
    ) -> Theory | None:
        self.calls.append(OperatorCall(memory.step, operator, target))
        digest = hashlib.sha256(f"{target}{shown}".encode()).hexdigest()
        # The first of 16 hexadecimal digits
        if self._fails and digest[0] in "01234":
            return None
        evidence = union_of_evidence(memory, *evidence_ids)
        return Theory(sigma=digest, evidence=evidence, step=memory.step)


Steps = Sequence[Sequence[Sequence[GraphPath]]]
"""Steps with units of evidence, each with its paths."""

STEPS = st.lists(st.lists(graph_paths(), max_size=2), max_size=5)

THETA_INF = 2
THETA_SUM = 3


def memory_after(steps: Steps, operators: Any) -> GraphMemory:
    """Return a memory that took in the evidence of some steps, and evolved after each."""
    memory = GraphMemory()
    for units in steps:
        memory = memory.model_copy(update={"step": memory.step + 1})
        for paths in units:
            evidence_id = f"e{len(memory.evidence) + 1}"
            unit = Evidence(id=evidence_id, step=memory.step, fact=evidence_id)
            memory = add_units(memory, [(unit, paths)])
        memory = evolve(memory, operators, theta_inf=THETA_INF, theta_sum=THETA_SUM)
    return memory


@settings(max_examples=60)
@given(steps=STEPS)
def test_operators_of_a_level_may_run_concurrently_or_one_after_another(steps: Steps) -> None:
    """Operators run in threads, and the memory must not depend on which of them ends first.

    `in_order` runs them one after another. The steps are random graphs of evidence.
    """
    concurrent_memory = memory_after(steps, DigestOperators(fails=True))
    with in_order():
        sequential_memory = memory_after(steps, DigestOperators(fails=True))

    assert sequential_memory == concurrent_memory


@settings(max_examples=60)
@given(steps=STEPS)
def test_each_operator_is_called_once_a_step_and_parents_after_their_children(
    steps: Steps,
) -> None:
    """Each call costs, and a parent is summed up from the theories of its children."""
    operators = DigestOperators(fails=False)
    memory_after(steps, operators)

    assert operators.calls_before_children == 0
    # Two equal calls would be of the same operator for the same target at the same step.
    assert len(operators.calls) == len(set(operators.calls))


@settings(max_examples=60)
@given(steps=STEPS)
def test_after_a_step_without_failures_every_theory_that_was_due_is_made(steps: Steps) -> None:
    """No node is dirty, and no count has reached its threshold."""
    memory = memory_after(steps, DigestOperators(fails=False))

    for node in memory.nodes.values():
        assert not node.dirty
        if node.tier == "abstract":
            assert node.score < THETA_SUM
    for edge in memory.relations.values():
        assert edge.count < THETA_INF


# The thresholds, with a scripted model


def shared_graph_program(theta: int = 3, **settings: Any) -> Any:
    """Return RGMem with theta_inf = theta, theta_sum = 2 theta, and one graph for all speakers.

    With a graph for each speaker, the numbers below would be those of several graphs.
    """
    thresholds = {"theta_inf": theta, "theta_sum": 2 * theta}
    return build("rgmem", embedder=embedder(), **{**thresholds, "merged_graph": True, **settings})


@pytest.fixture
def write_sessions(written: Any, graph_replies: Any, make_history: Any) -> Callable[..., Any]:
    """Write scripted sessions: `write_sessions(9, theta=3, reply=...)`.

    By the script `graph_replies` the evidence of session 4 is e4, which tells of week 4. Every
    session is about running, which belongs to Sports, and odd sessions also about sleep, which
    belongs to Health and Wellness.
    """

    def write_sessions(sessions: int, theta: int = 3, reply: Any = graph_replies) -> Any:
        return written(shared_graph_program(theta), make_history(sessions), reply)

    return write_sessions


class NamedTheory(NamedTuple):
    """A theory in a memory, or None for one that was not made yet."""

    operator: str
    target: str
    theory: Theory | None


def theories_of(memory: GraphMemory) -> list[NamedTheory]:
    """Return what the operators have made for each edge and each node."""
    theories: list[NamedTheory] = []
    for edge in memory.relations.values():
        theories.append(NamedTheory("infer", memory.nodes[edge.target].name, edge.theory))
    for node in memory.nodes.values():
        theories.append(NamedTheory("abstract", node.name, node.own))
        theories.append(NamedTheory("flow", node.name, node.flow))
    return theories


def steps_of_new_theories(memories: Iterable[GraphMemory]) -> dict[str, dict[str, list[int]]]:
    """Return the steps at which theories were made: {"infer": {"Running": [3, 6]}, ...}.

    Args:
        memories: Memories, each after a step of its own.
    """
    steps: dict[str, dict[str, list[int]]] = {"infer": {}, "abstract": {}, "flow": {}}
    for memory in memories:
        for operator, target, theory in theories_of(memory):
            if theory is not None and theory.step == memory.step:
                steps[operator].setdefault(target, []).append(memory.step)
    return steps


def test_the_operators_make_theories_at_their_thresholds(
    scripted: Any, graph_replies: Any, make_history: Any
) -> None:
    """The expected steps are worked out by hand from algorithm 1 of the paper."""
    lm = scripted(graph_replies)
    writer = shared_graph_program(theta=3).method.writer
    memories: list[GraphMemory] = []
    memory = GraphMemory()
    with dspy.context(lm=lm):
        for item in make_history(sessions=12).items:
            memory = write_items(writer, memory, [item])
            memories.append(memory)

    new_theories = steps_of_new_theories(memories)
    # theta_inf = 3. Every session mentions running, and the odd ones, 1 3 5 7 9 11, sleep.
    assert new_theories["infer"] == {"Running": [3, 6, 9, 12], "Sleep": [5, 11]}
    # theta_sum = 6. Each session counts one for its concepts, and a new theory of an edge one more.
    # From step to step Sports has the scores 1 2 3+1 5 6 | 1+1 3 4 5+1 | 1 2 3+1, where "|" is a
    # new theory of the concept. Health has, in odd sessions, 1 2 3+1 5 6 | 1+1.
    assert new_theories["abstract"] == {"Sports": [5, 9], "Health and Wellness": [9]}
    # Health is a base itself. So its theory flows into that of the user at once.
    assert new_theories["flow"] == {"Interests and Entertainment": [5, 9], "User": [5, 9]}

    # One call of the model for each theory
    assert lm.engine.calls["fact_summary"] == 4 + 2
    assert lm.engine.calls["general_facts"] == 2 + 1
    assert lm.engine.calls["macro_law"] == 2 + 2


@pytest.mark.parametrize("output", ["fact_summary", "general_facts"])
def test_operators_of_one_level_run_at_the_same_time(
    write_sessions: Any, graph_replies: Any, output: str
) -> None:
    """Calls that need not wait for each other are made at once, so that a user waits less."""
    # With theta = 1, both edges and both concepts need a theory at once. Each call waits for the
    # other.
    barrier = threading.Barrier(2, timeout=10)

    def reply(kind: str, text: str, n: int) -> Any:
        if kind == output:
            barrier.wait()
        return graph_replies(kind, text, n)

    calls = write_sessions(1, theta=1, reply=reply).calls

    # Running and Sleep, then Sports and Health, then Interests and the user
    assert calls["fact_summary"] == 2
    assert calls["general_facts"] == 2
    assert calls["macro_law"] == 2


@pytest.mark.parametrize(
    ("output", "answer", "bad_answers", "operator", "step"),
    [
        # With theta = 3 a theory of Running is due at step 3, and those of Sports and its parents
        # at step 5: one before the step here. What cannot be parsed is asked for twice at a step.
        pytest.param("fact_summary", "no", 2, "infer", 4, id="unreadable-theory-of-an-edge"),
        pytest.param(
            "fact_summary",
            {"fact_summary": "", "inferred_traits": "- "},
            1,
            "infer",
            4,
            id="empty-theory-of-an-edge",
        ),
        pytest.param("general_facts", "no", 2, "abstract", 6, id="unreadable-theory-of-a-concept"),
        pytest.param("macro_law", "no", 2, "flow", 6, id="unreadable-theory-of-a-parent"),
    ],
)
def test_an_operator_without_an_answer_is_tried_again_at_the_next_step(
    write_sessions: Any,
    graph_replies: Any,
    output: str,
    answer: Any,
    bad_answers: int,
    operator: str,
    step: int,
) -> None:
    """A theory that could not be read stays due, so that no evidence is forgotten."""

    def reply(kind: str, text: str, n: int) -> Any:
        if kind == output and n <= bad_answers:
            return answer
        return graph_replies(kind, text, n)

    writing = write_sessions(sessions=step, reply=reply)

    assert [failure.where for failure in writing.failures] == [operator]
    # The last step has made the theory, and nothing is left to do.
    steps_by_target = steps_of_new_theories([writing.memory])[operator]
    assert steps_by_target
    assert all(steps == [step] for steps in steps_by_target.values())
    assert not any(node.dirty for node in writing.memory.nodes.values())


# What the operators are shown


def test_theories_rest_on_all_evidence_below_them(write_sessions: Any) -> None:
    """For each theory a user can be shown the evidence that it was made from."""
    # Running and the user got new theories at step 9.
    memory = write_sessions(sessions=9, theta=3).memory

    all_evidence = ("e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9")
    (running_edge,) = [
        edge for edge in memory.relations.values() if memory.nodes[edge.target].name == "Running"
    ]
    assert running_edge.theory.evidence == all_evidence
    assert memory.nodes["user"].flow.evidence == all_evidence


def test_evidence_rests_on_the_turns_of_its_sessions(write_sessions: Any) -> None:
    """The evidence e2 was made from the session D2, and e3 from D3."""
    # Every session has six turns.
    memory = write_sessions(sessions=3).memory

    turn_ids = memory.turns(("e2", "e3"))
    assert turn_ids[:6] == ("D2:1", "D2:2", "D2:3", "D2:4", "D2:5", "D2:6")
    assert turn_ids[6] == "D3:1"


def test_a_concept_is_shown_theories_of_edges_in_place_of_the_evidence_in_them(
    write_sessions: Any,
) -> None:
    """A theory is shorter than the evidence that it sums up."""
    # The edge to Running got a theory at step 3, and its concept, Sports, gets one at step 5.
    (new_evidence,) = write_sessions(sessions=5, theta=3).shown("general_facts", "new_evidence")

    theory = "Inference about Running. Fact summary: relation theory 1. Inferred traits: steady."
    assert theory in new_evidence
    # The theory of the edge is of the sessions 1 to 3.
    for week in ("week 1", "week 2", "week 3"):
        assert week not in new_evidence
    for week in ("week 4", "week 5"):
        assert week in new_evidence


@pytest.fixture
def linking_reply(graph_replies: Any) -> Any:
    """Scripted RGMem whose edge to Running rests on Ann's conclusion, and that to Sleep on Bob's.

    Ann's conclusion, "Ann ran ...", is of high relevance, and Bob's, "Bob saw ...", is not.
    """

    def reply(kind: str, text: str, n: int) -> Any:
        if kind != "edge_labels":
            return graph_replies(kind, text, n)

        # A model may name a conclusion by its own id, or by the turn that it comes from.
        conclusions = {"Running": ["c1"], "Sleep": ["[D1:2]"]}
        edges = re.findall(r'"segment_id": "(s\d)", "source": "[^"]*", "target": "(\w+)"', text)
        labels = [
            {"segment_id": segment_id, "label": "x", "conclusions": conclusions[target]}
            for segment_id, target in edges
        ]
        return {"edge_labels": labels}

    return reply


def shown_conclusions(writing: Any, output: str, target_field: str) -> dict[str, list[str]]:
    """Return the first two words of the conclusions that an operator was shown, by target."""
    targets = writing.shown(output, target_field)
    evidence_lists = writing.shown(output, "new_evidence")
    conclusions_by_target: dict[str, list[str]] = {}
    for target, evidence in zip(targets, evidence_lists, strict=True):
        conclusions: list[str] = []
        for line in json.loads(evidence):
            if line.startswith("Conclusion"):
                # After "Conclusion (3 January 2024) "
                words = line.split(") ")[1].split()
                conclusions.append(" ".join(words[:2]))
        conclusions_by_target[target] = conclusions
    return conclusions_by_target


@pytest.mark.parametrize(
    ("linked", "about_running", "about_sleep"),
    [
        (True, ["Ann ran"], ["Bob saw"]),
        # Without links every conclusion of a session counts for each of its edges.
        (False, ["Ann ran", "Bob saw"], ["Ann ran", "Bob saw"]),
    ],
)
def test_an_edge_is_shown_the_conclusions_about_it_of_any_relevance(
    written: Any,
    linking_reply: Any,
    make_history: Any,
    linked: bool,
    about_running: list[str],
    about_sleep: list[str],
) -> None:
    """A theory of running is made from what was said about running (Eq. 6).

    With `linked` the model says for each edge which conclusions are about it.
    """
    # Concepts get no theory here, since theta_sum is never reached.
    program = shared_graph_program(theta_inf=1, theta_sum=99, linked=linked)

    writing = written(program, make_history(sessions=1), linking_reply)

    assert shown_conclusions(writing, "fact_summary", "target_entity") == {
        "Running": about_running,
        "Sleep": about_sleep,
    }


@pytest.mark.parametrize(
    ("linked", "about_sports", "about_health"),
    [
        # Only Bob's conclusion is about sleep. It is not of high relevance, but the only one.
        (True, ["Ann ran"], ["Bob saw"]),
        (False, ["Ann ran"], ["Ann ran"]),
    ],
)
def test_a_concept_is_shown_the_conclusions_of_high_relevance_if_there_are_any(
    written: Any,
    linking_reply: Any,
    make_history: Any,
    linked: bool,
    about_sports: list[str],
    about_health: list[str],
) -> None:
    """A concept sums up many events, so it leaves out what matters less (Eq. 9)."""
    # Edges get no theory here, since theta_inf is never reached.
    program = shared_graph_program(theta_inf=99, theta_sum=1, linked=linked)

    writing = written(program, make_history(sessions=1), linking_reply)

    assert shown_conclusions(writing, "general_facts", "core_entity") == {
        "Sports": about_sports,
        "Health and Wellness": about_health,
    }


@pytest.mark.parametrize(
    ("first_link", "second_link", "linked_conclusions"),
    [
        pytest.param((0,), (2,), (0, 2), id="those-of-both-paths"),
        pytest.param((), (), (), id="none"),
        # None stands for all conclusions.
        pytest.param((1,), None, None, id="all-if-a-path-does-not-say"),
    ],
)
def test_an_edge_that_two_paths_share_has_the_conclusions_of_both(
    first_link: tuple[int, ...],
    second_link: tuple[int, ...] | None,
    linked_conclusions: tuple[int, ...] | None,
) -> None:
    """A path may say which conclusions its edge to the event is about, by their positions."""
    paths = [
        GraphPath("Dining", concepts=("A", "Food"), events=("Steak",), linked=(first_link,)),
        GraphPath("Dining", concepts=("B", "Food"), events=("Steak",), linked=(second_link,)),
    ]
    conclusions = (
        Conclusion(text="likes it rare"),
        Conclusion(text="ate at noon"),
        Conclusion(text="paid in cash"),
    )
    unit = Evidence(id="e1", step=1, fact="had a steak", conclusions=conclusions)

    memory = add_units(GraphMemory(), [(unit, paths)])

    # Both paths end in the edge from Food to Steak.
    (edge,) = memory.relations.values()
    (mention,) = edge.mentions
    assert mention.conclusions == linked_conclusions
