"""Memories in LangGraph: a store of a graph, and nodes that recall and remember.

    store = MempilerStore(lambda user: program.memory("memories.sqlite", user, lm=lm))
    store.put(("ada", "facts"), "home", {"text": "Ada lives in Lisbon."})
    store.search(("ada", "facts"), query="Where does Ada live?")

    graph.add_node("recall", recall(memory_of))       # state["memory"]: what bears on the user's last message
    graph.add_node("answer", lambda state: {"messages": [model.invoke(with_memory(state))]})
    graph.add_node("remember", remember(memory_of))   # what was said since, once, also where a checkpoint is resumed

A namespace of the store is a user of its own, its labels joined by dots; a key is a session. Items are JSON of what was
put: a search returns them in the order of the memory's entries that rest on them.

Limits: an item that is put again, or deleted, is forgotten first, and forgetting a session that is in a memory writes
that memory anew. Indexing options and times to live are not kept. The store wants memories of this process; the nodes
take those of a service, too.

Needs the extra `langgraph`.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ...errors import MissingDependencyError
from ..prompt_text import Memory, beside, found_in, lines

try:
    from langchain_core.runnables import RunnableConfig  # pyright: ignore[reportMissingImports]
    from langgraph.graph import MessagesState  # pyright: ignore[reportMissingImports]
    from langgraph.store.base import (  # pyright: ignore[reportMissingImports]
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        PutOp,
        SearchItem,
        validate_op_namespace,
    )
except ImportError as error:
    raise MissingDependencyError("langgraph", "langgraph") from error

USER = "user_id"
"""The name of the user in a run's `configurable`."""
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
Namespace = tuple[str, ...]


class MemoryState(MessagesState):
    """Messages, and what was recalled for the last of the user's."""

    memory: str


def recall(memory_of: Callable[[str], Memory], k: int = 5) -> Callable[[Any, Any], dict[str, str]]:
    """Makes a node that recalls; only `memory` of the state changes, so messages stay as they were said.

    Args:
        memory_of: The memory of a user, who is `user_id` in the run's `configurable`.
        k: Most entries of the memory, and most waiting turns.
    """

    def node(state: Any, config: RunnableConfig) -> dict[str, str]:
        said = [message.text for message in state["messages"] if message.type == "human"]
        found = found_in(memory_of(config["configurable"][USER]), said[-1], k) if said else []
        return {"memory": lines(found) if found else ""}

    return node


def with_memory(state: Any) -> list[Any]:
    """The messages for the model: what was recalled stands in the user's last one, and in no checkpoint of it."""
    messages = list(state["messages"])
    last = max((n for n, message in enumerate(messages) if message.type == "human"), default=None)
    if last is None or not state.get("memory"):
        return messages
    block, content = beside(state["memory"]), messages[last].content
    told = f"{block}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": block}, *content]
    messages[last] = messages[last].model_copy(update={"content": told})
    return messages


def remember(memory_of: Callable[[str], Memory]) -> Callable[[Any, Any], dict[str, Any]]:
    """Makes a node that remembers what was said since the user's last message, that one included.

    The session has the name of that message, so a node that is run again for a checkpoint stores nothing twice.
    """

    def node(state: Any, config: RunnableConfig) -> dict[str, Any]:
        messages = state["messages"]
        last = max((n for n, message in enumerate(messages) if message.type == "human"), default=None)
        if last is not None:
            roles = {"human": "user", "ai": "assistant"}  # results of tools are not remembered
            told = [(roles.get(message.type), message.text) for message in messages[last:]]
            turn = [{"role": role, "content": text} for role, text in told if role and text.strip()]
            memory_of(config["configurable"][USER]).add(turn, id=messages[last].id)
        return {}

    return node


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
            return self._namespaces(op)
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
        prefix = op.namespace_prefix
        namespaces = sorted(each for each in self._known() if each[: len(prefix)] == prefix)
        found = [item for namespace in namespaces for item in self._found(namespace, op)]
        if op.query:
            found.sort(key=lambda item: -(item.score or 0.0))
        return found[op.offset : op.offset + op.limit]

    def _found(self, namespace: Namespace, op: Any) -> list[Any]:
        """The items of one namespace, those that bear on the query first; without a query, the newest first."""
        items = {key: item for key, item in self._items(namespace).items() if _fits(item.value, op.filter or {})}
        if not op.query:
            return [_scored(item) for item in reversed(items.values())]
        scores: dict[str, float] = {}
        for hit in found_in(self._memory(namespace), op.query, max(1, min(1000, 4 * (op.offset + op.limit)))):
            for source in hit.sources:
                scores.setdefault(source.rpartition(":")[0], hit.score)
        return [_scored(items[key], score) for key, score in scores.items() if key in items]

    def _namespaces(self, op: Any) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = {each for each in self._known() if all(_matches(each, condition) for condition in conditions)}
        return sorted({each[: op.max_depth] for each in found})[op.offset : op.offset + op.limit]

    def _known(self) -> set[Namespace]:
        any_of_them = self._memory_of("langgraph")
        users = any_of_them.store.users(any_of_them.owner.tenant)
        return {tuple(found.owner.user.split(".")) for found in users if found.items}

    def _memory(self, namespace: Namespace) -> Any:
        return self._memory_of(".".join(namespace))

    def _items(self, namespace: Namespace) -> dict[str, Any]:
        """What is stored in a namespace by its key, in the order in which it came."""
        items = self._memory(namespace).items()
        return {item.id: _item(namespace, item) for item in items}


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


def _scored(item: Any, score: float | None = None) -> Any:
    return SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)


def _fits(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a value has fields as a filter says: equal, or compared by operators such as `{"$gt": 3}`."""
    for name, condition in wanted.items():
        compared = isinstance(condition, Mapping) and condition.keys() <= _COMPARED.keys() and condition
        for sign, other in (condition if compared else {"$eq": condition}).items():
            try:
                if not _COMPARED[sign](value.get(name), other):
                    return False
            except TypeError:  # values of different kinds have no order
                return False
    return True


def _matches(namespace: Namespace, condition: Any) -> bool:
    path = tuple(condition.path)
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return len(part) == len(path) and all(want in ("*", label) for want, label in zip(path, part, strict=True))
