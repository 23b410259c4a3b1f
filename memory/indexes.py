"""Search indexes of memories: made once per memory, moved along with its versions, gone when these are.

Both halves of a method search the same memories, many threads at a time. The index of a memory belongs to its line
(`memory.following`): the next version is searched by the same one, moved by what was written. Those of the lines used
last are kept.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..records import Hit
from .following import Following, Line, Made
from .index import Embedder, Entry, Index, Where

I = TypeVar("I", bound=Index)  # noqa: E741

KEEP = 200_000
"""Entries in the indexes that are kept, over all memories: a dense index takes 1.5 kB for each."""


@dataclass
class _Used:
    """A line that was asked for."""

    line: weakref.ref[Line]
    size: int = 0
    """Entries in its index."""


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
        self._parts, self._made = parts, made
        self._keep = keep
        self._lock = threading.Lock()
        self._used: OrderedDict[int, _Used] = OrderedDict()
        self._total = 0
        self._gone: deque[int] = deque()

    def of(self, memory: Any) -> MemoryIndex:
        """The index of a memory."""
        line: Line = memory.line
        followed, key = line.of(self, self._make), id(line)
        with self._lock:
            self._purge()
            if key not in self._used:
                # A line may end anywhere, also while the lock is held: its end is only noted.
                self._used[key] = _Used(weakref.ref(line, lambda _, key=key: self._gone.append(key)))
            self._used.move_to_end(key)
        return MemoryIndex(followed, memory, lambda: self._resized(key, len(followed)))

    def entries(self, memory: Any) -> list[Entry]:
        """What the index of a memory holds, in its order; no index is made."""
        return [entry for part in self._parts(memory) for entry in self._made(memory, part)]

    def _resized(self, key: int, size: int) -> None:
        """Notes the size of an index, and lets go of those not used for the longest time where there is too much."""
        with self._lock:
            self._purge()
            used = self._used.get(key)
            if used is None:
                return
            self._total += size - used.size
            used.size = size
            while self._total > self._keep and len(self._used) > 1:
                _, oldest = self._used.popitem(last=False)
                self._total -= oldest.size
                line = oldest.line()
                if line is not None:
                    line.drop(self)

    def _purge(self) -> None:
        """Forgets the lines that have ended, whose ids may be those of others by now."""
        while self._gone:
            used = self._used.pop(self._gone.popleft(), None)
            self._total -= used.size if used else 0

    def __len__(self) -> int:
        """The number of memories whose indexes are kept."""
        with self._lock:
            self._purge()
            return len(self._used)

    def __deepcopy__(self, memo: object = None) -> Indexes:
        return self


class MemoryIndex:
    """The index of one memory; it is where that memory is whenever it is searched.

    Args:
        followed: The index of all its versions.
        memory: The version.
        resized: Called after the index has got another size.
    """

    def __init__(self, followed: Following, memory: Any, resized: Callable[[], None]) -> None:
        self._followed, self._memory, self._resized = followed, memory, resized

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query; see `Index.search`."""
        before = len(self._followed)
        with self._followed.at(self._memory) as index:
            found = index.search(queries, k, min_score, where)
        if len(self._followed) != before:
            self._resized()
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
