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
from typing import Any, NamedTuple, Protocol
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
        """Return every memory that was written on the way to this one, from the empty one on."""
        memories: list[CachedMemory] = []
        current = self
        while current is not None:
            memories.append(current)
            current = current.parent
        memories.reverse()
        return memories


class MemoryStore(Protocol):
    """Keeps cached memories on disk, as `runs.memory_table.MemoryTable` does."""

    def number_of_longest_stored(self, key: str, prefixes: Sequence[str]) -> int:
        """Return which of some prefixes is the longest that has a stored memory.

        Args:
            key: The key of the writer of the memories.
            prefixes: Digests of prefixes of a history, from the shortest to the longest.

        Returns:
            The number of that prefix: 1 for the first of `prefixes`, 2 for the second, and so on; 0
            if none has a stored memory.
        """
        ...

    def get(
        self, key: MemoryKey, writer: Writer[Any], item: Item | None, parent: CachedMemory
    ) -> CachedMemory | None:
        """Return a stored memory; None if it is not there or cannot be used any more.

        Args:
            key: The key of the writer, and the digest of all items that are in the memory.
            writer: The writer, which knows the class of the memory.
            item: The item that was written last; None for a finalized memory.
            parent: The memory before that item.
        """
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
        self._paid_memories: SingleFlight[MemoryKey, CachedMemory] = SingleFlight()
        """Memories of writers that call a model."""
        self._free_memories: SingleFlight[MemoryKey, CachedMemory] = SingleFlight(MAX_FREE_MEMORIES)
        """Memories of writers that call no model."""
        self._keys_of_free_writers: WeakKeyDictionary[Writer[Any], str] = WeakKeyDictionary()

    def get_or_write(self, writer: Writer[Any], history: History) -> CachedMemory:
        """Return the finalized memory of a history, which is written if it is not cached.

        It is written by the language model and the adapter that are set in DSPy at the moment.

        Raises:
            Exception: The model could not be asked. Every thread that waits for the same item gets
                the exception.
        """
        key = self._writer_key(writer)
        # All memories that took calls of a model are kept. The others can be written again for
        # nothing, so only those used last are.
        memories = self._paid_memories if writer.calls_model else self._free_memories

        # The finalized memory has a key of its own, so that a second question about the history
        # need not look through its prefixes.
        finalized_key = (key, f"{history.digest}:whole")
        cached = memories.peek(finalized_key)
        if cached is not None:
            return cached

        cached = _HistoryWriter(self, memories, writer, key, history).write()
        # If another thread wrote it meanwhile, both return the same object.
        return memories.get_or_compute(finalized_key, lambda: cached)

    def count_missing(self, writer: Writer[Any], histories: Iterable[History]) -> int:
        """Return how many items of the histories this process has yet to write or read from disk.

        Items with which several histories begin are written once, so they count once. The result
        is 0 for a writer that calls no model, since writing then costs nothing.
        """
        if not writer.calls_model:
            return 0

        # A history has one prefix per item: the digest of all items up to this one. Histories that
        # begin with the same items share these prefixes, and the set holds them once.
        prefixes: set[str] = set()
        for history in histories:
            prefixes.update(history.prefixes)

        # An item is written when the memory after it is in the cache.
        key = writer_key(writer)
        missing = [prefix for prefix in prefixes if not self._is_cached(key, prefix)]
        return len(missing)

    def _is_cached(self, key: str, prefix: str) -> bool:
        """Return whether this process holds the memory of a prefix, by a writer that calls a model.

        Args:
            key: The key of the writer.
            prefix: The digest of the items in the prefix.
        """
        return self._paid_memories.peek((key, prefix)) is not None

    def _writer_key(self, writer: Writer[Any]) -> str:
        """Return the part of a cache key that stands for a writer, its model and its adapter.

        The key of a writer that calls no model never changes, so it is computed only once.
        """
        free_key = self._keys_of_free_writers.get(writer)
        if free_key is not None:
            return free_key

        key = writer_key(writer)
        if not writer.calls_model:
            self._keys_of_free_writers[writer] = key
        return key


class _WrittenPrefix(NamedTuple):
    """The beginning of a history that is in a memory."""

    memory: CachedMemory
    item_count: int


class _HistoryWriter:
    """Write one history for a cache, item by item.

    Every memory and every extraction is computed by the first thread that needs it.
    """

    def __init__(
        self,
        cache: MemoryCache,
        memories: SingleFlight[MemoryKey, CachedMemory],
        writer: Writer[Any],
        writer_key: str,
        history: History,
    ) -> None:
        self.cache = cache
        self.memories = memories
        self.writer = writer
        self.writer_key = writer_key
        self.history = history
        self.store = cache.store if writer.calls_model else None
        # Read once: a thread that still writes when an evaluation has ended must not report to the
        # next one, nor find None between a check and the call.
        self.on_write = cache.on_write

    def write(self) -> CachedMemory:
        """Return the finalized memory of the history, and write only what is missing of it."""
        written = self._longest_cached()
        cached = written.memory
        item_count = written.item_count

        # Read what other processes have stored before anything is extracted, since items that are
        # in a stored memory need no extraction.
        stored_count = self._count_stored(item_count)
        for position in range(item_count, item_count + stored_count):
            cached = self._read_or_write(position, cached)
        item_count += stored_count

        # Extractions need no memory, so those of all other items are made at the same time. Then
        # the items are written one after another.
        extractions = self._extract_together(self.history.items[item_count:])
        for position, extraction in enumerate(extractions, item_count):
            cached = self._write(position, cached, extraction)
        return self._finalize(cached)

    def _longest_cached(self) -> _WrittenPrefix:
        """Return the cached memory with the most items of the history, counted from the first.

        Only memories of this process are looked at. If there is none, an empty memory is returned.
        """
        prefixes = self.history.prefixes
        for item_count in range(len(prefixes), 0, -1):
            # The key of a memory holds the digest of all items that are in it.
            cached = self.memories.peek((self.writer_key, prefixes[item_count - 1]))
            if cached is not None:
                return _WrittenPrefix(cached, item_count)

        empty = CachedMemory(self.writer.Memory(), version=EMPTY_VERSION)
        return _WrittenPrefix(empty, item_count=0)

    def _count_stored(self, start: int) -> int:
        """Return how many of the next items are in a memory on disk, and need not be written.

        Args:
            start: How many items, from the first on, are in a memory of this process already.
        """
        # The memory after an item is stored under a prefix: a digest of all items up to this one.
        # These are the prefixes that end with the next item, the one after it, and so on.
        longer_prefixes = self.history.prefixes[start:]
        if self.store is None or not longer_prefixes:
            return 0
        # If the longest prefix with a stored memory is the third of the list, the result is 3: this
        # memory has the next three items.
        return self.store.number_of_longest_stored(self.writer_key, longer_prefixes)

    def _read_or_write(self, position: int, parent: CachedMemory) -> CachedMemory:
        """Return the memory after one more item; the store is expected to have this memory.

        If the store has lost the memory meanwhile, the item is extracted and written after all.

        Args:
            position: The position of the item in the history.
            parent: The memory before the item.
        """
        item = self.history.items[position]
        # `_get_or_compute` looks in the cache and the store. It runs this step only if neither has
        # the memory.
        write_step = partial(self._extract_and_write_step, parent, item)
        return self._get_or_compute(self.history.prefixes[position], item, parent, write_step)

    def _write(
        self, position: int, parent: CachedMemory, extraction: StepResult[Any]
    ) -> CachedMemory:
        """Write one more item, and return the memory after it.

        If another thread has written the item meanwhile, its memory is returned.

        Args:
            position: The position of the item in the history.
            parent: The memory before the item.
            extraction: What the writer read from the item alone.
        """
        item = self.history.items[position]
        # `_get_or_compute` runs this step only if no thread has written the memory yet.
        write_step = partial(self._write_step, parent, item, extraction)
        return self._get_or_compute(self.history.prefixes[position], item, parent, write_step)

    def _finalize(self, parent: CachedMemory) -> CachedMemory:
        """Return the memory that questions are asked of, after the last step of writing a history.

        This step also tries failed items once more. If there is nothing to do, the memory itself is
        returned.
        """
        if not self.writer.needs_finalizing and not parent.memory.failed_items:
            return parent

        # The memory before this step holds the same items, so a suffix tells the two memories
        # apart. Stored memories have this suffix in their keys, so it must not change.
        items_digest = f"{self.history.digest}:settled"
        finalize_step = partial(self._finalize_step, parent)
        return self._get_or_compute(items_digest, None, parent, finalize_step)

    def _finalize_step(self, parent: CachedMemory) -> StepResult[Memory]:
        """Finalize a memory, and return it with the calls that finalizing made."""
        return _record_untraced(partial(finalize_memory, self.writer, parent.memory))

    def _extract_and_write_step(self, parent: CachedMemory, item: Item) -> StepResult[Memory]:
        """Extract from an item and write it."""
        return self._write_step(parent, item, self._extract(item))

    def _write_step(
        self, parent: CachedMemory, item: Item, extraction: StepResult[Any]
    ) -> StepResult[Memory]:
        """Write an item, and return the new memory with the calls of extracting and writing."""
        write = partial(write_item, self.writer, parent.memory, item, extraction.value)
        return extraction.followed_by(_record_untraced(write))

    def _extract_together(self, items: Sequence[Item]) -> Sequence[StepResult[Any]]:
        """Return the extraction of each item; all are made at the same time."""
        if not items or not self.writer.needs_extraction:
            return [NO_EXTRACTION] * len(items)

        # `_extract` caches the extraction of every single item. The whole list is cached too: a
        # second thread that writes the same history waits once for the list, not for every item.
        digests = [item.digest for item in items]
        return self.cache.joint_extractions.get_or_compute(
            (self.writer_key, *digests),
            lambda: gather([partial(self._extract, item) for item in items]),
        )

    def _extract(self, item: Item) -> StepResult[Any]:
        """Return what the writer reads from one item alone, with the calls that it took.

        The result is cached, since another history may hold the same item.
        """
        if not self.writer.needs_extraction:
            return NO_EXTRACTION
        # The calls stay out of the trace of the question that happens to need the item first.
        return self.cache.extractions.get_or_compute(
            (self.writer_key, item.digest),
            lambda: _record_untraced(partial(extract_item, self.writer, item)),
        )

    def _get_or_compute(
        self,
        items_digest: str,
        item: Item | None,
        parent: CachedMemory,
        write_step: Callable[[], StepResult[Memory]],
    ) -> CachedMemory:
        """Return the memory after one step of writing; run the step only if nobody has done so.

        The memory may be in the cache of this process, or in the store on disk. If it is in
        neither, the step writes it. Then the cache keeps it, and the store too if it took a call.

        Args:
            items_digest: A digest of all items that are in the memory; part of its key.
            item: The item that the step writes; None for the last step, which finalizes the memory.
            parent: The memory before the step.
            write_step: Runs the step, and returns the memory with the calls that it took.
        """
        memory_key = (self.writer_key, items_digest)

        # The cache runs this function in one thread per memory; other threads wait for the result.
        def read_or_write() -> CachedMemory:
            cached = None
            if self.store is not None:
                cached = self.store.get(memory_key, self.writer, item, parent)
            if cached is None:
                cached = self._store_if_paid(memory_key, item, parent, write_step())

            # `on_write` counts items, for a display of progress. The last step adds no item.
            if item is not None and self.on_write is not None:
                self.on_write()
            return cached

        return self.memories.get_or_compute(memory_key, read_or_write)

    def _store_if_paid(
        self,
        memory_key: MemoryKey,
        item: Item | None,
        parent: CachedMemory,
        step: StepResult[Memory],
    ) -> CachedMemory:
        """Return a new memory as the cache holds it, and store it on disk if it took a call.

        A memory with failures is not stored, so a later run writes it anew.

        Args:
            memory_key: The key of the writer, and the digest of the items that are in the memory.
            item: The item that was written last; None for a finalized memory.
            parent: The memory before this step.
            step: The new memory, with the calls that it took.
        """
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
            return self.store.put(memory_key, self.writer, cached)

        # This memory took no call, so it is not stored: a later run writes it again from its parent
        # for nothing. A parent without a version cannot be read from the store, and a later run may
        # write another one. Then this memory gets no version either.
        if not parent.version:
            return cached

        # The store keeps the next memory as changes to a memory with this version. The version is
        # the same whenever the same items are written on the same parent.
        _, items_digest = memory_key
        version = digest([parent.version, items_digest])
        return replace(cached, version=version)

    def _write_calls(self, calls: Sequence[PredictorCall]) -> tuple[WriteCall, ...]:
        """Return the calls that the writer's predictors made, with their paths below the writer.

        Calls of other predictors and calls without a readable answer are left out.
        """
        # `call.predictor` is the very object that made the call, so its path is looked up by the id
        # of the object.
        paths_by_id: dict[int, str] = {}
        for path, predictor in self.writer.predictors_below().items():
            paths_by_id[id(predictor)] = path

        write_calls: list[WriteCall] = []
        for call in calls:
            path = paths_by_id.get(id(call.predictor))
            if path is not None and call.prediction is not None:
                write_calls.append(WriteCall(path, call.inputs, call.prediction))
        return tuple(write_calls)


def _record_untraced(compute: Callable[[], Any]) -> StepResult[Any]:
    """Run a step of a writer and record its calls, but not in the trace of the current question.

    Many questions share the memory, so the calls do not belong to the question that happens to be
    first. `replay.replay_write_calls` adds them later to the traces of all questions that used
    what they wrote.

    Args:
        compute: Runs the step.
    """
    # Without a trace and a usage tracker, DSPy writes nothing about the calls.
    with dspy.context(trace=None, usage_tracker=None):
        return record_step(compute)
