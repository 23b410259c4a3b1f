"""Remembering once: a benchmark asks 200 questions about one conversation, and its memory is written once.

`MemoryCache.remember` folds `method.write` over a history. Every prefix of the history is a node of its own, keyed by
what the language model would see (`keys.writer_key`) and by the digest of the items. A longer history continues from
its longest known prefix; of many threads that need a node, one writes it and the others wait.

    history   item 1 ──> item 2 ──> item 3        prepare(item): all at once, beforehand
    nodes     (key, h1)  (key, h2)  (key, h3)     write(memory, item): in order, each once
    settled                         (key, h3:settled)

Limits: rollouts of one question share a memory unless each runs in a `keys.rollout` scope. Nodes with a failure are
kept for the life of the cache, never on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import dspy

from ..memory.flight import Flight
from ..records import Failure, History, Item
from .gather import gather
from .keys import writer_key
from .method import Method, collect_failures
from .trace import Node, Step


class NodeStore(Protocol):
    """Where nodes outlive the process; `runs` has one over SQLite."""

    def get(self, key: tuple[str, str], method: Method, item: Item | None, parent: Node) -> Node | None:
        """Reads a node, or None."""
        ...

    def put(self, key: tuple[str, str], method: Method, node: Node) -> None:
        """Writes a node that has no failure."""
        ...


class MemoryCache:
    """Memories by writer and history prefix, each written once however many threads ask.

    Args:
        store: Keeps nodes on disk as well; None keeps them in memory only.
    """

    def __init__(self, store: NodeStore | None = None) -> None:
        self._nodes = Flight()
        self._prepared = Flight()
        self._digests = Flight(capacity=256)
        self._store = store

    def remember(self, method: Method, history: History) -> Node:
        """The settled memory of a history.

        Args:
            method: Writes the memory, under the LM and adapter of the current context.
            history: The past.

        Returns:
            The node after the last item, settled.

        Raises:
            Exception: What the endpoint raised; every thread that waits for the same item gets the same.
        """
        key = writer_key(method, self._digests)
        node, done = self._longest(method, key, history)
        if self._store is not None and done < len(history):
            # Before anything is prepared: what another process has written needs no extraction either.
            self._prepared.once(("read", key, history.digest), lambda: self._read(method, key, history))
            node, done = self._longest(method, key, history)
        if done < len(history):
            prepared = self._prepare(method, key, history.items[done:])
            for n in range(done, len(history)):
                node = self._node(method, (key, history.prefixes[n]), history.items[n], node, prepared)
        if type(method).settle is Method.settle:
            return node
        return self._node(method, (key, f"{history.digest}:settled"), None, node, {})

    def _longest(self, method: Method, key: str, history: History) -> tuple[Node, int]:
        """The node of the longest prefix that is known, and that prefix's length."""
        for n in range(len(history), 0, -1):
            node = self._nodes.peek((key, history.prefixes[n - 1]))
            if node is not None:
                return node, n
        return Node(method.Memory()), 0

    def _read(self, method: Method, key: str, history: History) -> None:
        """Takes the nodes of a history from the store, as far as they go."""
        node = Node(method.Memory())
        for item, prefix in zip(history.items, history.prefixes, strict=True):
            stored = self._store.get((key, prefix), method, item, node) if self._store else None
            if stored is None:
                return
            self._nodes.put((key, prefix), stored)
            node = stored

    def _prepare(self, method: Method, key: str, items: Sequence[Item]) -> dict[str, _Prepared]:
        """Runs `method.prepare` for all items at once; other threads that need the same items wait for it."""
        if type(method).prepare is Method.prepare:
            return {}
        names = _names(method)

        def one(item: Item) -> _Prepared:
            return self._prepared.once((key, item.digest), lambda: _recorded(names, lambda: method.prepare(item)))

        together = ("together", key, *(item.digest for item in items))
        found = self._prepared.once(together, lambda: gather([lambda item=item: one(item) for item in items]))
        return {item.digest: prepared for item, prepared in zip(items, found, strict=True)}

    def _node(
        self, method: Method, key: tuple[str, str], item: Item | None, parent: Node, prepared: dict[str, _Prepared]
    ) -> Node:
        def make() -> Node:
            stored = self._store.get(key, method, item, parent) if self._store else None
            if stored is not None:
                return stored
            node = _written(method, item, parent, prepared.get(item.digest) if item else None)
            if self._store and not node.failures:
                self._store.put(key, method, node)
            return node

        return self._nodes.once(key, make)

    def __deepcopy__(self, memo: object = None) -> MemoryCache:
        return self

    def __reduce__(self) -> tuple[type[MemoryCache], tuple[()]]:
        return MemoryCache, ()


@dataclass(frozen=True)
class _Prepared:
    value: Any
    steps: tuple[Step, ...]
    failures: tuple[Failure, ...]


def _written(method: Method, item: Item | None, parent: Node, prepared: _Prepared | None) -> Node:
    prepared = prepared or _Prepared(None, (), ())

    def work() -> Any:
        return method.settle(parent.memory) if item is None else method.write(parent.memory, item, prepared.value)

    done = _recorded(_names(method), work)
    return Node(done.value, item, prepared.steps + done.steps, prepared.failures + done.failures, parent)


def _recorded(names: dict[int, str], work: Callable[[], Any]) -> _Prepared:
    """Runs work in a trace of its own and keeps the LM steps and failures."""
    with dspy.context(trace=[], usage_tracker=None), collect_failures() as failures:
        value = work()
        trace = list(dspy.settings.trace or [])
    steps = [Step(names[id(p)], dict(inputs), prediction) for p, inputs, prediction in trace if id(p) in names]
    return _Prepared(value, tuple(steps), tuple(sorted(failures, key=lambda f: (f.where, f.message))))


def _names(method: Method) -> dict[int, str]:
    return {id(predictor): name for name, predictor in method.writers().items()}
