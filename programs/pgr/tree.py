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
    """Return the nodes as a valid tree: with one root, no cycles, and ids that differ.

    Nodes without an action are dropped. A node without a valid parent becomes a child of the root.
    A tree that is valid already is returned unchanged.
    """
    nodes_by_id = _with_unique_ids(nodes)
    parents = _parents_of(nodes_by_id)
    return [_placed_node(node, node_id, parents) for node_id, node in nodes_by_id.items()]


def _with_unique_ids(nodes: Sequence[TreeNode]) -> dict[str, TreeNode]:
    """Return nodes by id, without the nodes that have no action.

    A node without an id, or with the id of an earlier node, gets the next free id: A1, A2, ...
    """
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
    """Return the id of a parent for every node, and None for the root, so that they form a tree.

    The parent is the one that the node names or, if there is no such node, one that lists it as a
    child. Otherwise it is the root.
    """
    if not nodes_by_id:
        return {}

    root_id = _root_id(nodes_by_id)
    listing_parents = _listing_parents(nodes_by_id)
    parents: Parents = {}
    for node_id, node in nodes_by_id.items():
        named_parent = _named_parent(node)
        if node_id == root_id:
            parents[node_id] = None
        elif named_parent in nodes_by_id:
            parents[node_id] = named_parent
        else:
            parents[node_id] = listing_parents.get(node_id, root_id)

    # Nodes may still name each other as parents in a circle.
    for node_id in nodes_by_id:
        _break_cycle_above(node_id, parents, root_id)
    return parents


def _root_id(nodes_by_id: Mapping[str, TreeNode]) -> str:
    """Return the id of the first node that names no parent; if all name one, of the first node."""
    for node_id, node in nodes_by_id.items():
        if _named_parent(node) is None:
            return node_id
    return next(iter(nodes_by_id))


def _named_parent(node: TreeNode) -> str | None:
    """Return the id that a node names as its parent, which may be unknown; None if it names none.

    Models also write "" for no parent.
    """
    if node.parent is None:
        return None
    return node.parent.strip() or None


def _listing_parents(nodes_by_id: Mapping[str, TreeNode]) -> dict[str, str]:
    """Return, by child id, the id of the first node that lists the child in `children`.

    A node that lists itself does not count.
    """
    listing_parents: dict[str, str] = {}
    for node_id, node in nodes_by_id.items():
        for child_id in node.children:
            if child_id != node_id:
                # Keeps the first node if several list the same child.
                listing_parents.setdefault(child_id, node_id)
    return listing_parents


def _break_cycle_above(start_id: str, parents: Parents, root_id: str) -> None:
    """Follow the parents upwards from a node; if they form a cycle, break it.

    One node of the cycle gets the root as its parent; `parents` is changed. Without a cycle the way
    up ends at the root, and nothing changes.
    """
    visited_ids: set[str] = set()
    node_id: str | None = start_id
    while node_id is not None:
        if node_id in visited_ids:
            parents[node_id] = root_id
            return
        visited_ids.add(node_id)
        node_id = parents[node_id]


def _placed_node(node: TreeNode, node_id: str, parents: Parents) -> TreeNode:
    """Return a node with the id, parent and children that it has in the repaired tree.

    Args:
        node: The node as the model wrote it.
        node_id: Its id in the tree.
        parents: The id of each node's parent, by the id of the node.
    """
    children = [child_id for child_id, parent_id in parents.items() if parent_id == node_id]
    return node.model_copy(
        update={"action_id": node_id, "parent": parents[node_id], "children": children}
    )
