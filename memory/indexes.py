"""Search indexes of memories: made once per memory, moved along with its versions, gone when these are.

Both halves of a method search the same memories, many threads at a time. The index of a memory belongs to its line
(`memory.following`): the next version is searched by the same one, moved by what was written. Those of the lines used
last are kept.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..records import Hit
from .following import Following, Line, Made
from .index import Embedder, Index, Where

I = TypeVar("I", bound=Index)  # noqa: E741

KEEP = 200_000
"""Entries in the indexes that are kept, over all memories: a dense index takes 1.5 kB for each."""


class Indexes:
    """The indexes of one method's memories.

    Args:
        empty: Makes an index without entries.
        parts: What the entries of a memory are made of, in their order; `Memory.parts` by default.
        made: The entries of a part: (memory, part) -> entries; `Memory.entry` by default.
        keep: Most entries in the indexes that are kept, those used last; one index always is.
    """

    def __init__(
        self,
        empty: Callable[[], Index],
        parts: Callable[[Any], Sequence[Any]] = lambda memory: memory.parts(),
        made: Made = lambda memory, part: (memory.entry(part),),
        keep: int = KEEP,
    ) -> None:
        self._make = lambda: Following(empty, parts, made)
        self._keep = keep
        self._lock = threading.Lock()
        self._used: OrderedDict[int, tuple[weakref.ref[Line], weakref.ref[Following]]] = OrderedDict()

    def of(self, memory: Any) -> MemoryIndex:
        """The index of a memory."""
        line: Line = memory.line
        followed = line.of(self, self._make)
        with self._lock:
            if id(line) not in self._used:
                self._used = OrderedDict((key, refs) for key, refs in self._used.items() if refs[0]() is not None)
            self._used[id(line)] = weakref.ref(line), weakref.ref(followed)
            self._used.move_to_end(id(line))
        return MemoryIndex(followed, memory, self._trim)

    def _trim(self) -> None:
        """Lets go of the indexes that were not used for the longest time, as far as there are too many entries."""
        with self._lock:
            sizes = {key: len(refs[1]() or ()) for key, refs in self._used.items()}
            excess = sum(sizes.values()) - self._keep
            for key in list(sizes)[:-1]:
                if excess <= 0:
                    return
                line, excess = self._used.pop(key)[0](), excess - sizes[key]
                if line is not None:
                    line.drop(self)

    def __len__(self) -> int:
        """The number of memories with an index."""
        with self._lock:
            return sum(refs[1]() is not None for refs in self._used.values())

    def __deepcopy__(self, memo: object = None) -> Indexes:
        return self


class MemoryIndex:
    """The index of one memory; it is where that memory is whenever it is searched.

    Args:
        followed: The index of all its versions.
        memory: The version.
        moved: Called after the index was brought to another version.
    """

    def __init__(self, followed: Following, memory: Any, moved: Callable[[], None]) -> None:
        self._followed, self._memory, self._moved = followed, memory, moved

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query; see `Index.search`."""
        before = len(self._followed)
        with self._followed.at(self._memory) as index:
            found = index.search(queries, k, min_score, where)
        if len(self._followed) > before:
            self._moved()
        return found

    @property
    def kind(self) -> str:
        """Of the index: "sparse", "dense" or "hybrid"."""
        with self._followed.at(self._memory) as index:
            return index.kind

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in their order."""
        with self._followed.at(self._memory) as index:
            return index.ids

    def __len__(self) -> int:
        with self._followed.at(self._memory) as index:
            return len(index)


def filled(index: I, entries: Iterable[Any]) -> I:
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
    """Indexes over the entries of memories, each made by `empty_index`."""
    return Indexes(lambda: empty_index(embedder, hybrid))
