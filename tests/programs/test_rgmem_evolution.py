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
script `rgmem_script` their theories are called "relation theory 1", "concept theory 1", "law 1".
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

from .conftest import Script, random_graph_paths

# The prompts that write theories, each by its output field.
THEORY_OF_EDGE = "fact_summary"
THEORY_OF_CONCEPT = "general_facts"
THEORY_OF_PARENT = "macro_law"


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

STEPS = st.lists(st.lists(random_graph_paths(), max_size=2), max_size=5)

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
    """An operator sums up evidence as a theory. The operators of a level run in threads.

    The memory must not depend on which thread ends first; `in_order` runs the operators one after
    another. Each step brings random evidence, and a third of the operators fail.
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
    """An operator sums up what is known of a concept, or of a parent that has concepts below it.

    A parent is summed up from the summaries of its children, so these have to be made first. Each
    call costs, so there must not be two of the same operator for the same target in a step.
    """
    operators = DigestOperators(fails=False)

    memory_after(steps, operators)

    assert operators.calls_before_children == 0
    assert len(operators.calls) == len(set(operators.calls))


@settings(max_examples=60)
@given(steps=STEPS)
def test_after_a_step_without_failures_every_theory_that_was_due_is_made(steps: Steps) -> None:
    """A theory sums up what is known. It is due when enough is new.

    Of a concept the score says how much is new, and of an edge the count. A parent is dirty while a
    concept below it has a new theory that the parent's own theory does not know yet.
    """
    memory = memory_after(steps, DigestOperators(fails=False))

    for node in memory.nodes.values():
        assert not node.dirty
        if node.tier == "abstract":
            assert node.score < THETA_SUM
    for edge in memory.relations.values():
        assert edge.count < THETA_INF


# The thresholds, with a scripted model


def shared_graph_program(theta_inf: int, theta_sum: int, **settings: Any) -> Any:
    """Return RGMem with one graph for all speakers.

    With a graph for each speaker, the numbers below would be those of several graphs.
    """
    return build(
        "rgmem",
        embedder=embedder(),
        merged_graph=True,
        theta_inf=theta_inf,
        theta_sum=theta_sum,
        **settings,
    )


@pytest.fixture
def write_sessions(write_memory: Any, rgmem_script: Any, make_history: Any) -> Callable[..., Any]:
    """Return a function that writes sessions: `write_sessions(sessions=9, theta_inf=3, reply=...)`.

    By default the thresholds are so high that no theory is due. By the script `rgmem_script` the
    evidence of session 4 is e4, which tells of week 4. Every session is about running, which
    belongs to Sports, and odd sessions also about sleep, which belongs to Health and Wellness.
    """

    def write_sessions(
        sessions: int, theta_inf: int = 99, theta_sum: int = 99, reply: Any = rgmem_script
    ) -> Any:
        program = shared_graph_program(theta_inf, theta_sum)
        return write_memory(program, make_history(sessions), reply)

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


def targets_of_new_theories(memory: GraphMemory, operator: str) -> list[str]:
    """Return the names of what an operator has made theories of at the latest step."""
    return [
        target
        for theory_operator, target, theory in theories_of(memory)
        if theory_operator == operator and theory is not None and theory.step == memory.step
    ]


@pytest.fixture
def steps_with_theories(
    scripted: Any, rgmem_script: Any, make_history: Any
) -> Callable[..., dict[str, list[int]]]:
    """Return a function that says at which sessions an operator has made theories.

    `steps_with_theories("infer", sessions=6, theta_inf=3, theta_sum=6)` is {"Running": [3, 6],
    "Sleep": [5]}. Every session is about running, and the sessions 1, 3, 5, ... about sleep too.
    """

    def write_session_by_session(
        operator: str, sessions: int, theta_inf: int, theta_sum: int
    ) -> dict[str, list[int]]:
        writer = shared_graph_program(theta_inf, theta_sum).method.writer
        steps: dict[str, list[int]] = {}
        memory = GraphMemory()
        with dspy.context(lm=scripted(rgmem_script)):
            for item in make_history(sessions=sessions).items:
                memory = write_items(writer, memory, [item])
                for target in targets_of_new_theories(memory, operator):
                    steps.setdefault(target, []).append(memory.step)
        return steps

    return write_session_by_session


def test_the_edge_to_an_event_gets_a_theory_after_every_third_mention(
    steps_with_theories: Any,
) -> None:
    """A theory sums up what was said of an event. The operator R_K1, here "infer", writes it.

    Every session mentions running, and the sessions 1, 3, 5, ... mention sleep too.
    """
    steps = steps_with_theories("infer", sessions=6, theta_inf=3, theta_sum=99)

    assert steps == {"Running": [3, 6], "Sleep": [5]}


def test_a_concept_gets_a_theory_when_its_score_reaches_the_threshold(
    steps_with_theories: Any,
) -> None:
    """The score counts the sessions about a concept. The operator R_K2 is called "abstract" here.

    Every session is about sports, and the sessions 1, 3, 5, ... are about health too.
    """
    steps = steps_with_theories("abstract", sessions=6, theta_inf=99, theta_sum=3)

    assert steps == {"Sports": [3, 6], "Health and Wellness": [5]}


def test_a_new_theory_of_an_edge_below_a_concept_counts_in_its_score_too(
    steps_with_theories: Any,
) -> None:
    """The concept Sports has the event Running, of which every session tells.

    The edge between them gets a theory at session 2, so that the score of Sports is 3 already: two
    for the two sessions, and one for the theory.
    """
    steps = steps_with_theories("abstract", sessions=2, theta_inf=2, theta_sum=3)

    assert steps == {"Sports": [2]}


def test_a_parent_gets_a_theory_whenever_a_concept_below_it_has_a_new_one(
    steps_with_theories: Any,
) -> None:
    """Sports, which gets a theory at every third session, is below Interests, and that below User.

    Health, which is right below User, gets one at session 5. The operator R_K3, here "flow", writes
    the theories of parents.
    """
    steps = steps_with_theories("flow", sessions=6, theta_inf=99, theta_sum=3)

    assert steps == {"Interests and Entertainment": [3, 6], "User": [3, 5, 6]}


@pytest.mark.parametrize("output", [THEORY_OF_EDGE, THEORY_OF_CONCEPT])
def test_operators_of_one_level_run_at_the_same_time(
    write_sessions: Any, rgmem_script: Any, output: str
) -> None:
    """Calls that need not wait for each other are made at once, so that a user waits less.

    With thresholds of 1, the first session gives theories to two edges, of running and of sleep,
    and to their two concepts.
    """
    # The barrier lets no call through until the other one waits as well.
    barrier = threading.Barrier(2, timeout=10)

    def wait_for_the_other_call(kind: str, text: str, n: int) -> Any:
        if kind == output:
            barrier.wait()
        return rgmem_script(kind, text, n)

    result = write_sessions(sessions=1, theta_inf=1, theta_sum=1, reply=wait_for_the_other_call)

    assert result.calls[output] == 2
    assert not barrier.broken


def answer_at_first(script: Script, output: str, bad_answer: Any, times: int) -> Script:
    """Return a script whose first answers with this output are bad."""

    def reply(kind: str, text: str, n: int) -> Any:
        if kind == output and n <= times:
            return bad_answer
        return script(kind, text, n)

    return reply


@pytest.mark.parametrize(
    ("output", "operator", "target"),
    [
        (THEORY_OF_EDGE, "infer", "Running"),
        (THEORY_OF_CONCEPT, "abstract", "Sports"),
        (THEORY_OF_PARENT, "flow", "Interests and Entertainment"),
    ],
)
def test_a_theory_that_cannot_be_read_is_asked_for_again_at_the_next_session(
    write_sessions: Any, rgmem_script: Any, output: str, operator: str, target: str
) -> None:
    """A theory that could not be read stays due, so that no evidence is forgotten.

    With thresholds of 2 the theory is due at session 2, where the model answers unreadably: "no".
    """
    # An unreadable answer is asked for once more in the same session.
    reply = answer_at_first(rgmem_script, output, bad_answer="no", times=2)

    result = write_sessions(sessions=3, theta_inf=2, theta_sum=2, reply=reply)

    assert [failure.where for failure in result.failures] == [operator]
    # The third session has made the theory.
    assert target in targets_of_new_theories(result.memory, operator)


def test_a_theory_without_text_is_asked_for_again_at_the_next_session(
    write_sessions: Any, rgmem_script: Any
) -> None:
    """The answer can be read, but says nothing, so the theory of running stays due."""
    empty_theory = {"fact_summary": "", "inferred_traits": "- "}
    reply = answer_at_first(rgmem_script, THEORY_OF_EDGE, bad_answer=empty_theory, times=1)

    result = write_sessions(sessions=3, theta_inf=2, reply=reply)

    assert [failure.where for failure in result.failures] == ["infer"]
    assert "Running" in targets_of_new_theories(result.memory, "infer")


# What the operators are shown


def test_theories_rest_on_all_evidence_below_them(write_sessions: Any) -> None:
    """For each theory a user can be shown the evidence that it was made from.

    The evidence of the three sessions is e1, e2 and e3. With thresholds of 1 each session renews
    the theory of the edge to the event Running, and that of the user at the top of the graph.
    """
    memory = write_sessions(sessions=3, theta_inf=1, theta_sum=1).memory

    (running_edge,) = [
        edge for edge in memory.relations.values() if memory.nodes[edge.target].name == "Running"
    ]
    assert running_edge.theory.evidence == ("e1", "e2", "e3")
    assert memory.nodes["user"].flow.evidence == ("e1", "e2", "e3")


def test_a_concept_is_shown_theories_of_edges_in_place_of_the_evidence_in_them(
    write_sessions: Any,
) -> None:
    """A theory is shorter than the evidence that it sums up.

    At session 2 the edge to the event Running gets a theory, which sums up week 1 and week 2. At
    session 3, which tells of week 3, its concept Sports gets a theory.
    """
    result = write_sessions(sessions=3, theta_inf=2, theta_sum=4)

    (new_evidence,) = result.prompt_fields(THEORY_OF_CONCEPT, "new_evidence")
    theory = "Inference about Running. Fact summary: relation theory 1. Inferred traits: steady."
    assert theory in new_evidence
    assert "week 1" not in new_evidence
    assert "week 2" not in new_evidence
    assert "week 3" in new_evidence


@pytest.fixture
def linking_reply(rgmem_script: Any) -> Any:
    """Scripted RGMem whose edge to Running rests on Ann's conclusion, and that to Sleep on Bob's.

    Ann's conclusion, "Ann ran ...", is of high relevance, and Bob's, "Bob saw ...", is not.
    """

    def reply(kind: str, text: str, n: int) -> Any:
        if kind != "edge_labels":
            return rgmem_script(kind, text, n)

        # A model may name a conclusion by its own id, or by the turn that it comes from.
        conclusions = {"Running": ["c1"], "Sleep": ["[D1:2]"]}
        edges = re.findall(r'"segment_id": "(s\d)", "source": "[^"]*", "target": "(\w+)"', text)
        labels = [
            {"segment_id": segment_id, "label": "x", "conclusions": conclusions[target]}
            for segment_id, target in edges
        ]
        return {"edge_labels": labels}

    return reply


def shown_conclusions(result: Any, output: str, target_field: str) -> dict[str, list[str]]:
    """Return the first two words of the conclusions that an operator was shown, by target."""
    targets = result.prompt_fields(output, target_field)
    evidence_lists = result.prompt_fields(output, "new_evidence")
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


@pytest.fixture
def write_linked_session(write_memory: Any, linking_reply: Any, make_history: Any) -> Any:
    """Return a function that writes one session: `write_linked_session(linked=True, theta_inf=1)`.

    The session tells of running, which belongs to Sports, and of sleep, which belongs to Health.
    Its conclusions are "Ann ran ...", of high relevance, and "Bob saw ...", of low relevance. With
    `linked` the model says that the first is about running, and the second about sleep.
    """

    def write(linked: bool, theta_inf: int = 99, theta_sum: int = 99) -> Any:
        program = shared_graph_program(theta_inf, theta_sum, linked=linked)
        return write_memory(program, make_history(sessions=1), linking_reply)

    return write


def test_an_edge_is_shown_the_conclusions_about_it(write_linked_session: Any) -> None:
    """A theory of running is made from what was said about running, whatever its relevance (Eq. 6).

    The model says that "Ann ran" is about running, and "Bob saw" about sleep.
    """
    result = write_linked_session(linked=True, theta_inf=1)

    assert shown_conclusions(result, THEORY_OF_EDGE, "target_entity") == {
        "Running": ["Ann ran"],
        "Sleep": ["Bob saw"],
    }


def test_without_links_an_edge_is_shown_all_conclusions_of_its_session(
    write_linked_session: Any,
) -> None:
    """Nobody says which conclusions are about running, and which about sleep."""
    result = write_linked_session(linked=False, theta_inf=1)

    assert shown_conclusions(result, THEORY_OF_EDGE, "target_entity") == {
        "Running": ["Ann ran", "Bob saw"],
        "Sleep": ["Ann ran", "Bob saw"],
    }


def test_a_concept_is_shown_conclusions_of_high_relevance_alone(
    write_linked_session: Any,
) -> None:
    """A concept sums up many events, so it leaves out what matters less (Eq. 9).

    The session is about sports and about health. Only "Ann ran" is of high relevance, and not
    "Bob saw".
    """
    result = write_linked_session(linked=False, theta_sum=1)

    assert shown_conclusions(result, THEORY_OF_CONCEPT, "core_entity") == {
        "Sports": ["Ann ran"],
        "Health and Wellness": ["Ann ran"],
    }


def test_a_concept_without_conclusions_of_high_relevance_is_shown_the_others(
    write_linked_session: Any,
) -> None:
    """The model says that only "Bob saw" is about health. It is of low relevance."""
    result = write_linked_session(linked=True, theta_sum=1)

    conclusions = shown_conclusions(result, THEORY_OF_CONCEPT, "core_entity")
    assert conclusions["Health and Wellness"] == ["Bob saw"]


@pytest.mark.parametrize(
    ("first_link", "second_link", "linked_conclusions"),
    [
        pytest.param((0,), (2,), (0, 2), id="the conclusions of both paths"),
        pytest.param((), (), (), id="none"),
        # None stands for all conclusions.
        pytest.param((1,), None, None, id="all, if a path does not say"),
    ],
)
def test_an_edge_that_two_paths_share_has_the_conclusions_of_both(
    first_link: tuple[int, ...],
    second_link: tuple[int, ...] | None,
    linked_conclusions: tuple[int, ...] | None,
) -> None:
    """Evidence is filed under paths of names that end in an event, here "Steak".

    A link says which conclusions the last edge of a path is about: 0 is the first conclusion.
    """
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

    # Both paths end in the edge from Food to Steak, which the evidence mentions once.
    (edge,) = memory.relations.values()
    (mention,) = edge.mentions
    assert mention.conclusions == linked_conclusions
