"""Keep one search index for all versions of a memory, and update it from version to version.

A writer turns a memory into the next version by replacing a few of its thousands of parts, e.g. of
its facts. An index of each version would cost time and space for all parts, every time. So all
versions of one memory share an index, which holds the entries of one of them at a time:

    >>> from mempiler.memory.entry import Entry
    >>> from mempiler.memory.memory import Memory
    >>> from mempiler.memory.search.index_cache import IndexCache
    >>> class Notes(Memory[Entry]):
    ...     notes: tuple[Entry, ...] = ()
    ...
    ...     def entries(self):
    ...         return self.notes
    >>> cache = IndexCache()
    >>> first = Notes(notes=(Entry(id="n1", text="Ada lives in Lisbon"),))
    >>> second = first.replace(notes=(*first.notes, Entry(id="n2", text="Ada likes jazz")))
    >>> [[hit.id for hit in hits] for hits in cache.search(first, ["Ada"], k=5)]
    [['n1']]
    >>> [[hit.id for hit in hits] for hits in cache.search(second, ["Ada"], k=5)]  # adds n2 alone
    [['n1', 'n2']]
    >>> [[hit.id for hit in hits] for hits in cache.search(first, ["Ada"], k=5)]  # removes n2 again
    [['n1']]

How an index is updated. A version is a sequence of parts. Memories are frozen, so a part that did
not change is the same object in both versions. So removed and new parts are found by identity, and
only their entries are compared (`_EntryChanges`). The index then finds what a new index of the
version would find, with equal scores in the same order.

Where it is kept. The versions of a memory share a `Lineage`, which holds one index for every
`IndexCache` that searched one of them. An index is dropped with the last version, and with its
cache.

What is locked. Each index has a lock, which is held while the index is updated and read. A search
holds it twice:

1. with the lock, update the index and read the names that are left out of queries;
2. without it, embed the queries;
3. with the lock, update the index again and score all entries;
4. without it, let a reranker order the first hits again.

So the slow steps 2 and 4 of several searches, which may wait for an endpoint, run side by side.
Step 3 updates again because other threads may have searched other versions during step 2.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from ...async_bridge import off_loop
from ...records import Hit
from ...records.shared_by_copies import SharedByCopies
from ..changes import common_prefix_length
from ..entry import Entry, EntryFilter
from .embedder import Embedder, query_vectors
from .index import Index, check_queries
from .timing import timed_search
from .weights import DEFAULT_WEIGHTS, SignalWeights

PartEntries = tuple[Entry, ...]
"""The entries that were made of one part of a memory."""


class Lineage(SharedByCopies):
    """The indexes that all versions of one memory share; it lives as long as any version.

    Any two lineages are equal, so that memories are equal if their fields are.
    """

    def __init__(self) -> None:
        self.indexes = weakref.WeakKeyDictionary[IndexCache, _SharedIndex]()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage)

    def __reduce__(self) -> tuple[type[Lineage], tuple[()]]:
        # A memory that comes out of a pickle gets an index of its own with its first search.
        return Lineage, ()


class SearchedMemory(Protocol):
    """What can be searched by an `IndexCache`, e.g. a `Memory`. It can be referred to weakly."""

    @property
    def lineage(self) -> Lineage:
        """The lineage that it shares with its other versions."""
        ...


class IndexCache(SharedByCopies):
    """Searches memories of a method, and keeps their indexes. Many threads may use it at once.

    Args:
        embedder: Turns texts into vectors; None searches by words alone.
        hybrid: Whether words count beside vectors; see `Index`.
        parts: Returns the parts of a memory in their order; `Memory.parts` by default. What its
            entries are made of may be split in any way, but what did not change from one version to
            the next should be the same object.
        part_entries: Returns the entries of one part of a memory; `Memory.entry` by default. For
            the same part they are always equal.
        weights: How much each signal of a search counts.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        hybrid: bool = False,
        parts: Callable[[Any], Sequence[Any]] | None = None,
        part_entries: Callable[[Any, Any], Iterable[Entry]] | None = None,
        weights: SignalWeights = DEFAULT_WEIGHTS,
    ) -> None:
        self.embedder = embedder
        self.hybrid = hybrid
        self.weights = weights
        self._parts = parts or _parts_of_memory
        self._part_entries = part_entries or _entry_of_part

    def search(
        self,
        memory: SearchedMemory,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: EntryFilter | None = None,
        vectors: np.ndarray | None = None,
    ) -> list[list[Hit]]:
        """Find the best entries of a memory for each query.

        In bridged code a thread searches: it may hold a lock while it waits for an embedder.

        Args:
            memory: Any version of a memory.
            queries: As for `Index.search`, like all other arguments, results and errors.
            k: The most hits for each query.
            min_score: Hits that score lower are left out.
            where: Only entries for which it returns True are found. It may search the same memory.
            vectors: The vectors of the queries, if they are known.
        """
        check_queries(queries)
        search = partial(self._search, memory, queries, k, min_score, where, vectors)
        return off_loop(search)

    def _search(
        self,
        memory: SearchedMemory,
        queries: Sequence[str],
        k: int,
        min_score: float,
        where: EntryFilter | None,
        vectors: np.ndarray | None,
    ) -> list[list[Hit]]:
        """Search in the running thread."""
        shared = self._shared_index(memory)

        # Embed before the lock is held: an embedder may wait for an endpoint, and other threads
        # would have to wait with it.
        if vectors is None and queries and k > 0:
            vectors = self._query_vectors(shared, memory, queries)

        # Whatever reads the index needs the lock. Waiting for it and updating the index do not
        # count as time of the search.
        with shared.lock:
            index = self._updated_index(shared, memory)
            with timed_search():
                searches = index.search_deferred(queries, k, min_score, where, vectors)

        # The rest does not read the index. A reranker may take seconds, so it runs without the
        # lock.
        with timed_search():
            return [search.hits() for search in searches]

    def entries(self, memory: SearchedMemory) -> list[Entry]:
        """Return the entries that are searched in a memory, in their order, without an index."""
        entries: list[Entry] = []
        for part in self._parts(memory):
            entries.extend(self._part_entries(memory, part))
        return entries

    def _shared_index(self, memory: SearchedMemory) -> _SharedIndex:
        """Return the index that all versions of a memory share; at first an empty one."""
        indexes = memory.lineage.indexes
        shared = indexes.get(self)
        if shared is None:
            # If two threads get here at once, `setdefault` gives the same index to both.
            shared = indexes.setdefault(self, _SharedIndex(self._new_index()))
        return shared

    def _new_index(self) -> Index:
        return Index(self.embedder, self.hybrid, self.weights)

    def _query_vectors(
        self, shared: _SharedIndex, memory: SearchedMemory, queries: Sequence[str]
    ) -> np.ndarray | None:
        """Return the vectors of queries; None if there is no embedder or nothing to search."""
        if self.embedder is None:
            return None

        # Only the index knows the names of speakers, which are left out of the queries.
        with shared.lock:
            index = self._updated_index(shared, memory)
            if len(index) == 0:
                return None
            semantic_queries = index.semantic_queries(queries)

        # The lock is released on purpose: an embedder may wait for an endpoint.
        with timed_search():
            return query_vectors(self.embedder, semantic_queries)

    def _updated_index(self, shared: _SharedIndex, memory: SearchedMemory) -> Index:
        """Return the index after updating it to a version of its memory.

        The caller holds the lock of the index until it has used the index.
        """
        if shared.holds_version(memory):
            return shared.index

        # An index without parts is new, or its last update failed: build it anew.
        if not shared.parts or not self._update(shared, memory):
            shared.reset(self._new_index())
            self._update(shared, memory)
        return shared.index

    def _update(self, shared: _SharedIndex, memory: SearchedMemory) -> bool:
        """Update an index to another version of its memory.

        Returns:
            Whether it holds every entry then. It may not if two entries of a version have one id:
            they share a row of the index, so that both are gone when one of them is removed.
        """
        old_parts = shared.parts
        new_parts = self._parts(memory)
        shared.forget_version()

        # Parts at the beginning that both versions share need no update.
        prefix_length = common_prefix_length(old_parts, new_parts)
        old_tail = shared.entries_by_part[prefix_length:]

        # Of the parts behind, those that did not change keep their entries.
        known_entries = _entries_by_identity(old_parts[prefix_length:], old_tail)
        new_tail: list[PartEntries] = []
        for part in new_parts[prefix_length:]:
            entries = known_entries.get(id(part))
            if entries is None:
                entries = tuple(self._part_entries(memory, part))
            new_tail.append(entries)

        expected_length = len(shared.index) + _count_entries(new_tail) - _count_entries(old_tail)
        changes = _EntryChanges.between(old_tail, new_tail)
        shared.index.update(changes.added, changes.removed_ids)

        shared.entries_by_part[prefix_length:] = new_tail
        shared.set_version(memory, new_parts)
        return len(shared.index) == expected_length


class _SharedIndex:
    """An index, and the version of a memory whose entries it holds.

    Whoever reads or changes anything of it holds `lock`.
    """

    def __init__(self, index: Index) -> None:
        # Reentrant: the filter of a search may search the same memory, in the same thread.
        self.lock = threading.RLock()
        self.index = index
        self.parts: Sequence[Any] = ()
        """The parts of the version; () if the index holds no version, or an empty one."""
        self.entries_by_part: list[PartEntries] = []
        """The entries of each of these parts."""
        self._memory: weakref.ref[SearchedMemory] | None = None
        """The version; None if the index holds none."""

    def holds_version(self, memory: SearchedMemory) -> bool:
        """Return whether the index holds exactly the entries of this version."""
        return self._memory is not None and self._memory() is memory

    def set_version(self, memory: SearchedMemory, parts: Sequence[Any]) -> None:
        """Note that the index holds a version. The reference to it is weak: it may be freed."""
        self.parts = parts
        self._memory = weakref.ref(memory)

    def forget_version(self) -> None:
        """Note that the index is about to change: if that fails, it holds no version."""
        self.parts = ()
        self._memory = None

    def reset(self, empty_index: Index) -> None:
        """Begin again with an empty index."""
        self.forget_version()
        self.index = empty_index
        self.entries_by_part = []


@dataclass(frozen=True)
class _EntryChanges:
    """What changes in an index between two versions of a memory."""

    added: list[Entry]
    """Entries to add after the removal, in their order."""
    removed_ids: set[str]
    """Ids to remove first. Entries that only change their place in the order are added again."""

    @classmethod
    def between(
        cls, old_tail: Iterable[PartEntries], new_tail: Iterable[PartEntries]
    ) -> _EntryChanges:
        """Return the changes between the entries of two versions, by parts.

        Args:
            old_tail: The entries of the old version behind those that both versions begin with.
            new_tail: The entries of the new version behind these.
        """
        old_entries = {entry.id: entry for entry in _flat(old_tail)}
        new_entries = {entry.id: entry for entry in _flat(new_tail)}
        reordered_ids = _reordered_ids(old_entries, new_entries)

        added: list[Entry] = []
        for entry_id, entry in new_entries.items():
            old_entry = old_entries.get(entry_id)
            # Entries of parts that stayed are the same objects and need not be compared.
            is_unchanged = old_entry is entry or old_entry == entry
            if entry_id in reordered_ids or not is_unchanged:
                added.append(entry)

        gone_ids = old_entries.keys() - new_entries.keys()
        return cls(added=added, removed_ids=gone_ids | reordered_ids)


def _reordered_ids(old_entries: Mapping[str, Entry], new_entries: Mapping[str, Entry]) -> set[str]:
    """Return the ids in both versions that must be removed and added again.

    An index finds entries of equal scores in the order in which they were added. So an entry may
    stay only if all that come before it in the new version stay, too, and in their order. From
    a, b, c to a, x, b, c, only a may stay: b and c are added again after x.
    """
    ids_in_both = [entry_id for entry_id in old_entries if entry_id in new_entries]

    # Compared with all ids of the new version, so that a new id ends what may stay.
    kept_count = 0
    for old_id, new_id in zip(ids_in_both, new_entries, strict=False):
        if old_id != new_id:
            break
        kept_count += 1
    return set(ids_in_both[kept_count:])


def _entries_by_identity(
    parts: Sequence[Any], entries_by_part: Sequence[PartEntries]
) -> dict[int, PartEntries]:
    """Return the entries of each part by `id(part)`: only the same object is the same part.

    The ids are valid as long as the parts are referenced.
    """
    pairs = zip(parts, entries_by_part, strict=True)
    return {id(part): entries for part, entries in pairs}


def _flat(entries_by_part: Iterable[PartEntries]) -> Iterator[Entry]:
    """Yield the entries of all parts, one part after the other."""
    for entries in entries_by_part:
        yield from entries


def _count_entries(entries_by_part: Iterable[PartEntries]) -> int:
    return sum(len(entries) for entries in entries_by_part)


def _parts_of_memory(memory: Any) -> Sequence[Any]:
    """Return the parts of a `Memory`; the default of `IndexCache`."""
    return memory.parts()


def _entry_of_part(memory: Any, part: Any) -> Iterable[Entry]:
    """Return the one entry of a part of a `Memory`; the default of `IndexCache`."""
    return (memory.entry(part),)
