"""Keeps one index for all versions of a memory, and updates it by their differences.

A writer replaces a few of thousands of parts. Those are found by identity, so that searching the next version, or an
older one, costs what changed. Equal scores come in the same order as in an index that is built there.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...records import Hit
from ...records.shared_by_copies import SharedByCopies
from ..changes import common_prefix_length
from ..entry import Entry, EntryFilter
from .embedder import Embedder, query_vectors
from .index import Index

SEARCH_TIMES: ContextVar[list[tuple[float, float]] | None] = ContextVar("searches", default=None)
"""Where parts of searches put their seconds, and those of CPU in their threads; None where nobody asks."""


@contextmanager
def timed_search() -> Generator[None]:
    """Times the block as a part of a search."""
    began = time.perf_counter(), time.thread_time()
    yield
    if (taken := SEARCH_TIMES.get()) is not None:
        taken.append((time.perf_counter() - began[0], time.thread_time() - began[1]))


@dataclass
class Lineage(SharedByCopies):
    """The search indexes that all versions of one memory share; it lives as long as any of them.

    Lineages are equal to one another, so that memories are equal by their fields alone.
    """

    indexes: weakref.WeakKeyDictionary[IndexCache, _Followed] = field(
        default_factory=lambda: weakref.WeakKeyDictionary[IndexCache, _Followed](), compare=False
    )

    def __reduce__(self) -> tuple[type[Lineage], tuple[()]]:
        # A pickled memory is searched by an index of its own.
        return Lineage, ()


class IndexCache(SharedByCopies):
    """The indexes of one method's memories.

    Args:
        embedder: Searches by meaning; by words alone if None.
        hybrid: Whether words count beside an embedder's vectors.
        parts: What the entries of a memory are made of, in their order; `Memory.parts` by default.
        made: Makes the entries of a part of a memory, always equal ones of the same part; `Memory.entry` by default.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        hybrid: bool = False,
        parts: Callable[[Any], Sequence[Any]] = lambda memory: memory.parts(),
        made: Callable[[Any, Any], Iterable[Entry]] = lambda memory, part: (memory.entry(part),),
    ) -> None:
        self.embedder, self.hybrid = embedder, hybrid
        self._parts, self._made = parts, made

    def search(
        self,
        memory: Any,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: EntryFilter | None = None,
        vectors: np.ndarray | None = None,
    ) -> list[list[Hit]]:
        """Finds the k best entries of a memory for each query; see `Index.search`.

        Threads that search one memory take turns at its index; what embedders and rerankers do is done side by side.
        """
        kept = memory.lineage.indexes
        followed = kept.get(self) or kept.setdefault(self, _Followed(Index(self.embedder, self.hybrid)))
        if vectors is None and self.embedder is not None and queries and k > 0:
            with followed.lock:
                index = self._at(followed, memory)
                asked = index.semantic_queries(queries) if len(index) else []
            with timed_search():
                vectors = query_vectors(self.embedder, asked) if asked else None
        with followed.lock:
            index = self._at(followed, memory)
            with timed_search():
                found = index.search_deferred(queries, k, min_score, where, vectors)
        with timed_search():
            return [hits() for hits in found]

    def entries(self, memory: Any) -> list[Entry]:
        """What the index of a memory holds, in its order; no index is made."""
        return [entry for part in self._parts(memory) for entry in self._made(memory, part)]

    def _at(self, followed: _Followed, memory: Any) -> Index:
        """The index, moved to a memory; locked."""
        if followed.memory() is not memory and not (followed.parts and self._moved(followed, memory)):
            # It is built there after a failure, and where an id stands twice.
            followed.index, followed.entries, followed.parts = Index(self.embedder, self.hybrid), [], ()
            self._moved(followed, memory)
        return followed.index

    def _moved(self, followed: _Followed, memory: Any) -> bool:
        """Moves an index to another version; False if it does not hold every entry then."""
        before, parts = followed.parts, self._parts(memory)
        followed.parts, followed.memory = (), lambda: None
        index, start = followed.index, common_prefix_length(before, parts)
        gone = followed.entries[start:]
        known = dict(zip(map(id, before[start:]), gone, strict=True))
        tail = [known[id(p)] if id(p) in known else tuple(self._made(memory, p)) for p in parts[start:]]
        old = {entry.id: entry for entries in gone for entry in entries}
        new = {entry.id: entry for entries in tail for entry in entries}
        stay, size = [id for id in old if id in new], len(index) + sum(map(len, tail)) - sum(map(len, gone))
        placed = next((n for n, (id, there) in enumerate(zip(stay, new, strict=False)) if id != there), len(stay))
        again = set(stay[placed:])
        # Entries of parts that stayed are the same objects, which need not be compared.
        index.add(
            (e for id, e in new.items() if id in again or (old.get(id) is not e and old.get(id) != e)),
            removed_ids=(old.keys() - new.keys()) | again,
        )
        followed.entries[start:] = tail
        followed.parts, followed.memory = parts, weakref.ref(memory)
        return len(index) == size


@dataclass(eq=False)
class _Followed:
    """The index of a line, at one of its versions."""

    index: Index
    lock: Any = field(default_factory=threading.RLock)
    memory: Callable[[], Any] = lambda: None
    parts: Sequence[Any] = ()
    entries: list[tuple[Entry, ...]] = field(default_factory=list[tuple[Entry, ...]])
