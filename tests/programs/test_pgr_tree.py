"""Whatever a model answers becomes one valid tree, in which no step is lost."""

import pytest
from mempiler.programs.pgr.tree import repair_tree
from mempiler.signatures.pgr import TreeNode


def node(id: str, parent: str | None = None, children: tuple[str, ...] = ()) -> TreeNode:
    return TreeNode(action_id=id, action=f"Do {id}", parent=parent, children=list(children))


def parents(nodes: list[TreeNode]) -> dict[str, str | None]:
    """The parents in the repaired tree, by the ids of their children."""
    return {repaired.action_id: repaired.parent for repaired in repair_tree(nodes)}


def test_a_valid_tree_stays_as_it_is() -> None:
    tree = [node("A1", children=("A2", "A3")), node("A2", "A1"), node("A3", "A1")]
    assert repair_tree(tree) == tree


def test_a_node_without_a_parent_belongs_to_the_node_that_lists_it() -> None:
    tree = [node("A1"), node("A2", "A1", children=("A3",)), node("A3", "unknown")]
    assert parents(tree) == {"A1": None, "A2": "A1", "A3": "A2"}


@pytest.mark.parametrize(
    "cycle",
    [
        [node("A2", "A2")],
        [node("A2", "A3"), node("A3", "A2")],
        [node("A2", "A4"), node("A3", "A2"), node("A4", "A3")],
    ],
    ids=["one node", "two nodes", "three nodes"],
)
def test_a_cycle_is_hung_below_the_root_by_one_of_its_nodes(cycle: list[TreeNode]) -> None:
    repaired = parents([node("A1"), *cycle])

    below_root = [id for id, parent in repaired.items() if parent == "A1"]
    unchanged = [
        stated.action_id for stated in cycle if repaired[stated.action_id] == stated.parent
    ]
    assert len(below_root) == 1
    assert len(unchanged) == len(cycle) - 1


def test_a_path_without_a_cycle_is_not_cut() -> None:
    tree = [node("A1"), node("A2", "A1"), node("A3", "A2"), node("A4", "A3")]
    assert parents(tree) == {"A1": None, "A2": "A1", "A3": "A2", "A4": "A3"}


def test_ids_that_occur_twice_become_ids_of_their_own() -> None:
    assert parents([node("A1"), node("A1", "A1"), node("", "A1")]) == {
        "A1": None,
        "A2": "A1",
        "A3": "A1",
    }
