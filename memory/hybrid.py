"""Search by words and by meaning at once: the sum of BM25 and of the cosine, each counted in its own deviations.

    score = (bm25 - mean) / deviation + (cosine - mean) / deviation

Means and deviations are over all entries, for each query. BM25 is that of `SparseIndex`, with what the turns of a
dialogue lend one another. The two find different things, and no weight suits both scales; in deviations from what an
entry of this memory has by chance they can be added. A query that shares no word with the memory is ranked by its
cosines alone.

The text of an entry may have several lines, as that of a session has: each line has a vector of its own, and the
nearest one counts. A vector of a hundred turns is near to nothing.

Vectors are kept in steps of 1/2048, so that a product of two of them is exact in single precision, whatever else is
multiplied with it: a query gives the same hits alone and in a batch, and entries of equal text tie and keep their
order. A cosine is off by about .0002 for it.

Example:
    >>> from mempiler.engines.embedders import embedder
    >>> from mempiler.memory.hybrid import HybridIndex
    >>> from mempiler.memory.index import Entry
    >>> index = HybridIndex(embedder("offline"))
    >>> index.add([Entry(id="f1", text="Ann moved to Lisbon"), Entry(id="f2", text="Bob likes jazz")])
    >>> index.search(["When was Ann moving?"], k=1)[0][0].id
    'f1'

Limits: scores depend on the other entries and on the query; compare them within one search only. Without a `min_score`
the k best entries are hits, however bad. Every search reads every vector.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from ..errors import ProgramError
from ..records import Hit
from .bm25 import highest
from .index import Embedder, Entry, Where, check_search, query_vectors
from .neighbours import Shares
from .sparse import SparseIndex
from .vectors import load_vectors, save_vectors

STEPS = 2048
"""Steps from 0 to 1 of a number of a vector: products have 22 bits then, and single precision holds 24."""
NOISE = 1e-9
"""Scores that deviate less are all the same."""


class HybridIndex:
    """An `Index` by BM25 and cosine; see there for the methods.

    Args:
        embedder: What turns texts into vectors.
        shares: What the turns of one dialogue lend one another.
    """

    kind = "hybrid"

    def __init__(self, embedder: Embedder, shares: Shares | None = None) -> None:
        self.embedder = embedder
        self._lock = threading.RLock()
        self._words = SparseIndex(shares)
        self._lines = _Lines()
        self._entries: dict[str, Entry] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries with one call of the embedder; one whose id is known replaces the old one.

        Raises:
            EndpointError: The embedder cannot be reached; nothing was added.
            ProgramError: The embedder's vectors have another length than those in the index.
        """
        new = {entry.id: entry for entry in entries}
        if new:
            texts = [line for entry in new.values() for line in _lines(entry)]
            self._insert(new, _exact(self.embedder.embed(texts)))

    def remove(self, ids: Iterable[str]) -> None:
        """Takes entries out; unknown ids are passed over."""
        with self._lock:
            gone = {id for id in ids if id in self._entries}
            if gone:
                blocks = self._lines.blocks()
                self._lines.fill([block for id, block in zip(self._entries, blocks, strict=True) if id not in gone])
                self._entries = {id: entry for id, entry in self._entries.items() if id not in gone}
                self._words.remove(gone)

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query; see `Index.search`.

        Args:
            queries: What to look for.
            k: The most hits per query.
            min_score: The lowest *cosine* of a hit, for that is what thresholds are measured in; the score of a hit is
                no cosine.
            where: A pure filter of entries. It changes no score.

        Raises:
            UserError: k is negative, or `queries` is a string instead of a list of them.
            EndpointError: The embedder cannot be reached.
            ProgramError: The embedder's vectors have another length than those in the index.
        """
        check_search(queries, k)
        found: list[list[Hit]] = [[] for _ in queries]
        if not len(self) or not queries or k == 0:
            return found
        vectors = _exact(query_vectors(self.embedder, queries))
        with self._lock:
            entries = list(self._entries.values())
            if not entries:
                return found
            self._check(vectors)
            cosines, words = self._lines.cosines(vectors), self._words.scores(queries)
            allowed = np.ones(len(entries), bool) if where is None else np.fromiter(map(where, entries), bool)
        scores = _deviations(words) + _deviations(cosines)
        for n, vector in enumerate(vectors):
            if vector.any() or words[n].any():
                rows = highest(scores[n], np.flatnonzero(allowed & (cosines[n] >= min_score)), k)
                found[n] = [entries[row].hit(float(scores[n, row])) for row in map(int, rows)]
        return found

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        with self._lock:
            return tuple(self._entries)

    def save(self, folder: str | Path) -> None:
        """Writes entries, vectors and the embedder's name to a folder.

        Raises:
            DataError: The folder cannot be written.
        """
        with self._lock:
            entries, vectors = list(self._entries.values()), self._lines.all(self.embedder.dimension)
        save_vectors(folder, self.kind, entries, self.embedder, vectors, {"shares": self._words.shares.model_dump()})

    @classmethod
    def load(cls, folder: str | Path, embedder: Embedder | None = None) -> Self:
        """Reads an index that `save` wrote, without embedding anything.

        Args:
            folder: The index folder.
            embedder: The embedder that the index was made with.

        Raises:
            DataError: A file is missing, altered or of another kind.
            ProgramError: The embedder is missing, or not the one the index was made with.
        """
        embedder, entries, vectors, about = load_vectors(folder, cls.kind, embedder, lambda entry: len(_lines(entry)))
        index = cls(embedder, Shares.saved(folder, about))
        if entries:
            index._insert({entry.id: entry for entry in entries}, _exact(vectors))
        return index

    def _insert(self, new: dict[str, Entry], vectors: np.ndarray) -> None:
        ends = np.cumsum([len(_lines(entry)) for entry in new.values()])
        blocks = dict(zip(new, np.split(vectors, ends[:-1]), strict=True))
        with self._lock:
            self._check(vectors)
            if any(id in self._entries for id in new):
                old = dict(zip(self._entries, self._lines.blocks(), strict=True))
                self._lines.fill([blocks.get(id, block) for id, block in old.items()])
            self._lines.append([block for id, block in blocks.items() if id not in self._entries])
            self._entries.update(new)
            self._words.add(new.values())

    def _check(self, vectors: np.ndarray) -> None:
        if self._lines.dimension not in (0, vectors.shape[1]):
            raise ProgramError(
                f"embedder {self.embedder.name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {self._lines.dimension}; rebuild the index"
            )


class _Lines:
    """Vectors of the lines of entries, in their order; not locked."""

    def __init__(self) -> None:
        self._room = np.zeros((0, 0), np.float32)
        self._counts: list[int] = []
        self._used = 0

    @property
    def dimension(self) -> int:
        return self._room.shape[1]

    def all(self, dimension: int) -> np.ndarray:
        """Every vector; of that dimension if there is none."""
        return self._room[: self._used].copy() if self._used else np.zeros((0, dimension), np.float32)

    def blocks(self) -> list[np.ndarray]:
        """The vectors of each entry."""
        return np.split(self._room[: self._used], np.cumsum(self._counts)[:-1]) if self._counts else []

    def fill(self, blocks: Sequence[np.ndarray]) -> None:
        """Puts other vectors in the place of all."""
        room, self._used, self._counts = self._room, 0, []
        self._room = np.zeros((0, room.shape[1]), np.float32)
        self.append(blocks)

    def append(self, blocks: Sequence[np.ndarray]) -> None:
        """Adds entries; room is doubled when it is used up, so that this costs the same at any size."""
        if not blocks:
            return
        new = np.concatenate(blocks)
        if self._used + len(new) > len(self._room):
            room = np.empty((max(2 * len(self._room), self._used + len(new)), new.shape[1]), np.float32)
            if self._used:
                room[: self._used] = self._room[: self._used]
            self._room = room
        self._room[self._used : self._used + len(new)] = new
        self._used += len(new)
        self._counts += map(len, blocks)

    def cosines(self, vectors: np.ndarray) -> np.ndarray:
        """The cosine of the nearest line of each entry, shape [vectors, entries]."""
        of_lines = vectors @ self._room[: self._used].T
        if self._used == len(self._counts):
            return of_lines
        starts = np.concatenate([[0], np.cumsum(self._counts)[:-1]])
        return np.maximum.reduceat(of_lines, starts, axis=1)


def _lines(entry: Entry) -> list[str]:
    return entry.text.splitlines() or [""]


def _exact(vectors: np.ndarray) -> np.ndarray:
    return np.round(vectors * STEPS).astype(np.float32) / np.float32(STEPS)


def _deviations(scores: np.ndarray) -> np.ndarray:
    """How many deviations of its row each score is from the mean of it; 0 where all are the same."""
    wide = scores.astype(np.float64)
    wide -= wide.mean(axis=1, keepdims=True)
    spread = wide.std(axis=1, keepdims=True)
    return np.divide(wide, spread, out=np.zeros_like(wide), where=spread > NOISE)
