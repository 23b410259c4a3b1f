"""Search indexes of memories: built once per memory, dropped with it.

Both halves of a method search the same memories, many threads at a time. An index is built when a memory is first
searched and kept for the memories used last. When a memory is deleted, for instance because its user was forgotten, its
index goes with the next search, or with `purge`.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .flight import Flight
from .index import Embedder, Entry, Index

I = TypeVar("I", bound=Index)  # noqa: E741


class Indexes:
    """The indexes of one method's memories.

    Args:
        build: Makes the index of a memory.
        keep: Most indexes that are kept, those used last.
    """

    def __init__(self, build: Callable[[Any], Index], keep: int = 64) -> None:
        self._build = build
        self._kept = Flight(capacity=keep)
        self._gone: deque[int] = deque()
        self._purging = threading.Lock()

    def of(self, memory: Any) -> Index:
        """The index of a memory."""
        self.purge()
        return self._kept.once(id(memory), lambda: self._made(memory))

    def purge(self) -> None:
        """Drops the indexes of deleted memories, whose ids may be reused by other objects."""
        # Drop deleted memories before every search: their ids may be reused by the memory searched next. An id stays
        # in the queue until its index is gone, so that who finds the queue empty need not wait for anybody.
        if not self._gone:
            return
        with self._purging:
            while self._gone:
                self._kept.forget(self._gone[0])
                self._gone.popleft()

    def _made(self, memory: Any) -> Index:
        index = self._build(memory)
        # A memory may be collected anywhere, also while a lock is held: its end is only noted here.
        weakref.finalize(memory, self._gone.append, id(memory)).atexit = False
        return index

    def __len__(self) -> int:
        return len(self._kept)

    def __deepcopy__(self, memo: object = None) -> Indexes:
        return self


def filled(index: I, entries: Iterable[Entry]) -> I:
    """An index with entries in it."""
    index.add(entries)
    return index


def empty_index(embedder: Embedder | None = None, hybrid: bool = False) -> Index:
    """An index without entries: by cosine with an embedder, or by the sum of cosine and BM25; by BM25 without."""
    from .dense import DenseIndex
    from .hybrid import HybridIndex
    from .sparse import SparseIndex

    if embedder is None:
        return SparseIndex()
    return HybridIndex(embedder) if hybrid else DenseIndex(embedder)


def entry_indexes(embedder: Embedder | None = None, hybrid: bool = False) -> Indexes:
    """Indexes over `memory.entries()`, each made by `empty_index`."""
    return Indexes(lambda memory: filled(empty_index(embedder, hybrid), memory.entries()))
