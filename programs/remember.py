"""Remembering once: a benchmark asks 200 questions about one conversation, and its memory is written once.

`MemoryCache.remember` folds a writer over a history. Every prefix of the history is a node of its own, keyed by what
the language model would see (`identity.writer_key`) and by the digest of the items. A longer history continues from its
longest known prefix; of many threads that need a node, one writes it and the others wait.

    history   item 1 ──> item 2 ──> item 3        prepare(item): all at once, beforehand
    nodes     (key, h1)  (key, h2)  (key, h3)     write(memory, item): in order, each once
    settled                         (key, h3:settled)

Limits: rollouts of one question share a memory unless each runs in a `identity.rollout` scope. Nodes with a failure are
kept for the life of the cache, never on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import dspy

from ..memory.flight import Flight
from ..records import History, Item
from .fold import Performed, fold, perform
from .gather import gather
from .identity import Identities
from .method import Writer
from .retry import close, take
from .trace import Node, Step


class NodeStore(Protocol):
    """Where nodes outlive the process; `runs` has one over SQLite."""

    def get(self, key: tuple[str, str], writer: Writer, item: Item | None, parent: Node) -> Node | None:
        """Reads a node, or None."""
        ...

    def put(self, key: tuple[str, str], writer: Writer, node: Node) -> None:
        """Writes a node that has no failure."""
        ...


class MemoryCache:
    """Memories by writer and history prefix, each written once however many threads ask.

    Args:
        store: Keeps nodes on disk as well; None keeps them in memory only.
    """

    def __init__(self, store: NodeStore | None = None) -> None:
        self.identities = Identities()
        self._nodes = Flight()
        self._prepared = Flight()
        self._store = store

    def remember(self, writer: Writer, history: History) -> Node:
        """The settled memory of a history.

        Args:
            writer: Writes the memory, under the LM and adapter of the current context.
            history: The history to write.

        Returns:
            The node after the last item, settled.

        Raises:
            Exception: What the endpoint raised; every thread that waits for the same item gets the same.
        """
        steps = _SharedSteps(
            self._nodes, self._prepared, self._store, writer, self.identities.writer_key(writer), history
        )
        node, done = steps.longest()
        if self._store is not None and done < len(history):
            # Before anything is prepared: what another process has written needs no extraction either.
            self._prepared.once(("read", steps.key, history.digest), steps.read)
            node, done = steps.longest()
        steps.at = done
        return fold(history.items[done:], node, steps)

    def __deepcopy__(self, memo: object = None) -> MemoryCache:
        return self

    def __reduce__(self) -> tuple[type[MemoryCache], tuple[()]]:
        return MemoryCache, ()


class _SharedSteps:
    """Steps of one history, shared between threads: each is run by the first thread that needs it."""

    def __init__(
        self, nodes: Flight, prepared: Flight, store: NodeStore | None, writer: Writer, key: str, history: History
    ) -> None:
        self.writer, self.key = writer, key
        self._nodes, self._prepared, self._store = nodes, prepared, store
        self._history = history
        self.at = 0
        """Items that are written."""

    def longest(self) -> tuple[Node, int]:
        """The node of the longest prefix that is known, and that prefix's length."""
        for n in range(len(self._history), 0, -1):
            node = self._nodes.peek((self.key, self._history.prefixes[n - 1]))
            if node is not None:
                return node, n
        return Node(self.writer.Memory()), 0

    def read(self) -> None:
        """Takes the nodes of the history from the store, as far as they go."""
        node = Node(self.writer.Memory())
        for item, prefix in zip(self._history.items, self._history.prefixes, strict=True):
            stored = self._store.get((self.key, prefix), self.writer, item, node) if self._store else None
            if stored is None:
                return
            self._nodes.put((self.key, prefix), stored)
            node = stored

    def prepare(self, items: Sequence[Item]) -> Sequence[Performed]:
        def one(item: Item) -> Performed:
            return self._prepared.once((self.key, item.digest), lambda: _step(lambda: self.writer.prepare(item)))

        # Other threads that need the same items wait for them, instead of queueing beside every single one.
        together = ("together", self.key, *(item.digest for item in items))
        return self._prepared.once(together, lambda: gather([lambda item=item: one(item) for item in items]))

    def write(self, state: Node, item: Item, prepared: Performed) -> Node:
        def work() -> Performed:
            return prepared.then(_step(lambda: take(self.writer, state.memory, item, prepared.value)))

        self.at += 1
        return self._node(self._history.prefixes[self.at - 1], item, state, work)

    def settle(self, state: Node) -> Node:
        if not self.writer.settles and not state.memory.unwritten:
            return state
        settled = f"{self._history.digest}:settled"
        return self._node(settled, None, state, lambda: _step(lambda: close(self.writer, state.memory)))

    def _node(self, prefix: str, item: Item | None, parent: Node, work: Callable[[], Performed]) -> Node:
        """The node of a prefix: known, stored, or made now."""
        key = (self.key, prefix)

        def make() -> Node:
            stored = self._store.get(key, self.writer, item, parent) if self._store else None
            if stored is not None:
                return stored
            done = work()
            node = Node(done.value, item, self._steps(done), done.failures, parent)
            if self._store and not node.failures:
                self._store.put(key, self.writer, node)
            return node

        return self._nodes.once(key, make)

    def _steps(self, done: Performed) -> tuple[Step, ...]:
        """The calls that could be read, by their predictors' paths."""
        names = {id(predictor): name for name, predictor in self.writer.predictors_below().items()}
        return tuple(
            Step(names[id(call.predictor)], call.inputs, call.prediction)
            for call in done.calls
            if call.prediction is not None and id(call.predictor) in names
        )


def _step(work: Callable[[], object]) -> Performed:
    """One step outside every optimizer's trace: it is shared, and replayed where it matters."""
    with dspy.context(trace=None, usage_tracker=None):
        return perform(work)
