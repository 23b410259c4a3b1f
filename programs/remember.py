"""Remembering once: a benchmark asks 200 questions about one conversation, and its memory is written once.

`MemoryCache.remember` folds a writer over a history. Every prefix of the history is a node of its own, keyed by what
the language model would see (`identity.writer_key`) and by the digest of the items. A longer history continues from its
longest known prefix; of many threads that need a node, one writes it and the others wait.

    history   item 1 ──> item 2 ──> item 3        prepare(item): all at once, beforehand
    nodes     (key, h1)  (key, h2)  (key, h3)     write(memory, item): in order, each once
    settled                         (key, h3:settled)

A store keeps the nodes that took a call. What took none is made again from the node before it, as if it had been kept:
a history of turns that are only kept as they are costs nothing on disk.

Limits: rollouts of one question share a memory unless each runs in a `identity.rollout` scope. Nodes with a failure are
kept for the life of the cache, never on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import dspy

from ..memory.flight import Flight
from ..records import History, Item
from .fold import NOTHING, Performed, fold, perform
from .gather import gather
from .identity import Identities, digest
from .method import Writer
from .retry import close, take
from .trace import Node, Step

FREE = 4096
"""Nodes of writers that ask nothing that are kept, those used last: some eighty histories of fifty sessions."""
START = "start"
"""The version of the empty memory."""


class NodeStore(Protocol):
    """Where nodes outlive the process; `runs` has one over SQLite."""

    def kept(self, key: str, prefixes: Sequence[str]) -> int:
        """How many items of a history there are up to the last one whose node is here; 0 if none is."""
        ...

    def get(self, key: tuple[str, str], writer: Writer, item: Item | None, parent: Node) -> Node | None:
        """Reads a node with its version, or None."""
        ...

    def put(self, key: tuple[str, str], writer: Writer, node: Node) -> Node:
        """Writes a node that has no failure; returns it with its version."""
        ...


class MemoryCache:
    """Memories by writer and history prefix, each written once however many threads ask.

    Args:
        store: Keeps nodes on disk as well; None keeps them in memory only.
    """

    def __init__(self, store: NodeStore | None = None) -> None:
        self.identities = Identities()
        self._nodes = Flight()
        self._free = Flight(capacity=FREE)
        self._prepared = Flight()
        self._store = store
        self._heard: Callable[[], None] | None = None

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
        # What is written without asking anything can be written again.
        nodes, store = (self._nodes, self._store) if writer.asks else (self._free, None)
        key = self.identities.writer_key(writer)
        steps = _SharedSteps(nodes, self._prepared, store, writer, key, history, self._heard)
        # Before anything is prepared: what another process has written needs no extraction either.
        node = steps.known()
        return fold(history.items[steps.at :], node, steps)

    def unwritten(self, writer: Writer, histories: Iterable[History]) -> int:
        """How many items of some histories are not in this process's memory yet; 0 where nothing is asked to write.

        Args:
            writer: Under the LM and adapter of the current context.
            histories: Those that begin alike share what they begin with.
        """
        if not writer.asks:
            return 0
        key = self.identities.writer_key(writer)
        prefixes = {prefix for history in histories for prefix in history.prefixes}
        return sum(self._nodes.peek((key, prefix)) is None for prefix in prefixes)

    @contextmanager
    def telling(self, heard: Callable[[], None]) -> Generator[None]:
        """Calls `heard` for every item of a history that is written, or read from the store, in the block.

        It may be called by several threads at once.
        """
        before, self._heard = self._heard, heard
        try:
            yield
        finally:
            self._heard = before

    def __deepcopy__(self, memo: object = None) -> MemoryCache:
        return self

    def __reduce__(self) -> tuple[type[MemoryCache], tuple[()]]:
        return MemoryCache, ()


class _SharedSteps:
    """Steps of one history, shared between threads: each is run by the first thread that needs it."""

    def __init__(
        self,
        nodes: Flight,
        prepared: Flight,
        store: NodeStore | None,
        writer: Writer,
        key: str,
        history: History,
        heard: Callable[[], None] | None = None,
    ) -> None:
        self.writer, self.key = writer, key
        self._heard = heard
        self._nodes, self._prepared, self._store = nodes, prepared, store
        self._history = history
        self.at = 0
        """Items that are written."""

    def known(self) -> Node:
        """The node of the longest prefix that is known or stored; `at` is that prefix's length."""
        node, prefixes = Node(self.writer.Memory(), version=START), self._history.prefixes
        for n in range(len(prefixes), 0, -1):
            found = self._nodes.peek((self.key, prefixes[n - 1]))
            if found is not None:
                node, self.at = found, n
                break
        kept = self._store.kept(self.key, prefixes[self.at :]) if self._store and self.at < len(prefixes) else 0
        for item in self._history.items[self.at : self.at + kept]:
            node = self.write(node, item)
        return node

    def prepare(self, items: Sequence[Item]) -> Sequence[Performed]:
        # Other threads that need the same items wait for them, instead of queueing beside every single one.
        together = ("together", self.key, *(item.digest for item in items))
        return self._prepared.once(together, lambda: gather([lambda item=item: self._ready(item) for item in items]))

    def write(self, state: Node, item: Item, prepared: Performed | None = None) -> Node:
        def work() -> Performed:
            ready = self._ready(item) if prepared is None else prepared
            return ready.then(_step(lambda: take(self.writer, state.memory, item, ready.value)))

        self.at += 1
        return self._node(self._history.prefixes[self.at - 1], item, state, work)

    def settle(self, state: Node) -> Node:
        if not self.writer.settles and not state.memory.unwritten:
            return state
        settled = f"{self._history.digest}:settled"
        return self._node(settled, None, state, lambda: _step(lambda: close(self.writer, state.memory)))

    def _ready(self, item: Item) -> Performed:
        if not self.writer.prepares:
            return NOTHING
        return self._prepared.once((self.key, item.digest), lambda: _step(lambda: self.writer.prepare(item)))

    def _node(self, prefix: str, item: Item | None, parent: Node, work: Callable[[], Performed]) -> Node:
        """The node of a prefix: known, stored, or made now."""
        key = (self.key, prefix)

        def make() -> Node:
            made = found()
            if self._heard is not None and item is not None:
                self._heard()
            return made

        def found() -> Node:
            stored = self._store.get(key, self.writer, item, parent) if self._store else None
            if stored is not None:
                return stored
            done = work()
            node = Node(done.value, item, self._steps(done), done.failures, parent, taken=done.taken)
            if self._store is None or node.failures:
                return node
            if done.calls:
                return self._store.put(key, self.writer, node)
            return replace(node, version=digest([parent.version, prefix]) if parent.version else "")

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
