"""The memory cache: a history is written once, however many questions ask about it.

    cache = MemoryCache()
    cached = cache.get_or_write(writer, history)
    cached.memory                        # the finalized memory of the history

The memory after every prefix of a history is cached. Its key is what the language model would see
(`identity.writer_key`) and the digest of the prefix, so a longer history continues from its longest
known prefix. Of many threads that need a memory, one writes it and the others wait.

A store keeps memories on disk as well. It gets those that took a call to write, and none with a
failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import dspy

from ..engines.usage import Usage
from ..memory.memory import Memory
from ..records import Failure, History, Item
from ..records.shared_by_copies import SharedByCopies
from .call_recorder import PredictorCall
from .identity import digest, writer_key
from .single_flight import SingleFlight
from .threads import gather
from .writer import Writer
from .writing import (
    NO_EXTRACTION,
    StepResult,
    extract_item,
    finalize_memory,
    record_step,
    write_item,
)

MAX_FREE_MEMORIES = 4096
"""How many memories are kept of writers that call no model: about eighty histories of fifty items.

Those used last are kept. Memories of other writers cost calls, and all of them are kept.
"""
EMPTY_VERSION = "start"
"""The version of the empty memory."""

MemoryKey = tuple[str, str]
"""Writer key, and what was written: the digest of a prefix, or of a history with a suffix."""


@dataclass(frozen=True)
class WriteCall:
    """One LM call of a writing predictor."""

    predictor: str
    """The predictor's path below the writer."""
    inputs: dict[str, Any]
    prediction: dspy.Prediction


@dataclass(frozen=True)
class CachedMemory:
    """The memory after one item of a history, or after its end."""

    memory: Memory
    item: Item | None = None
    """The item that was written last; None for the empty memory, and where it was finalized."""
    write_calls: tuple[WriteCall, ...] = ()
    failures: tuple[Failure, ...] = ()
    parent: CachedMemory | None = None
    """The memory that this one was written from."""
    version: str = ""
    """Names a memory that can be made again from a store without a call; "" for other memories."""
    usage: Usage = field(default=Usage(), compare=False)
    """What this one item took to write."""

    def ancestors(self) -> list[CachedMemory]:
        """Return the memories from the empty one to this one."""
        memories: list[CachedMemory] = []
        current = self
        while current is not None:
            memories.append(current)
            current = current.parent
        memories.reverse()
        return memories


class MemoryStore(Protocol):
    """Keeps cached memories on disk, as `runs.run_store.NodeTable` does."""

    def count_stored(self, key: str, prefixes: Sequence[str]) -> int:
        """Return the length of the longest of some growing prefixes that is stored."""
        ...

    def get(
        self, key: MemoryKey, writer: Writer[Any], item: Item | None, parent: CachedMemory
    ) -> CachedMemory | None:
        """Return a stored memory; None if it is not there or cannot be used any more."""
        ...

    def put(self, key: MemoryKey, writer: Writer[Any], node: CachedMemory) -> CachedMemory:
        """Store a memory, and return it with its version."""
        ...


class MemoryCache(SharedByCopies):
    """Memories by writer and history prefix, each written once however many threads ask.

    Args:
        store: Keeps memories on disk as well; None keeps them in this process only.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store
        self.on_write: Callable[[], None] | None = None
        """Called by any thread for every item that is written, or read from the store."""
        self.extractions: SingleFlight[tuple[str, str], StepResult[Any]] = SingleFlight()
        """Extractions by writer key and digest of the item."""
        self.joint_extractions: SingleFlight[tuple[str, ...], list[StepResult[Any]]] = (
            SingleFlight()
        )
        """Extractions of several items by writer key and digests of the items."""
        self._paid: SingleFlight[MemoryKey, CachedMemory] = SingleFlight()
        self._free: SingleFlight[MemoryKey, CachedMemory] = SingleFlight(MAX_FREE_MEMORIES)
        self._keys_of_free_writers: WeakKeyDictionary[Writer[Any], str] = WeakKeyDictionary()

    def get_or_write(self, writer: Writer[Any], history: History) -> CachedMemory:
        """Return the finalized memory of a history; write what is missing of it.

        It is written under the language model and the adapter of the current context.

        Raises:
            Exception: What the endpoint raised; every thread that waits for the same item gets it.
        """
        key = self._writer_key(writer)
        memories = self._paid if writer.calls_model else self._free
        key_of_whole = (key, f"{history.digest}:whole")
        cached = memories.peek(key_of_whole)
        if cached is not None:
            return cached

        cached = _HistoryWriter(self, memories, writer, key, history).write()
        return memories.get_or_compute(key_of_whole, lambda: cached)

    def count_missing(self, writer: Writer[Any], histories: Iterable[History]) -> int:
        """Return how many items of some histories are not in a memory of this process yet.

        Items of a writer that calls no model cost nothing, and are not counted.
        """
        if not writer.calls_model:
            return 0
        key = writer_key(writer)
        prefixes = {prefix for history in histories for prefix in history.prefixes}
        return sum(self._paid.peek((key, prefix)) is None for prefix in prefixes)

    def _writer_key(self, writer: Writer[Any]) -> str:
        """Return the key of a writer under the model and adapter of the context.

        The key of a writer that calls no model depends on neither, and is computed once.
        """
        known_key = self._keys_of_free_writers.get(writer)
        if known_key is not None:
            return known_key
        key = writer_key(writer)
        if not writer.calls_model:
            self._keys_of_free_writers[writer] = key
        return key


class _HistoryWriter:
    """Write one history for a cache, item by item.

    Every memory and every extraction is computed by the first thread that needs it.
    """

    def __init__(
        self,
        cache: MemoryCache,
        memories: SingleFlight[MemoryKey, CachedMemory],
        writer: Writer[Any],
        key: str,
        history: History,
    ) -> None:
        self.cache = cache
        self.memories = memories
        self.writer = writer
        self.key = key
        self.history = history
        self.store = cache.store if writer.calls_model else None
        # Read once: a thread that still writes when an evaluation has ended must not report to the
        # next one, nor find None between a check and the call.
        self.on_write = cache.on_write

    def write(self) -> CachedMemory:
        """Return the finalized memory of the history."""
        cached, written = self._longest_cached()

        # What another process has stored is read before anything is extracted: it needs no
        # extraction either.
        stored = self._count_stored(written)
        for position in range(written, written + stored):
            cached = self._read_or_write(position, cached)

        written += stored
        extractions = self._extract_together(self.history.items[written:])
        for position, extraction in enumerate(extractions, written):
            cached = self._write(position, cached, extraction)
        return self._finalize(cached)

    def _longest_cached(self) -> tuple[CachedMemory, int]:
        """Return the memory of the longest prefix that this process has, and its length."""
        prefixes = self.history.prefixes
        for length in range(len(prefixes), 0, -1):
            cached = self.memories.peek((self.key, prefixes[length - 1]))
            if cached is not None:
                return cached, length
        return CachedMemory(self.writer.Memory(), version=EMPTY_VERSION), 0

    def _count_stored(self, start: int) -> int:
        """Return how many items from `start` on are in memories of the store."""
        remaining = self.history.prefixes[start:]
        if self.store is None or not remaining:
            return 0
        return self.store.count_stored(self.key, remaining)

    def _read_or_write(self, position: int, parent: CachedMemory) -> CachedMemory:
        """Return the memory after one more item, which is probably stored."""
        item = self.history.items[position]
        write_step = partial(self._extract_and_write_step, parent, item)
        return self._get_or_compute(self.history.prefixes[position], item, parent, write_step)

    def _write(
        self, position: int, parent: CachedMemory, extraction: StepResult[Any]
    ) -> CachedMemory:
        """Return the memory after one more item."""
        item = self.history.items[position]
        write_step = partial(self._write_step, parent, item, extraction)
        return self._get_or_compute(self.history.prefixes[position], item, parent, write_step)

    def _finalize(self, parent: CachedMemory) -> CachedMemory:
        """Return the finalized memory; the memory itself where there is nothing to do."""
        if not self.writer.needs_finalizing and not parent.memory.failed_items:
            return parent
        finalize_step = partial(self._finalize_step, parent)
        return self._get_or_compute(f"{self.history.digest}:settled", None, parent, finalize_step)

    def _finalize_step(self, parent: CachedMemory) -> StepResult[Memory]:
        """Finalize a memory, and return it with the calls of that."""
        return _record_untraced(partial(finalize_memory, self.writer, parent.memory))

    def _extract_and_write_step(self, parent: CachedMemory, item: Item) -> StepResult[Memory]:
        """Extract from an item and write it."""
        return self._write_step(parent, item, self._extract(item))

    def _write_step(
        self, parent: CachedMemory, item: Item, extraction: StepResult[Any]
    ) -> StepResult[Memory]:
        """Write an item, and return its memory with the calls of both its steps."""
        write = partial(write_item, self.writer, parent.memory, item, extraction.value)
        return extraction.followed_by(_record_untraced(write))

    def _extract_together(self, items: Sequence[Item]) -> Sequence[StepResult[Any]]:
        """Extract from items at the same time.

        Other threads that need the same items wait for all of them at once, instead of waiting
        for every single one.
        """
        if not items or not self.writer.needs_extraction:
            return [NO_EXTRACTION] * len(items)
        digests = (item.digest for item in items)
        return self.cache.joint_extractions.get_or_compute(
            (self.key, *digests),
            lambda: gather([partial(self._extract, item) for item in items]),
        )

    def _extract(self, item: Item) -> StepResult[Any]:
        if not self.writer.needs_extraction:
            return NO_EXTRACTION
        return self.cache.extractions.get_or_compute(
            (self.key, item.digest),
            lambda: _record_untraced(partial(extract_item, self.writer, item)),
        )

    def _get_or_compute(
        self,
        prefix: str,
        item: Item | None,
        parent: CachedMemory,
        compute: Callable[[], StepResult[Memory]],
    ) -> CachedMemory:
        """Return a memory from the cache or the store, or compute and store it."""
        key = (self.key, prefix)

        def read_or_compute() -> CachedMemory:
            cached = None
            if self.store is not None:
                cached = self.store.get(key, self.writer, item, parent)
            if cached is None:
                cached = self._keep(key, item, parent, compute())
            if item is not None and self.on_write is not None:
                self.on_write()
            return cached

        return self.memories.get_or_compute(key, read_or_compute)

    def _keep(
        self, key: MemoryKey, item: Item | None, parent: CachedMemory, step: StepResult[Memory]
    ) -> CachedMemory:
        """Return the cached form of a memory that was just written; store it if it took a call."""
        cached = CachedMemory(
            memory=step.value,
            item=item,
            write_calls=self._write_calls(step.calls),
            failures=step.failures,
            parent=parent,
            usage=step.usage,
        )
        if self.store is None or cached.failures:
            return cached
        if step.calls:
            return self.store.put(key, self.writer, cached)
        if not parent.version:
            return cached
        return replace(cached, version=digest([parent.version, key[1]]))

    def _write_calls(self, calls: Sequence[PredictorCall]) -> tuple[WriteCall, ...]:
        """Return those calls of the writer's predictors that could be read."""
        paths: dict[int, str] = {}
        for path, predictor in self.writer.predictors_below().items():
            paths[id(predictor)] = path

        write_calls: list[WriteCall] = []
        for call in calls:
            path = paths.get(id(call.predictor))
            if path is not None and call.prediction is not None:
                write_calls.append(WriteCall(path, call.inputs, call.prediction))
        return tuple(write_calls)


def _record_untraced(compute: Callable[[], Any]) -> StepResult[Any]:
    """Record a step outside every optimizer's trace: it is shared, and replayed if it matters."""
    with dspy.context(trace=None, usage_tracker=None):
        return record_step(compute)
