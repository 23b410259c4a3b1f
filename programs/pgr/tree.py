"""Imagined trees: whatever a model answers becomes one valid tree.

The paper (PGR-TOT, section 3.3) takes for granted that a model returns a tree. Models also return
cycles, orphans, several roots and ids that occur twice. No imagined step is lost to that:

    >>> from mempiler.programs.pgr.tree import repair_tree
    >>> from mempiler.signatures.pgr import TreeNode
    >>> root = TreeNode(action_id="A1", action="Check the date")
    >>> orphan = TreeNode(action_id="A2", action="Compare prices", parent="A9")
    >>> [node.parent for node in repair_tree([root, orphan])]
    [None, 'A1']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...signatures.pgr import TreeNode

Parents = dict[str, str | None]
"""The id of each node's parent, by the id of the node; None for a root."""


def repair_tree(nodes: Sequence[TreeNode]) -> list[TreeNode]:
    """Return a valid tree of all nodes with an action; a valid tree is returned unchanged.

    It has one root, no cycle, unique ids, and parents and children that agree. A node without a
    place becomes a child of the root.
    """
    nodes_by_id = _with_unique_ids(nodes)
    parents = _parents_of(nodes_by_id)
    return [_placed_node(node, node_id, parents) for node_id, node in nodes_by_id.items()]


def _with_unique_ids(nodes: Sequence[TreeNode]) -> dict[str, TreeNode]:
    """Return the nodes with an action by id; one without an id of its own gets the next free."""
    used_ids = {node.action_id.strip() for node in nodes}
    nodes_by_id: dict[str, TreeNode] = {}
    number = 1

    for node in nodes:
        if not node.action.strip():
            continue

        node_id = node.action_id.strip()
        if not node_id or node_id in nodes_by_id:
            while f"A{number}" in used_ids:
                number += 1
            node_id = f"A{number}"
            used_ids.add(node_id)
        nodes_by_id[node_id] = node
    return nodes_by_id


def _parents_of(nodes_by_id: Mapping[str, TreeNode]) -> Parents:
    """Return a parent for every node but one, the root, so that all are below the root."""
    if not nodes_by_id:
        return {}

    root_id = _root_id(nodes_by_id)
    claiming_parents = _claiming_parents(nodes_by_id)
    parents: Parents = {}
    for node_id, node in nodes_by_id.items():
        stated_parent = _stated_parent(node)
        if node_id == root_id:
            parents[node_id] = None
        elif stated_parent in nodes_by_id:
            parents[node_id] = stated_parent
        else:
            parents[node_id] = claiming_parents.get(node_id, root_id)

    for node_id in nodes_by_id:
        _break_cycle_above(node_id, parents, root_id)
    return parents


def _root_id(nodes_by_id: Mapping[str, TreeNode]) -> str:
    """Return the id of the first node that states no parent, or else of the first node."""
    for node_id, node in nodes_by_id.items():
        if _stated_parent(node) is None:
            return node_id
    return next(iter(nodes_by_id))


def _stated_parent(node: TreeNode) -> str | None:
    if node.parent is None:
        return None
    return node.parent.strip() or None


def _claiming_parents(nodes_by_id: Mapping[str, TreeNode]) -> dict[str, str]:
    """Return for each child id the first other node that lists it among its children."""
    claiming_parents: dict[str, str] = {}
    for node_id, node in nodes_by_id.items():
        for child_id in node.children:
            if child_id != node_id:
                claiming_parents.setdefault(child_id, node_id)
    return claiming_parents


def _break_cycle_above(start_id: str, parents: Parents, root_id: str) -> None:
    """If the way up from a node leads into a cycle, hang one node of the cycle below the root."""
    visited_ids: set[str] = set()
    node_id = start_id
    parent_id = parents[node_id]
    while parent_id is not None:
        if node_id in visited_ids:
            parents[node_id] = root_id
            return
        visited_ids.add(node_id)
        node_id = parent_id
        parent_id = parents[node_id]


def _placed_node(node: TreeNode, node_id: str, parents: Parents) -> TreeNode:
    """Return a node with its id, its parent, and as children the nodes that have it as parent."""
    children = [child_id for child_id, parent_id in parents.items() if parent_id == node_id]
    return node.model_copy(
        update={"action_id": node_id, "parent": parents[node_id], "children": children}
    )
