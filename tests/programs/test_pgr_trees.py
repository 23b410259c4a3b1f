"""Trees as models write them: repaired and counted, never a crash."""

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.pgr.prospection import Prospection, ProspectionSettings, repaired
from mempiler.records import Hit
from mempiler.signatures.pgr import TreeNode

ids = st.sampled_from(["", "A1", "A2", "A3", "A4", "A5"])
trees = st.lists(
    st.builds(
        TreeNode,
        action_id=ids,
        action=st.sampled_from(["", "look", "ask", "pay"]),
        parent=st.one_of(st.none(), ids),
        children=st.lists(ids, max_size=3),
    ),
    max_size=8,
)


@given(trees)
def test_whatever_comes_becomes_one_tree_of_all_steps(nodes):
    tree = repaired(nodes)
    assert repaired(tree) == tree
    assert [node.action for node in tree] == [node.action for node in nodes if node.action]
    parents = {node.action_id: node.parent for node in tree}
    assert len(parents) == len(tree)
    assert [parent for parent in parents.values() if parent is None] == [None] * bool(tree)
    for node in tree:
        at, steps = node.action_id, 0
        while parents[at] is not None:
            at, steps = parents[at], steps + 1
            assert steps <= len(tree)
        assert all(parents[child] == node.action_id for child in node.children)
    assert sum(len(node.children) for node in tree) == max(0, len(tree) - 1)


def everything(queries, k, min_score):
    return [[Hit(id=f"{query[:3]}", text="a fact", score=0.5)] for query in queries]


@pytest.mark.parametrize(
    ("first", "counts"),
    [
        ({"tree": [{"action_id": "A1", "action": "x", "parent": "A1"}]}, {"repaired": 1, "malformed": 0}),
        ("I would rather not.", {"repaired": 0, "malformed": 1}),
    ],
)
def test_malformed_trees_are_counted_and_the_query_still_finds_its_own(scripted, first, counts):
    def reply(kind, text, n):
        return first if kind == "tree" else {kind: [] if kind == "updated_tree" else "summary"}

    settings = ProspectionSettings(iterations=0, augment="none", summary=False)
    with dspy.context(lm=scripted(reply)):
        context = Prospection(settings).recall(everything, "query", "today")
    assert {name: context.counts[name] for name in counts} == counts
    assert "que" in {hit.id for hit in context.hits}


def test_a_round_without_steps_ends_the_loop_and_keeps_what_was_found(scripted):
    def reply(kind, text, n):
        return {"tree": [{"action_id": "A1", "action": "go"}]} if kind == "tree" else "no fields at all"

    with dspy.context(lm=scripted(reply)):
        context = Prospection(ProspectionSettings(augment="none")).recall(everything, "query")
    assert (context.counts["rounds"], context.counts["facts"], context.notes) == (0, 2, {})
    assert context.counts["malformed"] == 2
