"""A memory as the store of a LangGraph graph: `MempilerStore(lambda user: program.memory(store, user, lm=lm))`.

A namespace is a user of its own, its labels joined by dots; a key is a session; an item is JSON of what was put. An
item that is put again, or deleted, is forgotten first, which writes the memory anew. Indexing options and times to live
are not kept. The store wants memories of this process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ...errors import MissingDependencyError
from ..prompt_text import found_in

try:
    from langgraph.store.base import (  # pyright: ignore[reportMissingImports]
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        SearchItem,
        SearchOp,
        validate_op_namespace,
    )
    from langgraph.store.memory import InMemoryStore  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise MissingDependencyError("langgraph", "langgraph") from error


class MempilerStore(BaseStore):
    """The store of a graph over memories of this process.

    Args:
        memory_of: The memory of a user; each namespace is one.
    """

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
        validate_op_namespace(op)
        if isinstance(op, ListNamespacesOp):
            return _in_memory({(namespace, ""): {} for namespace in self._known()}, op)
        if isinstance(op, SearchOp):
            return self._search(op)
        memory = self._memory_of(".".join(op.namespace))
        there = _items(memory, op.namespace).get(op.key)
        if isinstance(op, GetOp):
            return there
        if there is None or there.value != op.value:
            memory.forget_session(op.key)
            if op.value is not None:
                memory.add([{"role": "user", "content": json.dumps(dict(op.value), ensure_ascii=False)}], id=op.key)
        return None

    def _search(self, op: SearchOp) -> list[SearchItem]:
        """The items that a filter lets through, those that bear on the query first; without one, the newest first."""
        found: list[SearchItem] = []
        inside = (one for one in self._known() if one[: len(op.namespace_prefix)] == op.namespace_prefix)
        for namespace in sorted(inside):
            memory = self._memory_of(".".join(namespace))
            items = _items(memory, namespace)
            scores = dict.fromkeys(reversed(items))
            if op.query:
                hits = found_in(memory, op.query, max(1, min(1000, 4 * (op.offset + op.limit))))
                # A session has the score of the best entry that rests on it.
                scores = {source.rpartition(":")[0]: hit.score for hit in reversed(hits) for source in hit.sources}
            kept = [(items[key], score) for key, score in scores.items() if key in items and _fits(items[key], op)]
            found += [SearchItem(namespace, i.key, i.value, i.created_at, i.updated_at, score) for i, score in kept]
        found.sort(key=lambda item: -(item.score or 0))
        return found[op.offset : op.offset + op.limit]

    def _known(self) -> set[tuple[str, ...]]:
        any_of_them = self._memory_of("langgraph")
        users = any_of_them.store.users(any_of_them.owner.tenant)
        return {tuple(found.user.split(".")) for found in users if found.sessions}


def _fits(item: Item, op: SearchOp) -> bool:
    """Whether a filter lets an item through."""
    try:
        return bool(_in_memory({(item.namespace, item.key): item.value}, op._replace(query=None, offset=0, limit=1)))
    except TypeError:  # values of different kinds have no order
        return False


def _in_memory(values: Mapping[Any, Any], op: Any) -> Any:
    """What LangGraph's store in memory answers that holds some values."""
    inside = InMemoryStore()
    for (namespace, key), value in values.items():
        inside.put(namespace, key, value)
    return inside.batch([op])[0]


def _items(memory: Any, namespace: tuple[str, ...]) -> dict[str, Item]:
    """What is stored in a namespace by its key, in the order in which it came."""
    found: dict[str, Item] = {}
    for stored in memory.items():
        text = "\n".join(turn.text for turn in stored.turns)
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        # A conversation that was remembered otherwise is an item, too.
        value = value if isinstance(value, dict) else {"text": text}
        time = (stored.time or datetime.min).replace(tzinfo=UTC)
        found[stored.id] = Item(value=value, key=stored.id, namespace=namespace, created_at=time, updated_at=time)
    return found
