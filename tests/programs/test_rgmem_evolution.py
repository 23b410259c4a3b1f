"""The schedule of RGMem's operators over random graphs, with operators that need no model."""

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.programs.gather import gather
from mempiler.programs.rgmem.evolution import evolve, single_scale
from mempiler.programs.rgmem.graph_update import GraphPath, taken_in
from mempiler.programs.rgmem.memory import BASES, Evidence, GraphMemory, Theory
from mempiler.programs.rgmem.operators import microstates, projected
from mempiler.programs.rgmem.theories import joined, levels


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
        return Theory(sigma=digest, evidence=joined(memory, *evidence), step=memory.step)

    def relation(self, memory, relation):
        return self.made("infer", memory, relation.id, relation, [mention.evidence for mention in relation.mentions])

    def concept(self, memory, node):
        return self.made("abstract", memory, node.id, projected(memory, node), node.evidence)

    def parent(self, memory, node):
        self.waiting += any(memory.nodes[child].dirty for child in memory.children(node.id))
        below = microstates(memory, node)
        return self.made("flow", memory, node.id, below, *(theory.evidence for _, theory in below))

    def rewrite(self, memory, node):
        return self.made("rewrite", memory, node.id, node.fresh, node.fresh)


def in_order(calls):
    return [call() for call in calls]


def backwards(calls):
    return [call() for call in calls[::-1]][::-1]


PATHS = st.lists(
    st.builds(
        GraphPath,
        st.sampled_from(BASES[:2]),
        st.lists(st.sampled_from(["Alpha", "Beta", "Gamma", "Delta"]), max_size=3).map(tuple),
        st.lists(st.sampled_from(["Run", "Swim", "Read"]), min_size=1, max_size=2).map(tuple),
    ),
    max_size=3,
)
STEPS = st.lists(st.lists(PATHS, max_size=2), max_size=5)


def driven(steps, operators, together, theta_inf=2, theta_sum=3):
    memory = GraphMemory()
    for units in steps:
        memory = memory.model_copy(update={"step": memory.step + 1})
        for paths in units:
            id = f"e{len(memory.evidence) + 1}"
            memory = taken_in(memory, [(Evidence(id=id, step=memory.step, fact=id), paths)])
        memory = evolve(memory, operators, theta_inf, theta_sum, together)
    return memory


@settings(max_examples=60)
@given(STEPS, st.integers(1, 3), st.integers(1, 4))
def test_operators_of_one_level_may_run_in_any_order_and_at_once(steps, theta_inf, theta_sum):
    memory = driven(steps, Hashing(), in_order, theta_inf, theta_sum)
    assert driven(steps, Hashing(), backwards, theta_inf, theta_sum) == memory
    assert driven(steps, Hashing(), gather, theta_inf, theta_sum) == memory


@settings(max_examples=60)
@given(STEPS)
def test_parents_follow_their_children_and_nobody_is_asked_twice_in_a_step(steps):
    operators = Hashing(fails=False)
    memory = driven(steps, operators, in_order)
    assert operators.waiting == 0
    assert len(operators.asked) == len(set(operators.asked))
    assert not any(node.dirty for node in memory.nodes.values())
    assert not any(node.tier == "abstract" and node.score >= 3 for node in memory.nodes.values())
    assert not any(edge.count >= 2 for edge in memory.relations.values())
    assert all(entry.theory.evidence for entry in memory.journal)


@given(STEPS)
def test_the_depth_is_the_number_of_rounds_that_had_a_theory(steps):
    rounds = 0

    def counted(calls):
        nonlocal rounds
        rounds += bool(calls)
        return in_order(calls)

    assert driven(steps, Hashing(fails=False), counted).depth() == rounds


def test_levels_of_a_diamond_wait_for_the_longest_way():
    paths = [GraphPath("Dining", ("Top", "Left", "Low"), ("Run",)), GraphPath("Dining", ("Top", "Low"), ("Run",))]
    memory = taken_in(GraphMemory(), [(Evidence(id="e1", step=1, fact=""), paths)])
    low = next(node for node in memory.nodes.values() if node.name == "Low")
    memory = memory.model_copy(update={"nodes": {**memory.nodes, low.id: low.model_copy(update={"dirty": True})}})
    assert [[memory.nodes[id].name for id in ids] for ids in levels(memory)] == [
        ["Low"],
        ["Left"],
        ["Top"],
        ["Dining"],
        ["User"],
    ]


def test_nothing_is_dirty_nothing_flows():
    assert levels(GraphMemory()) == []


def test_the_single_scale_rewrites_every_concept_with_fresh_evidence_at_once():
    paths = [GraphPath("Dining", ("Food",), ("Steak",)), GraphPath("Work and Study", (), ("Thesis",))]
    memory = taken_in(GraphMemory(step=1), [(Evidence(id="e1", step=1, fact="x"), paths)])
    operators = Hashing(fails=False)
    memory = single_scale(memory, operators, in_order)
    assert {memory.nodes[id].name for _, _, id in operators.asked} == {"Food", "Work and Study"}
    assert {entry.operator for entry in memory.journal} == {"rewrite"}
    assert single_scale(memory, operators, in_order) == memory
