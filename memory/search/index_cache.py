"""Keep one search index for all versions of a memory, and move it from version to version.

A writer turns a memory into the next version by replacing a few of its thousands of parts, e.g. of
its facts. An index of each version would cost time and space for all parts, every time. So all
versions of one memory share an index, which stands at one of them:

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

How an index is moved. A version is a sequence of parts. Memories are frozen, so a part that did not
change is the same object in both versions: the parts that went and the parts that came are found by
identity, and only what was made of these is looked at (`_EntryChanges`). The index then finds what
a new index of the version would find, with equal scores in the same order.

Where it is kept. The versions of a memory share a `Lineage`, which holds one index for every
`IndexCache` that searched one of them. An index is dropped with the last version, and with its
cache.

What is locked. Each index has a lock, which is held while the index is moved and read. A search
holds it twice, since other threads may search other versions meanwhile:

1. with the lock, move the index and read the names that are left out of queries;
2. without it, embed the queries;
3. with the lock, move the index and score all entries;
4. without it, let a reranker order the first hits again.

So the slow steps of several searches, which may wait for an endpoint, run side by side.
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
        if vectors is None and queries and k > 0:
            vectors = self._query_vectors(shared, memory, queries)

        with shared.lock:
            index = self._index_at(shared, memory)
            with timed_search():
                searches = index.search_deferred(queries, k, min_score, where, vectors)

        with timed_search():
            return [search.hits() for search in searches]

    def entries(self, memory: SearchedMemory) -> list[Entry]:
        """Return what the index of a memory holds, in its order. No index is made."""
        entries: list[Entry] = []
        for part in self._parts(memory):
            entries.extend(self._part_entries(memory, part))
        return entries

    def _shared_index(self, memory: SearchedMemory) -> _SharedIndex:
        indexes = memory.lineage.indexes
        shared = indexes.get(self)
        if shared is None:
            # Of two threads that come first at once, both get the index of one.
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

        with shared.lock:
            index = self._index_at(shared, memory)
            if len(index) == 0:
                return None
            semantic_queries = index.semantic_queries(queries)

        with timed_search():
            return query_vectors(self.embedder, semantic_queries)

    def _index_at(self, shared: _SharedIndex, memory: SearchedMemory) -> Index:
        """Return the index after moving it to a version of its memory.

        Its lock must be held, and held on while the index is used.
        """
        if shared.stands_at(memory):
            return shared.index

        # An index without parts is new, or could not be moved to its last version: build it anew.
        if not shared.parts or not self._move(shared, memory):
            shared.reset(self._new_index())
            self._move(shared, memory)
        return shared.index

    def _move(self, shared: _SharedIndex, memory: SearchedMemory) -> bool:
        """Move an index to another version of its memory.

        Returns:
            Whether it holds every entry then. It may not if two entries of a version have one id:
            they share a place in the index, so that both are gone when one of them goes.
        """
        old_parts = shared.parts
        new_parts = self._parts(memory)
        shared.forget_version()

        # Only what stands behind the common beginning is looked at.
        prefix_length = common_prefix_length(old_parts, new_parts)
        old_tail = shared.entries_by_part[prefix_length:]
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
    """An index, and the version of a memory at which it stands.

    Whoever reads or changes anything of it holds `lock`.
    """

    def __init__(self, index: Index) -> None:
        # The filter of a search may search the same memory, in the same thread.
        self.lock = threading.RLock()
        self.index = index
        self.parts: Sequence[Any] = ()
        """The parts of the version; () if the index stands at no version, or at an empty one."""
        self.entries_by_part: list[PartEntries] = []
        """The entries of each of these parts."""
        self._memory: weakref.ref[SearchedMemory] | None = None

    def stands_at(self, memory: SearchedMemory) -> bool:
        """Return whether the index holds exactly the entries of this version."""
        return self._memory is not None and self._memory() is memory

    def set_version(self, memory: SearchedMemory, parts: Sequence[Any]) -> None:
        """Note that the index stands at a version, without keeping that alive."""
        self.parts = parts
        self._memory = weakref.ref(memory)

    def forget_version(self) -> None:
        """Note that the index is about to change: if that fails, it stands at no version."""
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
    """Ids to remove. Those of entries that change their place are in `added` as well."""

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
        moved_ids = _moved_ids(old_entries, new_entries)

        added: list[Entry] = []
        for entry_id, entry in new_entries.items():
            old_entry = old_entries.get(entry_id)
            # Entries of parts that stayed are the same objects and need not be compared.
            is_unchanged = old_entry is entry or old_entry == entry
            if entry_id in moved_ids or not is_unchanged:
                added.append(entry)

        gone_ids = old_entries.keys() - new_entries.keys()
        return cls(added, gone_ids | moved_ids)


def _moved_ids(old_entries: Mapping[str, Entry], new_entries: Mapping[str, Entry]) -> set[str]:
    """Return the ids in both versions that must be removed and added again.

    An index finds entries of equal scores in the order in which they were added. So an entry may
    stay only if all that stand before it in the new version stay, too, and in their order. From
    a, b, c to a, x, b, c, only a may stay: b and c are added again behind x.
    """
    ids_in_both = [entry_id for entry_id in old_entries if entry_id in new_entries]

    kept_count = 0
    for old_id, new_id in zip(ids_in_both, new_entries, strict=False):
        if old_id != new_id:
            break
        kept_count += 1
    return set(ids_in_both[kept_count:])


def _entries_by_identity(
    parts: Sequence[Any], entries_by_part: Sequence[PartEntries]
) -> dict[int, PartEntries]:
    """Return the entries of each part by the part's `id()`, valid as long as the parts live."""
    pairs = zip(parts, entries_by_part, strict=True)
    return {id(part): entries for part, entries in pairs}


def _flat(entries_by_part: Iterable[PartEntries]) -> Iterator[Entry]:
    for entries in entries_by_part:
        yield from entries


def _count_entries(entries_by_part: Iterable[PartEntries]) -> int:
    return sum(len(entries) for entries in entries_by_part)


def _parts_of_memory(memory: Any) -> Sequence[Any]:
    return memory.parts()


def _entry_of_part(memory: Any, part: Any) -> Iterable[Entry]:
    return (memory.entry(part),)
