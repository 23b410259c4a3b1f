"""Indexes of memories: one for all versions of a memory, moved from one to the next by what they do not share.

A writer makes a memory from the one before it, and of thousands of parts it replaces a few. Those are found by identity
(the same object is the same part), so that searching the next version costs what it changed, not what it holds; an
older version is searched in the same way. Entries that do not stand where the moved index would have them are added
again behind the others, so that equal scores come in the same order as in an index that is built there.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..records import Hit
from .deltas import shared
from .index import Embedder, Entry, Index, Where, query_vectors


class Line:
    """What the versions of a memory have in common; it lives as long as any of them, and their indexes with it."""

    def __init__(self) -> None:
        self.indexes: weakref.WeakKeyDictionary[Indexes, _Followed] = weakref.WeakKeyDictionary()

    def __deepcopy__(self, memo: object = None) -> Line:
        return self

    def __reduce__(self) -> tuple[type[Line], tuple[()]]:
        return Line, ()


class Indexes:
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
        where: Where | None = None,
        vectors: np.ndarray | None = None,
    ) -> list[list[Hit]]:
        """Finds the k best entries of a memory for each query; see `Index.search`.

        Searches of one memory take turns, whichever thread they come from; their queries are embedded side by side.
        """
        kept = memory.line.indexes
        followed = kept.get(self) or kept.setdefault(self, _Followed(Index(self.embedder, self.hybrid)))
        if vectors is None and self.embedder is not None and queries and k > 0:
            holds = len(followed.index) if followed.memory() is memory else len(self._parts(memory))
            vectors = query_vectors(self.embedder, queries) if holds else None
        with followed.lock:
            if followed.memory() is not memory:
                self._go(followed, memory)
            return followed.index.search(queries, k, min_score, where, vectors)

    def entries(self, memory: Any) -> list[Entry]:
        """What the index of a memory holds, in its order; no index is made."""
        return [entry for part in self._parts(memory) for entry in self._made(memory, part)]

    def __deepcopy__(self, memo: object = None) -> Indexes:
        return self

    def _go(self, followed: _Followed, memory: Any) -> None:
        """Moves an index to another version; it is built there after a failure, and where an id stands twice."""
        before, parts = followed.parts, self._parts(memory)
        followed.parts, followed.memory = (), lambda: None
        if not (before and self._moved(followed, memory, before, parts)):
            followed.index, followed.entries = Index(self.embedder, self.hybrid), []
            self._moved(followed, memory, (), parts)
        followed.parts, followed.memory = parts, weakref.ref(memory)

    def _moved(self, followed: _Followed, memory: Any, before: Sequence[Any], parts: Sequence[Any]) -> bool:
        """Takes out of an index and puts into it what differs; False if it does not hold every entry then."""
        index, start = followed.index, shared(before, parts)
        gone = followed.entries[start:]
        known = dict(zip(map(id, before[start:]), gone, strict=True))
        tail = [known[id(p)] if id(p) in known else tuple(self._made(memory, p)) for p in parts[start:]]
        old = {entry.id: entry for entries in gone for entry in entries}
        new = {entry.id: entry for entries in tail for entry in entries}
        stay, size = [id for id in old if id in new], len(index) + sum(map(len, tail)) - sum(map(len, gone))
        placed = next((n for n, (id, there) in enumerate(zip(stay, new, strict=False)) if id != there), len(stay))
        again = set(stay[placed:])
        index.remove((old.keys() - new.keys()) | again)
        # Entries of parts that stayed are the same objects, which need not be compared.
        index.add(e for id, e in new.items() if id in again or (old.get(id) is not e and old.get(id) != e))
        followed.entries[start:] = tail
        return len(index) == size


class _Followed:
    """The index of a line, at one of its versions."""

    def __init__(self, index: Index) -> None:
        self.index, self.lock = index, threading.RLock()
        self.memory: Callable[[], Any] = lambda: None
        self.parts: Sequence[Any] = ()
        self.entries: list[tuple[Entry, ...]] = []
