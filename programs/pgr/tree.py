"""Trees of imagined futures as models write them: with cycles, orphans and two roots, and put right.

Example:
    >>> from mempiler.programs.pgr.tree import TreeNode, repaired
    >>> tree, defects = repaired([TreeNode(action_id="A1", action="pack"), TreeNode(action_id="A2", action="go")])
    >>> tree[1].parent, defects
    ('A1', ('second root',))

Limits: the repair keeps every step that has an action, since each is a probe; whether its new place makes sense only
matters to the prompt that refines the tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...signatures.pgr import TreeNode


def repaired(nodes: Sequence[TreeNode]) -> tuple[list[TreeNode], tuple[str, ...]]:
    """A valid tree of all steps, for any output of the model.

    Args:
        nodes: The nodes as they came.

    Returns:
        All nodes with an action, in order: one root, no cycle, ids unique, parents and children in agreement; and
        what was wrong. A node without a place becomes a child of the root.
    """
    defects: Counter[str] = Counter()
    named = _named(nodes, defects)
    parents = {id: _parent(node) for id, node in named.items()}
    root = next((id for id, parent in parents.items() if parent is None), next(iter(named), ""))
    defects["no root"] += parents.get(root) is not None
    claims = {child: id for id, node in reversed(named.items()) for child in node.children if child != id}
    for id, parent in parents.items():
        if id == root:
            parents[id] = None
        elif parent is None or parent not in named:
            defects["missing parent" if parent else "second root"] += 1
            parents[id] = claims.get(id, root)
    for id in named:
        seen, at = set[str](), id
        while (above := parents[at]) is not None and at not in seen:
            seen.add(at)
            at = above
        if above is not None:
            defects["cycle"] += 1
            parents[at] = root
    for id, node in named.items():
        defects["wrong child"] += sum(parents.get(child) != id for child in node.children)
    children = {id: [child for child, parent in parents.items() if parent == id] for id in named}
    tree = [
        node.model_copy(update={"action_id": id, "parent": parents[id], "children": children[id]})
        for id, node in named.items()
    ]
    return tree, tuple(sorted(name for name, n in defects.items() if n))


def _named(nodes: Sequence[TreeNode], defects: Counter[str]) -> dict[str, TreeNode]:
    """The nodes by unique id."""
    named: dict[str, TreeNode] = {}
    taken = {node.action_id.strip() for node in nodes}
    for node in nodes:
        id = node.action_id.strip()
        if not node.action.strip():
            defects["no action"] += 1
            continue
        if not id or id in named:
            defects["wrong id"] += 1
            id = next(new for n in range(1, len(nodes) + len(taken) + 2) if (new := f"A{n}") not in taken)
            taken.add(id)
        named[id] = node
    return named


def _parent(node: TreeNode) -> str | None:
    parent = (node.parent or "").strip()
    return None if parent.lower() in ("", "null", "none") else parent
