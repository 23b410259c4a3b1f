"""RGMem's operators: their schedule over random graphs, when they fire, what they reset and are shown."""

import hashlib
import json
import re
import threading
from unittest import mock

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.programs.rgmem import evolution
from mempiler.programs.rgmem.evolution import evolve, microstates, project, union_of_evidence
from mempiler.programs.rgmem.graph import GraphPath, add_units
from mempiler.programs.rgmem.memory import Conclusion, Evidence, GraphMemory, Theory
from mempiler.programs.writing import write_items

from .conftest import graph_paths


class Hashing:
    """Operators whose theories are digests of all they are shown; every third or so gives none."""

    def __init__(self, fails=True):
        self.fails = fails
        self.asked = []
        self.waiting = 0
        """Parents that were asked about while a child of theirs was still dirty."""

    def made(self, operator, memory, target, shown, *evidence):
        self.asked.append((memory.step, operator, target))
        digest = hashlib.sha256(f"{target}{shown}".encode()).hexdigest()
        if self.fails and digest[0] in "01234":
            return None
        return Theory(sigma=digest, evidence=union_of_evidence(memory, *evidence), step=memory.step)

    def infer_relation(self, memory, relation):
        return self.made(
            "infer",
            memory,
            relation.id,
            relation,
            [mention.evidence for mention in relation.mentions],
        )

    def abstract_concept(self, memory, node):
        return self.made("abstract", memory, node.id, project(memory, node), node.evidence)

    def integrate_concept(self, memory, node):
        self.waiting += any(memory.nodes[child].dirty for child in memory.children(node.id))
        below = microstates(memory, node)
        return self.made("flow", memory, node.id, below, *(theory.evidence for _, theory in below))

    def rewrite_summary(self, memory, node):
        return self.made("rewrite", memory, node.id, node.fresh, node.fresh)


STEPS = st.lists(st.lists(graph_paths(), max_size=2), max_size=5)


def driven(steps, operators, theta_inf=2, theta_sum=3):
    memory = GraphMemory()
    for units in steps:
        memory = memory.model_copy(update={"step": memory.step + 1})
        for paths in units:
            id = f"e{len(memory.evidence) + 1}"
            memory = add_units(memory, [(Evidence(id=id, step=memory.step, fact=id), paths)])
        memory = evolve(memory, operators, theta_inf, theta_sum)
    return memory


@settings(max_examples=60)
@given(STEPS)
def test_operators_of_a_level_may_run_in_any_order_and_parents_follow_their_children(steps):
    memory = driven(steps, Hashing())
    with mock.patch.object(
        evolution, "gather", lambda calls: [call() for call in calls[::-1]][::-1]
    ):
        assert driven(steps, Hashing()) == memory
        operators = Hashing(fails=False)
        memory = driven(steps, operators)
    assert operators.waiting == 0
    assert len(operators.asked) == len(set(operators.asked))
    assert not any(node.dirty for node in memory.nodes.values())
    assert not any(node.tier == "abstract" and node.score >= 3 for node in memory.nodes.values())
    assert not any(edge.count >= 2 for edge in memory.relations.values())


FIRED = {
    "infer": {"Running": [3, 6, 9, 12], "Sleep": [5, 11]},
    # Sports: 1 2 3+1 5 6 | 1+1 3 4 5+1 | 1 2 3+1; Health, odd sessions: 1 2 3+1 5 6 | 1+1
    "abstract": {"Sports": [5, 9], "Health and Wellness": [9]},
    "flow": {"Interests and Entertainment": [5, 9], "User": [5, 9]},
}
"""Operator -> target -> steps; worked out by hand from algorithm 1 with theta_inf = 3, theta_sum = 6."""


def made(theta=3, **settings):
    """Ann and Bob share one graph here, so that the numbers below are those of one graph."""
    return build(
        "rgmem",
        embedder=embedder(),
        theta_inf=theta,
        theta_sum=2 * theta,
        merged_graph=True,
        **settings,
    )


@pytest.fixture
def grown(written, graph_replies, make_history):
    """Writes so many sessions: `grown(9, theta=3, reply=...)`."""
    return lambda sessions, theta=3, reply=graph_replies: written(
        made(theta), make_history(sessions), reply
    )


def fired(memories):
    """By operator and target the steps at which a theory was made, in memories after one session each."""
    found = {"infer": {}, "abstract": {}, "flow": {}}
    for memory in memories:
        nodes, edges = memory.nodes.values(), memory.relations.values()
        made = [("infer", memory.nodes[edge.target].name, edge.theory) for edge in edges]
        made += [
            each
            for node in nodes
            for each in (("abstract", node.name, node.own), ("flow", node.name, node.flow))
        ]
        for operator, name, theory in made:
            if theory and theory.step == memory.step:
                found[operator].setdefault(name, []).append(memory.step)
    return found


def test_the_operators_fire_at_their_thresholds(scripted, graph_replies, make_history):
    lm, writer, memories = scripted(graph_replies), made().method.writer, [GraphMemory()]
    with dspy.context(lm=lm):
        for item in make_history(12).items:
            memories.append(write_items(writer, memories[-1], [item]))
    assert fired(memories[1:]) == FIRED
    kinds = {"infer": "fact_summary", "abstract": "general_facts", "flow": "macro_law"}
    total = {kinds[op]: sum(map(len, rows.values())) for op, rows in FIRED.items()}
    assert {kind: lm.engine.calls[kind] for kind in total} == total


SEEN = {
    True: {
        "Running": ["Ann ran"],
        "Sleep": ["Bob saw"],
        "Sports": ["Ann ran"],
        "Health and Wellness": ["Bob saw"],
    },
    False: {
        **{name: ["Ann ran", "Bob saw"] for name in ("Running", "Sleep")},
        **{name: ["Ann ran"] for name in ("Sports", "Health and Wellness")},
    },
}
"""The conclusions that each operator's target is shown; the segment has one of high relevance, Ann's.

R_K1, of Running and Sleep, is shown base conclusions too (Eq. 6); R_K2 selects those of high relevance (Eq. 9).
"""


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize(
    ("thetas", "kind", "field"),
    [((1, 99), "fact_summary", "target_entity"), ((99, 1), "general_facts", "core_entity")],
)
def test_an_operator_sees_the_conclusions_of_its_edge_alone(
    written, graph_replies, make_history, linked, thetas, kind, field
):
    def reply(asked, text, n):
        if asked == "edge_labels":
            names = {"Running": ["c1"], "Sleep": ["[D1:2]"]}
            rows = re.findall(r'"segment_id": "(s\d)", "source": "[^"]*", "target": "(\w+)"', text)
            edges = [
                {"segment_id": id, "label": "x", "conclusions": names[target]}
                for id, target in rows
            ]
            return {"edge_labels": edges}
        return graph_replies(asked, text, n)

    settings = {
        "theta_inf": thetas[0],
        "theta_sum": thetas[1],
        "merged_graph": True,
        "linked": linked,
    }
    program = build("rgmem", embedder=embedder(), **settings)
    asked, found = written(program, make_history(1), reply), {}
    for target, lines in zip(
        asked.shown(kind, field), asked.shown(kind, "new_evidence"), strict=True
    ):
        found[target] = [
            line.split(") ")[1][:7] for line in json.loads(lines) if line.startswith("Conclusion")
        ]
    assert len(found) == 2
    assert found == {name: SEEN[linked][name] for name in found}


def test_an_edge_that_two_paths_share_has_the_conclusions_of_both_and_all_without_links():
    def shown(first, second):
        ways = (("A", first), ("B", second))
        paths = [
            GraphPath("Dining", (concept, "Food"), ("Steak",), ("x",), (link,))
            for concept, link in ways
        ]
        unit = Evidence(
            id="e1", step=1, fact="", conclusions=tuple(Conclusion(text=text) for text in "pqr")
        )
        (edge,) = add_units(GraphMemory(), [(unit, paths)]).relations.values()
        return edge.mentions[0].conclusions

    assert shown((0,), (2,)) == (0, 2)
    assert shown((), ()) == ()
    assert shown((1,), None) is None


@pytest.mark.parametrize("kind", ["fact_summary", "general_facts"])
def test_operators_of_one_level_run_at_the_same_time(grown, graph_replies, kind):
    """With theta_inf = 1 both relations, and both concepts, are due at step 1: each call waits for the other."""
    meet = threading.Barrier(2, timeout=10)

    def reply(asked, text, n):
        if asked == kind:
            meet.wait()
        return graph_replies(asked, text, n)

    calls = grown(1, 1, reply).calls
    assert [calls[name] for name in ("fact_summary", "general_facts", "macro_law")] == [2, 2, 2]


def test_theories_rest_on_evidence_and_so_on_turns(grown):
    memory = grown(9).memory
    running = next(
        edge for edge in memory.relations.values() if memory.nodes[edge.target].name == "Running"
    )
    assert running.theory.evidence == tuple(f"e{n}" for n in range(1, 10))
    user = memory.nodes["user"].flow
    assert user.evidence == tuple(f"e{n}" for n in range(1, 10))
    assert memory.turns(("e2", "e3"))[:7] == (
        "D2:1",
        "D2:2",
        "D2:3",
        "D2:4",
        "D2:5",
        "D2:6",
        "D3:1",
    )


def test_projection_prefers_relation_theories_to_the_evidence_in_them(grown):
    (text,) = grown(5).texts("general_facts")
    evidence = text.split("new_evidence ## ]]")[1]
    assert (
        "Inference about Running. Fact summary: relation theory 1. Inferred traits: steady."
        in evidence
    )
    assert [f"week {n}" in evidence for n in range(1, 6)] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("kind", "answer", "where"),
    [
        ("fact_summary", "no", "infer"),
        ("fact_summary", {"fact_summary": "", "inferred_traits": "- "}, "infer"),
        ("general_facts", "no", "abstract"),
        ("macro_law", "no", "flow"),
    ],
)
def test_an_operator_without_an_answer_is_tried_again_at_the_next_step(
    grown, graph_replies, kind, answer, where
):
    tries = 2 if answer == "no" else 1  # what cannot be parsed is asked again as JSON

    def reply(asked, text, n):
        return answer if asked == kind and n <= tries else graph_replies(asked, text, n)

    step = {"infer": 4, "abstract": 6, "flow": 6}[where]
    node = grown(step, reply=reply)
    assert [failure.where for failure in node.failures] == [where]
    assert min(fired([node.memory])[where].values()) == [step]
    assert not any(node.dirty for node in node.memory.nodes.values())
