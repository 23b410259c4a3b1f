"""The memory cache: a history is written into a memory once, however many questions ask about it.

Every prefix of a history is a node, keyed by what the language model would see (`identity.writer_key`) and the digest
of the items. A longer history continues from its longest known prefix; of many threads that need a node, one writes it.
A store keeps the nodes that took a call, and none with a failure. `replay` shows an optimizer the steps that mattered.
"""

from __future__ import annotations

import contextvars
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import dspy

from ..engines.spending import Spending
from ..memory.memory import Memory
from ..records import Context, Failure, History, Item
from ..records.scope import SharedByCopies
from .fold import NOTHING, StepResult, Steps, close, fold, run_step, take
from .identity import digest, jsonable, writer_key
from .method import Writer
from .threads import SingleFlight

FREE = 4096
"""Nodes of writers that ask nothing that are kept, those used last: some eighty histories of fifty sessions."""
START = "start"
"""The version of the empty memory."""
REPLAY_LIMIT = 8
"""Most steps that are replayed per predictor and question."""


@dataclass(frozen=True)
class Step:
    """One LM call of a writing predictor."""

    predictor: str
    """Its path below the writer."""
    inputs: dict[str, Any]
    prediction: dspy.Prediction


@dataclass(frozen=True)
class Node:
    """The memory after one item of a history."""

    memory: Memory
    item: Item | None = None
    steps: tuple[Step, ...] = ()
    failures: tuple[Failure, ...] = ()
    parent: Node | None = None
    version: str = ""
    """Names the memory, where it can be made again from what is stored without a call; "" where it cannot."""
    taken: Spending = field(default=Spending(), compare=False)
    """What writing it took, beyond the node before it."""

    def chain(self) -> list[Node]:
        """The nodes from the first item to this one."""
        node = self
        nodes: list[Node] = []
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class MemoryCache(SharedByCopies):
    """Memories by writer and history prefix, each written once however many threads ask.

    Args:
        store: Keeps nodes on disk as well (`runs.run_store.NodeTable`); None keeps them in memory only.
    """

    def __init__(self, store: Any = None) -> None:
        self.store, self.prepared = store, SingleFlight()
        self.on_write: Callable[[], None] | None = None
        """Called for every item of a history that is written, or read from the store, by any thread."""
        self._nodes, self._free = SingleFlight(), SingleFlight(capacity=FREE)
        self._free_keys: WeakKeyDictionary[Writer, str] = WeakKeyDictionary()

    def remember(self, writer: Writer, history: History) -> Node:
        """The settled memory of a history, written under the LM and adapter of the current context.

        Raises:
            Exception: What the endpoint raised; every thread that waits for the same item gets the same.
        """
        # What is written without asking anything can be written again, and depends on no model or adapter.
        key, nodes = self._free_keys.get(writer), self._free
        if key is None:
            key = writer_key(writer)
            if writer.asks:
                nodes = self._nodes
            else:
                self._free_keys[writer] = key
        whole = (key, f"{history.digest}:whole")
        node = nodes.peek(whole)
        if node is None:
            steps = _SharedSteps(self, nodes, writer, key, history)
            # Before anything is prepared: what another process has written needs no extraction either.
            node = steps.known()
            node = fold(history.items[steps.at :], node, steps)
            nodes.once(whole, lambda: node)
        return node

    def unwritten(self, writer: Writer, histories: Iterable[History]) -> int:
        """How many items of some histories are not in this process's memory yet; 0 where nothing is asked to write."""
        if not writer.asks:
            return 0
        key = writer_key(writer)
        prefixes = {prefix for history in histories for prefix in history.prefixes}
        return sum(self._nodes.peek((key, prefix)) is None for prefix in prefixes)


class _SharedSteps(Steps):
    """Steps of one history, shared between threads: each is run by the first thread that needs it."""

    def __init__(self, cache: MemoryCache, nodes: SingleFlight, writer: Writer, key: str, history: History) -> None:
        super().__init__(writer)
        self.key, self._history = key, history
        self._nodes, self._prepared, self._on_write = nodes, cache.prepared, cache.on_write
        self._store = cache.store if writer.asks else None
        self.at = 0
        """Items that are written."""

    def step(self, work: Callable[[], Any]) -> StepResult:
        """Outside every optimizer's trace: a step is shared, and replayed where it matters."""
        with dspy.context(trace=None, usage_tracker=None):
            return run_step(work)

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

    def prepare(self, items: Sequence[Item]) -> Sequence[StepResult]:
        # Other threads that need the same items wait for them, instead of queueing beside every single one.
        together = ("together", self.key, *(item.digest for item in items))
        return self._prepared.once(together, lambda: super(_SharedSteps, self).prepare(items))

    def write(self, state: Node, item: Item, prepared: StepResult | None = None) -> Node:
        def work() -> StepResult:
            ready = self.ready(item) if prepared is None else prepared
            return ready.then(self.step(lambda: take(self.writer, state.memory, item, ready.value)))

        self.at += 1
        return self._node(self._history.prefixes[self.at - 1], item, state, work)

    def settle(self, state: Node) -> Node:
        if not self.writer.settles and not state.memory.unwritten:
            return state
        settled = f"{self._history.digest}:settled"
        return self._node(settled, None, state, lambda: self.step(lambda: close(self.writer, state.memory)))

    def ready(self, item: Item) -> StepResult:
        if not self.writer.prepares:
            return NOTHING
        return self._prepared.once((self.key, item.digest), lambda: super(_SharedSteps, self).ready(item))

    def _node(self, prefix: str, item: Item | None, parent: Node, work: Callable[[], StepResult]) -> Node:
        key = (self.key, prefix)

        def make() -> Node:
            node = self._store.get(key, self.writer, item, parent) if self._store else None
            node = node or self._made(key, item, parent, work())
            if self._on_write is not None and item is not None:
                self._on_write()
            return node

        return self._nodes.once(key, make)

    def _made(self, key: tuple[str, str], item: Item | None, parent: Node, done: StepResult) -> Node:
        names = {id(predictor): name for name, predictor in self.writer.predictors_below().items()}
        calls = [call for call in done.calls if call.prediction is not None and id(call.predictor) in names]
        steps = tuple(Step(names[id(call.predictor)], call.inputs, call.prediction) for call in calls)
        node = Node(done.value, item, steps, done.failures, parent, taken=done.taken)
        if self._store is None or node.failures:
            return node
        if done.calls:
            return self._store.put(key, self.writer, node)
        return replace(node, version=digest([parent.version, key[1]]) if parent.version else "")


def replay(writer: Writer, node: Node, recalled: Context, focus: Sequence[str]) -> None:
    """Puts the write steps that mattered for a question into an optimizer's trace, bound to the writer's predictors.

    Nothing happens where no optimizer listens: without a trace, or with the process-wide one that plain evaluation
    uses. With gold evidence (`focus`) only the steps that saw it are replayed: the recalled context may hold half of
    all sessions. Otherwise those behind the best-ranked hits are.
    """
    trace = dspy.settings.trace
    if trace is None or trace is _process_wide_trace():
        return
    steps = _relevant(node, focus or recalled.sources)
    writers = writer.predictors_below()
    room = max(0, dspy.settings.max_trace_size - len(trace))
    # Inputs are copied: SIMBA shortens them in place.
    entries = [(writers[step.predictor], dict(step.inputs), step.prediction) for step in steps]
    trace.extend(entries[:room])


def _process_wide_trace() -> Any:
    """Return the trace of DSPy's settings for the whole process: no `dspy.context` is in force in an empty context."""
    return contextvars.Context().run(lambda: dspy.settings.trace)


def _relevant(node: Node, wanted: Sequence[str]) -> list[Step]:
    """At most REPLAY_LIMIT steps per predictor that saw a wanted turn, in writing order; else of the last item."""
    chosen: dict[tuple[int, int], Step] = {}
    taken = Counter[str]()
    nodes = node.chain()
    where = {turn.id: n for n, part in enumerate(nodes) if part.item for turn in part.item.turns}
    for turn in wanted:
        if turn not in where:
            continue
        # Methods that wait for several sessions write them with the last one, or when they settle.
        n = next((n for n in range(where[turn], len(nodes)) if nodes[n].steps), where[turn])
        for m, step in enumerate(nodes[n].steps):
            if (n, m) not in chosen and taken[step.predictor] < REPLAY_LIMIT and saw(step.inputs, turn):
                taken[step.predictor] += 1
                chosen[n, m] = step
    if not chosen:
        return list(next((part.steps for part in reversed(nodes) if part.steps), ()))[-REPLAY_LIMIT:]
    return [chosen[at] for at in sorted(chosen)]


def saw(inputs: dict[str, Any], turn: str) -> bool:
    """Whether a turn id is anywhere in the inputs of a call but those that are context alone, by their name."""
    worked = {name: value for name, value in inputs.items() if not name.startswith("earlier")}
    text = json.dumps(worked, default=jsonable, ensure_ascii=False)
    return re.search(rf"(?<![\w:]){re.escape(turn)}(?![\w:])", text) is not None
