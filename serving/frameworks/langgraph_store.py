"""A memory as the store of a LangGraph graph: `MempilerStore(lambda user: program.memory(store, user, lm=lm))`.

A namespace is a user of its own, its labels joined by dots; a key is a session; an item is JSON of what was put. An
item that is put with another value replaces the one before, in one transaction of the store. That, and deleting one,
forgets the old value, which writes the memory anew. Times to live are not kept.
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


class MempilerStore(base.BaseStore):
    """The store of a graph; `memory_of` makes the memory of a user, in this process, and each namespace is a user."""

    supports_ttl = False

    def __init__(self, memory_of: Callable[[str], Any]) -> None:
        self._memory_of = memory_of

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Does operations one after another."""
        return [self._done(op) for op in ops]

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """The same in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _done(self, op: Any) -> Any:
        base.validate_op_namespace(op)
        if isinstance(op, base.ListNamespacesOp):
            return _in_memory([(namespace, "", {}) for namespace in self._known()], op)
        if isinstance(op, base.SearchOp):
            return self._search(op)
        user = self._memory_of(".".join(op.namespace))
        stored = _items(user, op.namespace).get(op.key)
        if isinstance(op, base.GetOp):
            return stored
        if op.value is None:
            user.forget_session(op.key)
        elif stored is None or stored.value != op.value:
            text = json.dumps(dict(op.value), ensure_ascii=False)
            user.replace([{"role": "user", "content": text}], id=op.key)
        return None

    def _search(self, op: Any) -> list[Any]:
        """The items that a filter lets through, those that bear on the query first; without one, the newest first."""
        found: list[Any] = []
        for namespace in sorted(one for one in self._known() if one[: len(op.namespace_prefix)] == op.namespace_prefix):
            user = self._memory_of(".".join(namespace))
            items = _items(user, namespace)
            scores = dict.fromkeys(reversed(items))
            if op.query:
                hits = search_hits(user, op.query, max(1, min(1000, 4 * (op.offset + op.limit))))
                # A session has the score of the best entry that rests on it.
                scores = {source.rpartition(":")[0]: hit.score for hit in reversed(hits) for source in hit.sources}
            for key, score in scores.items():
                with suppress(KeyError, TypeError):  # of other sessions; values of different kinds have no order
                    if _in_memory([(namespace, key, items[key].value)], op._replace(query=None, offset=0, limit=1)):
                        found.append(base.SearchItem(**items[key].dict(), score=score))
        return sorted(found, key=lambda item: -(item.score or 0))[op.offset : op.offset + op.limit]

    def _known(self) -> set[tuple[str, ...]]:
        any_user = self._memory_of("langgraph")
        users = any_user.store.users.list_all(any_user.owner.tenant)
        return {tuple(found.user.split(".")) for found in users if found.sessions}


def _in_memory(items: Iterable[tuple[Any, str, Any]], op: Any) -> Any:
    """What LangGraph's store in memory answers that holds some items."""
    inside = memory.InMemoryStore()
    for item in items:
        inside.put(*item)
    return inside.batch([op])[0]


def _items(user: Any, namespace: tuple[str, ...]) -> dict[str, Any]:
    """What is stored in a namespace by its key, in the order in which it came."""
    found: dict[str, Any] = {}
    for stored in user.items():
        text = "\n".join(turn.text for turn in stored.turns)
        value: Any = None
        with suppress(ValueError):
            value = json.loads(text)
        # A conversation that was remembered otherwise is an item, too.
        value = value if isinstance(value, dict) else {"text": text}
        time = (stored.time or datetime.min).replace(tzinfo=UTC)
        found[stored.id] = base.Item(value=value, key=stored.id, namespace=namespace, created_at=time, updated_at=time)
    return found
