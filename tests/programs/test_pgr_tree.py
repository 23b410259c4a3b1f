"""Whatever a model answers becomes one valid tree, in which no step is lost.

PGR asks a model for a tree of steps towards an answer. Each node of it is a step, and names its
parent and its children by ids such as "A1". Models make mistakes with the ids. Each step is a
search of the memory, so `repair_tree` keeps them all, and connects them with one root.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.pgr.tree import repair_tree
from mempiler.signatures.pgr import TreeNode


def make_node(node_id: str, parent: str | None = None, children: tuple[str, ...] = ()) -> TreeNode:
    return TreeNode(
        action_id=node_id, action=f"Do {node_id}", parent=parent, children=list(children)
    )


def repaired_parents(nodes: list[TreeNode]) -> dict[str, str | None]:
    """Return the parents in the repaired tree, by the ids of their children."""
    return {repaired.action_id: repaired.parent for repaired in repair_tree(nodes)}


def test_a_valid_tree_stays_as_it_is() -> None:
    """PGR asks a model for a tree of steps towards an answer, each with its parent and children."""
    tree = [
        make_node("A1", children=("A2", "A3")),
        make_node("A2", parent="A1", children=("A4",)),
        make_node("A3", parent="A1"),
        make_node("A4", parent="A2"),
    ]

    assert repair_tree(tree) == tree


def test_a_node_with_an_unknown_parent_belongs_to_the_node_that_lists_it() -> None:
    """Models make mistakes with ids: A3 names an unknown parent, but A2 lists A3 as its child."""
    tree = [
        make_node("A1"),
        make_node("A2", parent="A1", children=("A3",)),
        make_node("A3", parent="unknown"),
    ]

    assert repaired_parents(tree) == {"A1": None, "A2": "A1", "A3": "A2"}


@pytest.mark.parametrize(
    "cycle",
    [
        pytest.param([make_node("A2", parent="A2")], id="one-node"),
        pytest.param([make_node("A2", parent="A3"), make_node("A3", parent="A2")], id="two-nodes"),
        pytest.param(
            [
                make_node("A2", parent="A4"),
                make_node("A3", parent="A2"),
                make_node("A4", parent="A3"),
            ],
            id="three-nodes",
        ),
    ],
)
def test_a_cycle_is_cut_at_one_node_which_is_moved_below_the_root(cycle: list[TreeNode]) -> None:
    """A model may answer with nodes that are each other's parents. The root is A1."""
    parents = repaired_parents([make_node("A1"), *cycle])

    # All nodes keep their parents, but for the one at which the cycle was cut.
    changed_parents: list[str | None] = []
    for node in cycle:
        if parents[node.action_id] != node.parent:
            changed_parents.append(parents[node.action_id])
    assert changed_parents == ["A1"]


def test_ids_that_are_missing_or_occur_twice_are_replaced() -> None:
    """The second node with the id A1 becomes A2, and the one without an id A3."""
    tree = [make_node("A1"), make_node("A1", parent="A1"), make_node("", parent="A1")]

    assert repaired_parents(tree) == {"A1": None, "A2": "A1", "A3": "A1"}


NODE_IDS = st.sampled_from(["", "A1", "A2", "A3", "A4", "A5"])
NODE_LISTS = st.lists(
    st.builds(
        TreeNode,
        action_id=NODE_IDS,
        action=st.sampled_from(["", "look", "ask", "pay"]),
        parent=st.one_of(st.none(), NODE_IDS),
        children=st.lists(NODE_IDS, max_size=3),
    ),
    max_size=8,
)
"""What models may answer: mostly no trees."""


def depth(node_id: str, parents: dict[str, str | None]) -> int:
    """Return how many nodes are above a node; fail if a cycle is above it."""
    count = 0
    parent = parents[node_id]
    while parent is not None:
        count += 1
        assert count <= len(parents), "the parents form a cycle"
        parent = parents[parent]
    return count


@given(nodes=NODE_LISTS)
def test_no_step_is_lost_and_ids_are_unique(nodes: list[TreeNode]) -> None:
    """Each step of a tree is a search of the memory, so `repair_tree` may drop none of them.

    The nodes are random, as from a model that makes mistakes. A node without an action is no step.
    """
    tree = repair_tree(nodes)

    assert [node.action for node in tree] == [node.action for node in nodes if node.action]
    assert len({node.action_id for node in tree}) == len(tree)


@given(nodes=NODE_LISTS)
def test_the_result_is_a_tree_with_one_root(nodes: list[TreeNode]) -> None:
    """Whatever nodes a model answers with, a repaired tree connects them all with its root."""
    tree = repair_tree(nodes)

    parents = {node.action_id: node.parent for node in tree}
    roots = [node_id for node_id, parent in parents.items() if parent is None]
    assert len(roots) == (1 if tree else 0)
    # Every node is connected with the root.
    for node_id in parents:
        assert depth(node_id, parents) < len(tree)


@given(nodes=NODE_LISTS)
def test_children_and_parents_name_each_other(nodes: list[TreeNode]) -> None:
    """In a random answer of a model, a node may list a child that names another parent.

    In the repaired tree they agree.
    """
    tree = repair_tree(nodes)

    parents = {node.action_id: node.parent for node in tree}
    for node in tree:
        for child_id in node.children:
            assert parents[child_id] == node.action_id
    # All nodes but the root are the child of one node.
    child_count = sum(len(node.children) for node in tree)
    assert child_count == max(0, len(tree) - 1)
