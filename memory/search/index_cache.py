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
cache. Caches that differ in their weights alone can use the same indexes
(`share_indexes_with`), since weights only count while a search is made.

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
    """Holds the indexes that all versions of one memory share, and lives as long as any version.

    Any two lineages are equal, so that memories are equal if their other fields are.
    """

    def __init__(self) -> None:
        self.indexes = weakref.WeakKeyDictionary[_IndexKey, _SharedIndex]()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lineage)

    def __reduce__(self) -> tuple[type[Lineage], tuple[()]]:
        # Indexes are not pickled: the memory that is loaded gets a new index at its first search.
        return Lineage, ()


class SearchedMemory(Protocol):
    """What can be searched by an `IndexCache`, e.g. a `Memory`. It can be referred to weakly."""

    @property
    def lineage(self) -> Lineage:
        """Holds the indexes that this version of a memory shares with its other versions."""
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
        self._keys = _IndexKeys()
        self._key = self._keys.key_of(self._content())

    def share_indexes_with(self, other: IndexCache) -> None:
        """Use the indexes of another cache from now on, where both would hold the same.

        That is so if they differ in nothing but their weights. With others, this cache goes on with
        indexes of its own, which it shares with caches like itself.
        """
        self._keys = other._keys
        self._key = self._keys.key_of(self._content())

    def _content(self) -> _IndexContent:
        """Return what decides what an index of this cache holds for a memory."""
        return _IndexContent(
            embedder=self.embedder,
            hybrid=self.hybrid,
            parts=self._parts,
            part_entries=self._part_entries,
            neighbour_shares=self.weights.neighbour_shares,
        )

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

        Called from code that runs in an event loop, it searches in a thread: a search may wait for
        a lock and for an embedder, and would hold up the loop.

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
        """Do the work of `search`, in the thread that calls this."""
        shared = self._shared_index(memory)

        # Turn queries into vectors before the lock is held: an embedder may wait for an endpoint,
        # and other threads would have to wait with it.
        if vectors is None and queries and k > 0:
            vectors = self._query_vectors(shared, memory, queries)

        # Whatever reads the index needs the lock. Waiting for it and updating the index do not
        # count as time of the search.
        with shared.lock:
            index = self._updated_index(shared, memory)
            with timed_search():
                searches = index.search_deferred(
                    queries, k, min_score, where, vectors, self.weights
                )

        # The rest does not read the index. It may call a reranker, which takes seconds, so do it
        # without the lock.
        with timed_search():
            return [search.hits() for search in searches]

    def entries(self, memory: SearchedMemory) -> list[Entry]:
        """Return all entries of a memory that a search looks at, in their order.

        It needs no index, so none is built.
        """
        entries: list[Entry] = []
        for part in self._parts(memory):
            entries.extend(self._part_entries(memory, part))
        return entries

    def _shared_index(self, memory: SearchedMemory) -> _SharedIndex:
        """Return the index that all versions of a memory share; an empty one before any search."""
        indexes = memory.lineage.indexes
        shared = indexes.get(self._key)
        if shared is None:
            # If two threads get here at once, `setdefault` gives the same index to both.
            shared = indexes.setdefault(self._key, _SharedIndex(self._new_index()))
        return shared

    def _new_index(self) -> Index:
        """Return an empty index with the settings of this cache."""
        return Index(self.embedder, self.hybrid, self.weights)

    def _query_vectors(
        self, shared: _SharedIndex, memory: SearchedMemory, queries: Sequence[str]
    ) -> np.ndarray | None:
        """Turn queries into vectors; None if there is no embedder or nothing to search.

        Args:
            shared: The index of the memory, with its lock.
            memory: The version of the memory that is searched.
            queries: The queries.
        """
        if self.embedder is None:
            return None

        # Only the index knows the names of speakers, which are left out of the queries.
        with shared.lock:
            index = self._updated_index(shared, memory)
            if len(index) == 0:
                return None
            semantic_queries = index.semantic_queries(queries)

        # The lock is released here on purpose: an embedder may wait for an endpoint.
        with timed_search():
            return query_vectors(self.embedder, semantic_queries)

    def _updated_index(self, shared: _SharedIndex, memory: SearchedMemory) -> Index:
        """Make the index hold the entries of a version of its memory, and return it.

        The caller must hold `shared.lock` until it has used the index: other threads may update it
        to other versions.
        """
        if shared.holds_version(memory):
            return shared.index

        # Change only what differs from the version that the index holds. If it has no parts, it is
        # new or its last update failed.
        if shared.parts and self._update(shared, memory):
            return shared.index

        # Build it anew.
        shared.reset(self._new_index())
        self._update(shared, memory)
        return shared.index

    def _update(self, shared: _SharedIndex, memory: SearchedMemory) -> bool:
        """Change an index so that it holds the entries of another version of its memory.

        A memory consists of parts, e.g. facts, and entries are made of these. Parts never change: a
        part that both versions have is the same object in both, and its entries need no update.

        Returns:
            Whether the index now holds all entries. If not, it must be built anew.
        """
        old_parts = shared.parts
        new_parts = self._parts(memory)

        # If anything below fails, the index is half updated and must not pass for any version.
        shared.forget_version()

        # Skip the parts that both versions begin with. The tail is all that comes after them.
        prefix_length = common_prefix_length(old_parts, new_parts)
        old_tail = shared.entries_by_part[prefix_length:]

        # In the tail, make entries of new parts only.
        known_entries = _entries_by_identity(old_parts[prefix_length:], old_tail)
        new_tail: list[PartEntries] = []
        for part in new_parts[prefix_length:]:
            entries = known_entries.get(id(part))
            if entries is None:
                entries = tuple(self._part_entries(memory, part))
            new_tail.append(entries)

        # Two entries of a version may have the same id. They share a row of the index, so both are
        # gone when one of them is removed. Then the index is shorter than expected.
        expected_length = len(shared.index) + _count_entries(new_tail) - _count_entries(old_tail)
        changes = _EntryChanges.between(old_tail, new_tail)
        shared.index.update(changes.added, changes.removed_ids)

        shared.entries_by_part[prefix_length:] = new_tail
        shared.set_version(memory, new_parts)
        return len(shared.index) == expected_length


class _IndexKey:
    """Stands for one index of every memory; the indexes are dropped with it."""


@dataclass(frozen=True)
class _IndexContent:
    """What decides what an index holds for a memory."""

    embedder: Embedder | None
    hybrid: bool
    parts: Callable[[Any], Sequence[Any]]
    part_entries: Callable[[Any, Any], Iterable[Entry]]
    neighbour_shares: Mapping[int, float]

    def equals(self, other: _IndexContent) -> bool:
        """Return whether indexes of both hold the same."""
        # Embedders that are equal may still be asked at other addresses, so only the very same
        # object counts.
        return (
            self.embedder is other.embedder
            and self.hybrid == other.hybrid
            and self.parts == other.parts
            and self.part_entries == other.part_entries
            and self.neighbour_shares == other.neighbour_shares
        )


class _IndexKeys:
    """The keys of caches that share indexes: one for all caches whose indexes hold the same."""

    def __init__(self) -> None:
        self._keys: list[tuple[_IndexContent, _IndexKey]] = []

    def key_of(self, content: _IndexContent) -> _IndexKey:
        """Return the key of indexes with this content; a new one if there is none yet."""
        for known_content, key in self._keys:
            if known_content.equals(content):
                return key
        key = _IndexKey()
        self._keys.append((content, key))
        return key


class _SharedIndex:
    """An index, with a note which version of a memory has its entries in the index now.

    Hold `lock` to read or to change anything in here.
    """

    def __init__(self, index: Index) -> None:
        # Reentrant: the filter of a search may search the same memory, in the same thread.
        self.lock = threading.RLock()
        self.index = index
        self.parts: Sequence[Any] = ()
        """The parts of this version, e.g. its facts; () for no version, or an empty one."""
        self.entries_by_part: list[PartEntries] = []
        """The entries of each of these parts."""
        self._memory: weakref.ref[SearchedMemory] | None = None
        """A weak reference to this version; None if the index holds no version."""

    def holds_version(self, memory: SearchedMemory) -> bool:
        """Return whether the index holds exactly the entries of this version."""
        return self._memory is not None and self._memory() is memory

    def set_version(self, memory: SearchedMemory, parts: Sequence[Any]) -> None:
        """Note which version the index holds now. A weak reference lets the version be freed."""
        self.parts = parts
        self._memory = weakref.ref(memory)

    def forget_version(self) -> None:
        """Note that the index holds no version, because it is about to be changed."""
        self.parts = ()
        self._memory = None

    def reset(self, empty_index: Index) -> None:
        """Begin anew with an empty index."""
        self.forget_version()
        self.index = empty_index
        self.entries_by_part = []


@dataclass(frozen=True)
class _EntryChanges:
    """What changes in an index between two versions of a memory."""

    added: list[Entry]
    """Entries to add after the removal, in their order."""
    removed_ids: set[str]
    """Ids to remove first, also of entries that are in `added` because their order changed."""

    @classmethod
    def between(
        cls, old_tail: Iterable[PartEntries], new_tail: Iterable[PartEntries]
    ) -> _EntryChanges:
        """Return which entries to remove from an index and which to add, to get the new version.

        Both versions of the memory begin with the same entries, which are left out here.

        Args:
            old_tail: The other entries of the old version, grouped by parts of the memory.
            new_tail: The other entries of the new version.
        """
        old_entries = {entry.id: entry for entry in _flat(old_tail)}
        new_entries = {entry.id: entry for entry in _flat(new_tail)}

        # The order of equal hits is that in which their entries were added. So an entry that is
        # out of order is removed, and added again at the end.
        reordered_ids = _reordered_ids(old_entries, new_entries)

        added: list[Entry] = []
        for entry_id, entry in new_entries.items():
            old_entry = old_entries.get(entry_id)
            # "is" saves comparing the texts of entries that are the same object.
            is_unchanged = old_entry is entry or old_entry == entry
            # Adding a changed entry replaces the old one, so its id need not be removed.
            if entry_id in reordered_ids or not is_unchanged:
                added.append(entry)

        gone_ids = old_entries.keys() - new_entries.keys()
        return cls(added=added, removed_ids=gone_ids | reordered_ids)


def _reordered_ids(old_entries: Mapping[str, Entry], new_entries: Mapping[str, Entry]) -> set[str]:
    """Return the ids of entries that must be removed and added again to get into the new order.

    An index finds entries of equal scores in the order in which they were added. So an entry may
    stay only if all that come before it in the new version stay too, in the same order. From
    a, b, c to a, x, b, c, only a may stay: b and c are added again after x.

    Args:
        old_entries: The entries of the old version by id, in their order.
        new_entries: The entries of the new version by id, in their order.
    """
    ids_in_both = [entry_id for entry_id in old_entries if entry_id in new_entries]

    # Count how many ids at the beginning may stay. In the example, a is equal in both lists, but
    # then b meets x.
    kept_count = 0
    for old_id, new_id in zip(ids_in_both, new_entries, strict=False):
        if old_id != new_id:
            break
        kept_count += 1
    return set(ids_in_both[kept_count:])


def _entries_by_identity(
    parts: Sequence[Any], entries_by_part: Sequence[PartEntries]
) -> dict[int, PartEntries]:
    """Return a dict from `id(part)` to the entries of the part.

    The key is the identity, not the value: a part that did not change between two versions of a
    memory is the same object. An identity is valid as long as the part is referenced.
    """
    pairs = zip(parts, entries_by_part, strict=True)
    return {id(part): entries for part, entries in pairs}


def _flat(entries_by_part: Iterable[PartEntries]) -> Iterator[Entry]:
    """Yield the entries of all parts of a memory, one part after the other."""
    for entries in entries_by_part:
        yield from entries


def _count_entries(entries_by_part: Iterable[PartEntries]) -> int:
    """Return the number of entries in all parts together."""
    return sum(len(entries) for entries in entries_by_part)


def _parts_of_memory(memory: Any) -> Sequence[Any]:
    """Return the parts of a `Memory`; the default of `IndexCache`."""
    return memory.parts()


def _entry_of_part(memory: Any, part: Any) -> Iterable[Entry]:
    """Return the one entry of a part of a `Memory`; the default of `IndexCache`."""
    return (memory.entry(part),)
