"""A memory as the store of a LangGraph graph.

    store = MempilerStore(lambda user: program.memory("memories.sqlite", user, lm=lm))

| LangGraph | Mempiler |
|---|---|
| a namespace | a user, whose name are the labels of the namespace, joined by dots |
| a key | a session |
| a value | the JSON text of the session's only turn |

A value that is put under a known key replaces the one before, in one transaction of the store. That
forgets the old value, and so does deleting it: the memory is written anew. Times to live are not
kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ...optional_import import require_package
from ..prompt_text import search_hits

with require_package("langgraph", "langgraph"):
    from langgraph.store import base, memory  # pyright: ignore[reportMissingImports]

UserMemory = Any
"""A memory of this process; the files of frameworks do not import its class, see `__init__.py`."""

_MAX_HITS = 1000
"""The most entries that one search of a memory returns."""


class MempilerStore(base.BaseStore):
    """The store of a graph, over memories of this process.

    Args:
        memory_of: Returns the `UserMemory` of a user; each namespace is a user.
    """

    supports_ttl = False

    def __init__(self, memory_of: Callable[[str], UserMemory]) -> None:
        self._memory_of = memory_of

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Do operations one after another, and return their results."""
        return [self._do(op) for op in ops]

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Do operations one after another in a thread, and return their results."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _do(self, op: base.Op) -> Any:
        """Do one operation of LangGraph, and return its result, whose type is that of the kind."""
        base.validate_op_namespace(op)
        if isinstance(op, base.ListNamespacesOp):
            return self._list_namespaces(op)
        if isinstance(op, base.SearchOp):
            return self._search(op)
        if isinstance(op, base.GetOp):
            user_memory = self._memory_of_namespace(op.namespace)
            return _items(user_memory, op.namespace).get(op.key)
        self._put(op)
        return None

    def _memory_of_namespace(self, namespace: tuple[str, ...]) -> UserMemory:
        """Return the memory that holds a namespace: its user's name are the labels, with dots."""
        return self._memory_of(".".join(namespace))

    def _put(self, op: base.PutOp) -> None:
        """Store the value of a key, or forget it if the value is None.

        A value is stored as the JSON text of a message, so that a question or a search finds it.
        """
        user_memory = self._memory_of_namespace(op.namespace)
        if op.value is None:
            user_memory.forget_session(op.key)
            return

        stored_item = _items(user_memory, op.namespace).get(op.key)
        if stored_item is None or stored_item.value != op.value:
            text = json.dumps(dict(op.value), ensure_ascii=False)
            user_memory.replace([{"role": "user", "content": text}], id=op.key)

    def _list_namespaces(self, op: base.ListNamespacesOp) -> Any:
        """Return the namespaces that an operation asks for, as LangGraph's own store does."""
        in_memory = memory.InMemoryStore()
        for namespace in self._namespaces():
            in_memory.put(namespace, "", {})
        return in_memory.batch([op])[0]

    def _search(self, op: base.SearchOp) -> list[base.SearchItem]:
        """Return the items below a prefix that pass the filter, from the offset to the limit.

        With a query, those that fit it best come first, whatever their namespace. Without one, the
        namespaces come in alphabetical order, and in each of them the newest items first.
        """
        prefix = op.namespace_prefix
        results: list[base.SearchItem] = []
        for namespace in sorted(self._namespaces()):
            if namespace[: len(prefix)] == prefix:
                results.extend(self._search_namespace(namespace, op))

        if op.query:
            results.sort(key=_score, reverse=True)
        return results[op.offset : op.offset + op.limit]

    def _search_namespace(
        self, namespace: tuple[str, ...], op: base.SearchOp
    ) -> list[base.SearchItem]:
        """Return the items of one namespace that pass the filter, best or newest first."""
        user_memory = self._memory_of_namespace(namespace)
        items = _items(user_memory, namespace)
        scores: dict[str, float | None] = {}
        if op.query:
            scores.update(_scores_by_key(user_memory, op))
        else:
            # Items are in the order in which they were stored, so the last is the newest.
            for key in reversed(items):
                scores[key] = None

        results: list[base.SearchItem] = []
        for key, score in scores.items():
            # A query also finds sessions that have not ended, which are no items yet.
            item = items.get(key)
            if item is not None and _passes_filter(item, op):
                results.append(base.SearchItem(**item.dict(), score=score))
        return results

    def _namespaces(self) -> set[tuple[str, ...]]:
        """Return the namespaces that have items."""
        # Any user's memory leads to the store, which lists all users.
        any_memory = self._memory_of("langgraph")
        users = any_memory.store.users.list_all(any_memory.owner.tenant)
        return {tuple(status.user.split(".")) for status in users if status.sessions}


def _items(user_memory: UserMemory, namespace: tuple[str, ...]) -> dict[str, base.Item]:
    """Return LangGraph's items of a namespace by key, in the order in which they were stored.

    Each stored session of the memory is one.
    """
    items: dict[str, base.Item] = {}
    for session in user_memory.items():
        text = "\n".join(turn.text for turn in session.turns)
        # Stored times are in UTC, without a zone.
        time = (session.time or datetime.min).replace(tzinfo=UTC)
        items[session.id] = base.Item(
            value=_value(text),
            key=session.id,
            namespace=namespace,
            created_at=time,
            updated_at=time,
        )
    return items


def _value(text: str) -> dict[str, Any]:
    """Return the value that a session's text holds.

    A conversation, which was not put by `MempilerStore`, is a value, too.
    """
    with suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {"text": text}


def _scores_by_key(user_memory: UserMemory, op: base.SearchOp) -> dict[str, float]:
    """Return how well the sessions fit a query: each has the score of its best entry."""
    # More hits than asked for: several may rest on one session, and a filter may drop some.
    hit_count = max(1, min(_MAX_HITS, 4 * (op.offset + op.limit)))
    scores: dict[str, float] = {}
    # Entries come best first, and before turns that are not in the memory yet. So the first score
    # of a session is that of its best entry.
    for hit in search_hits(user_memory, op.query or "", hit_count):
        for turn_id in hit.sources:
            # The id of a turn is that of its session, a colon and a number.
            session_id, _, _ = turn_id.rpartition(":")
            scores.setdefault(session_id, hit.score)
    return scores


def _passes_filter(item: base.Item, op: base.SearchOp) -> bool:
    """Return whether LangGraph's own store would find the item by the operation's filter."""
    in_memory = memory.InMemoryStore()
    in_memory.put(item.namespace, item.key, item.value)
    try:
        return bool(in_memory.batch([op._replace(query=None, offset=0, limit=1)])[0])
    except TypeError:
        return False  # the filter compares values of different kinds, which have no order


def _score(item: base.SearchItem) -> float:
    return item.score or 0.0
