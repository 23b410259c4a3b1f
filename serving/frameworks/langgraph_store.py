"""A memory as the store of a LangGraph graph.

    store = MempilerStore(lambda user: program.memory("memories.sqlite", user, lm=lm))
    store.put(("ada", "facts"), "home", {"text": "Ada lives in Lisbon."})
    store.search(("ada", "facts"), query="Where does Ada live?")

A namespace is a user of its own, its labels joined by dots; a key is a session. Items are JSON of what was put: a
search returns them in the order of the memory's entries that rest on them. Filters and lists of namespaces are those of
LangGraph's own store in memory.

Limits: an item that is put again, or deleted, is forgotten first, and forgetting a session that is in a memory writes
that memory anew. Indexing options and times to live are not kept. The store wants memories of this process.

Needs the extra `langgraph`.
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
        PutOp,
        SearchItem,
        validate_op_namespace,
    )
    from langgraph.store.memory import InMemoryStore  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise MissingDependencyError("langgraph", "langgraph") from error

Namespace = tuple[str, ...]


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
        if isinstance(op, PutOp):
            return self._put(op)
        if isinstance(op, GetOp):
            return self._items(op.namespace).get(op.key)
        return self._search(op)

    def _put(self, op: Any) -> None:
        memory, there = self._memory(op.namespace), self._items(op.namespace).get(op.key)
        if there is not None and there.value == op.value:
            return
        if there is not None:
            memory.forget_session(op.key)
        if op.value is not None:
            memory.add([{"role": "user", "content": json.dumps(dict(op.value), ensure_ascii=False)}], id=op.key)

    def _search(self, op: Any) -> list[Any]:
        """The items that a filter lets through, those that bear on the query first; without one, the newest first."""
        found: list[Any] = []
        for namespace in sorted(self._known()):
            if namespace[: len(op.namespace_prefix)] != op.namespace_prefix:
                continue
            items = self._items(namespace)
            kept = {key for key, item in items.items() if _fits(item, op)}
            scores = self._scores(namespace, op) if op.query else dict.fromkeys(reversed(items))
            found += [_scored(items[key], score) for key, score in scores.items() if key in kept]
        if op.query:
            found.sort(key=lambda item: -item.score)
        return found[op.offset : op.offset + op.limit]

    def _scores(self, namespace: Namespace, op: Any) -> dict[str, float]:
        scores: dict[str, float] = {}
        for hit in found_in(self._memory(namespace), op.query, max(1, min(1000, 4 * (op.offset + op.limit)))):
            for source in hit.sources:
                scores.setdefault(source.rpartition(":")[0], hit.score)
        return scores

    def _known(self) -> set[Namespace]:
        any_of_them = self._memory_of("langgraph")
        users = any_of_them.store.users(any_of_them.owner.tenant)
        return {tuple(found.user.split(".")) for found in users if found.sessions}

    def _memory(self, namespace: Namespace) -> Any:
        return self._memory_of(".".join(namespace))

    def _items(self, namespace: Namespace) -> dict[str, Any]:
        """What is stored in a namespace by its key, in the order in which it came."""
        items = self._memory(namespace).items()
        return {item.id: _item(namespace, item) for item in items}


def _fits(item: Any, op: Any) -> bool:
    """Whether a filter lets an item through."""
    try:
        wanted = op._replace(query=None, offset=0, limit=1)
        return bool(_in_memory({(item.namespace, item.key): item.value}, wanted))
    except TypeError:  # values of different kinds have no order
        return False


def _in_memory(values: Mapping[tuple[Namespace, str], Any], op: Any) -> Any:
    """What LangGraph's store in memory answers that holds some values."""
    inside = InMemoryStore()
    for (namespace, key), value in values.items():
        inside.put(namespace, key, value)
    return inside.batch([op])[0]


def _item(namespace: Namespace, stored: Any) -> Any:
    text = "\n".join(turn.text for turn in stored.turns)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    # A conversation that was remembered otherwise is an item, too.
    time = (stored.time or datetime.min).replace(tzinfo=UTC)
    value = value if isinstance(value, dict) else {"text": text}
    return Item(value=value, key=stored.id, namespace=namespace, created_at=time, updated_at=time)


def _scored(item: Any, score: float | None) -> Any:
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)
