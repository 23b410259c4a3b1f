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

from ..engines.usage import Usage
from ..memory.memory import Memory
from ..records import Context, Failure, History, Item
from ..records.shared_by_copies import SharedByCopies
from .fold import NOTHING, StepResult, Steps, finalize_memory, run_step, write_item, write_items
from .identity import digest, jsonable, writer_key
from .method import Writer
from .threads import SingleFlight

MAX_FREE_MEMORIES = 4096
"""Nodes of writers that ask nothing that are kept, those used last: some eighty histories of fifty sessions."""
EMPTY_VERSION = "start"
"""The version of the empty memory."""
REPLAY_LIMIT = 8
"""Most steps that are replayed per predictor and question."""


@dataclass(frozen=True)
class WriteCall:
    """One LM call of a writing predictor."""

    predictor: str
    """Its path below the writer."""
    inputs: dict[str, Any]
    prediction: dspy.Prediction


@dataclass(frozen=True)
class CachedMemory:
    """The memory after one item of a history."""

    memory: Memory
    item: Item | None = None
    write_calls: tuple[WriteCall, ...] = ()
    failures: tuple[Failure, ...] = ()
    parent: CachedMemory | None = None
    version: str = ""
    """Names the memory, where it can be made again from what is stored without a call; "" where it cannot."""
    usage: Usage = field(default=Usage(), compare=False)
    """What writing it took, beyond the node before it."""

    def ancestors(self) -> list[CachedMemory]:
        """The nodes from the first item to this one."""
        node = self
        nodes: list[CachedMemory] = []
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
        self._nodes, self._free = SingleFlight(), SingleFlight(capacity=MAX_FREE_MEMORIES)
        self._free_keys: WeakKeyDictionary[Writer, str] = WeakKeyDictionary()

    def get_or_write(self, writer: Writer, history: History) -> CachedMemory:
        """The settled memory of a history, written under the LM and adapter of the current context.

        Raises:
            Exception: What the endpoint raised; every thread that waits for the same item gets the same.
        """
        # What is written without asking anything can be written again, and depends on no model or adapter.
        key, nodes = self._free_keys.get(writer), self._free
        if key is None:
            key = writer_key(writer)
            if writer.calls_model:
                nodes = self._nodes
            else:
                self._free_keys[writer] = key
        whole = (key, f"{history.digest}:whole")
        node = nodes.peek(whole)
        if node is None:
            steps = _SharedSteps(self, nodes, writer, key, history)
            # Before anything is prepared: what another process has written needs no extraction either.
            node = steps.longest_cached()
            node = write_items(history.items[steps.at :], node, steps)
            nodes.get_or_compute(whole, lambda: node)
        return node

    def count_missing(self, writer: Writer, histories: Iterable[History]) -> int:
        """How many items of some histories are not in this process's memory yet; 0 where nothing is asked to write."""
        if not writer.calls_model:
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
        self._store = cache.store if writer.calls_model else None
        self.at = 0
        """Items that are written."""

    def run(self, work: Callable[[], Any]) -> StepResult:
        """Outside every optimizer's trace: a step is shared, and replayed where it matters."""
        with dspy.context(trace=None, usage_tracker=None):
            return run_step(work)

    def longest_cached(self) -> CachedMemory:
        """The node of the longest prefix that is known or stored; `at` is that prefix's length."""
        node, prefixes = CachedMemory(self.writer.Memory(), version=EMPTY_VERSION), self._history.prefixes
        for n in range(len(prefixes), 0, -1):
            found = self._nodes.peek((self.key, prefixes[n - 1]))
            if found is not None:
                node, self.at = found, n
                break
        kept = self._store.kept(self.key, prefixes[self.at :]) if self._store and self.at < len(prefixes) else 0
        for item in self._history.items[self.at : self.at + kept]:
            node = self.write(node, item)
        return node

    def extract(self, items: Sequence[Item]) -> Sequence[StepResult]:
        # Other threads that need the same items wait for them, instead of queueing beside every single one.
        together = ("together", self.key, *(item.digest for item in items))
        return self._prepared.get_or_compute(together, lambda: super(_SharedSteps, self).extract(items))

    def write(self, state: CachedMemory, item: Item, extraction: StepResult | None = None) -> CachedMemory:
        def work() -> StepResult:
            ready = self.extract_one(item) if extraction is None else extraction
            return ready.merge(self.run(lambda: write_item(self.writer, state.memory, item, ready.value)))

        self.at += 1
        return self._node(self._history.prefixes[self.at - 1], item, state, work)

    def finalize(self, state: CachedMemory) -> CachedMemory:
        if not self.writer.needs_finalizing and not state.memory.failed_items:
            return state
        settled = f"{self._history.digest}:settled"
        return self._node(settled, None, state, lambda: self.run(lambda: finalize_memory(self.writer, state.memory)))

    def extract_one(self, item: Item) -> StepResult:
        if not self.writer.needs_extraction:
            return NOTHING
        return self._prepared.get_or_compute(
            (self.key, item.digest), lambda: super(_SharedSteps, self).extract_one(item)
        )

    def _node(
        self, prefix: str, item: Item | None, parent: CachedMemory, work: Callable[[], StepResult]
    ) -> CachedMemory:
        key = (self.key, prefix)

        def make() -> CachedMemory:
            node = self._store.get(key, self.writer, item, parent) if self._store else None
            node = node or self._made(key, item, parent, work())
            if self._on_write is not None and item is not None:
                self._on_write()
            return node

        return self._nodes.get_or_compute(key, make)

    def _made(self, key: tuple[str, str], item: Item | None, parent: CachedMemory, done: StepResult) -> CachedMemory:
        names = {id(predictor): name for name, predictor in self.writer.predictors_below().items()}
        calls = [call for call in done.calls if call.prediction is not None and id(call.predictor) in names]
        steps = tuple(WriteCall(names[id(call.predictor)], call.inputs, call.prediction) for call in calls)
        node = CachedMemory(done.value, item, steps, done.failures, parent, usage=done.usage)
        if self._store is None or node.failures:
            return node
        if done.calls:
            return self._store.put(key, self.writer, node)
        return replace(node, version=digest([parent.version, key[1]]) if parent.version else "")


def replay(writer: Writer, node: CachedMemory, recalled: Context, evidence_ids: Sequence[str]) -> None:
    """Puts the write steps that mattered for a question into an optimizer's trace, bound to the writer's predictors.

    Nothing happens where no optimizer listens: without a trace, or with the process-wide one that plain evaluation
    uses. With gold evidence (`evidence_ids`) only the steps that saw it are replayed: the recalled context may hold half of
    all sessions. Otherwise those behind the best-ranked hits are.
    """
    trace = dspy.settings.trace
    if trace is None or trace is _process_wide_trace():
        return
    steps = _relevant(node, evidence_ids or recalled.sources)
    writers = writer.predictors_below()
    room = max(0, dspy.settings.max_trace_size - len(trace))
    # Inputs are copied: SIMBA shortens them in place.
    entries = [(writers[step.predictor], dict(step.inputs), step.prediction) for step in steps]
    trace.extend(entries[:room])


def _process_wide_trace() -> Any:
    """Return the trace of DSPy's settings for the whole process: no `dspy.context` is in force in an empty context."""
    return contextvars.Context().run(lambda: dspy.settings.trace)


def _relevant(node: CachedMemory, wanted: Sequence[str]) -> list[WriteCall]:
    """At most REPLAY_LIMIT steps per predictor that saw a wanted turn, in writing order; else of the last item."""
    chosen: dict[tuple[int, int], WriteCall] = {}
    taken = Counter[str]()
    nodes = node.ancestors()
    where = {turn.id: n for n, part in enumerate(nodes) if part.item for turn in part.item.turns}
    for turn in wanted:
        if turn not in where:
            continue
        # Methods that wait for several sessions write them with the last one, or when they settle.
        n = next((n for n in range(where[turn], len(nodes)) if nodes[n].write_calls), where[turn])
        for m, step in enumerate(nodes[n].write_calls):
            if (n, m) not in chosen and taken[step.predictor] < REPLAY_LIMIT and inputs_contain_turn(step.inputs, turn):
                taken[step.predictor] += 1
                chosen[n, m] = step
    if not chosen:
        return list(next((part.write_calls for part in reversed(nodes) if part.write_calls), ()))[-REPLAY_LIMIT:]
    return [chosen[at] for at in sorted(chosen)]


def inputs_contain_turn(inputs: dict[str, Any], turn: str) -> bool:
    """Whether a turn id is anywhere in the inputs of a call but those that are context alone, by their name."""
    worked = {name: value for name, value in inputs.items() if not name.startswith("earlier")}
    text = json.dumps(worked, default=jsonable, ensure_ascii=False)
    return re.search(rf"(?<![\w:]){re.escape(turn)}(?![\w:])", text) is not None
