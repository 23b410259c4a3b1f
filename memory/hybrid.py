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
the k best entries are hits, however bad. Every search reads every vector, and searches of one index take turns.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from ..errors import ProgramError
from ..records import Hit
from .bm25 import highest
from .index import Embedder, Entry, Where, check_search, query_vectors
from .neighbours import Shares
from .rows import SPARE, Rows
from .sparse import SparseIndex
from .table import Table

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
            for id in ids:
                if self._entries.pop(id, None) is not None:
                    self._lines.drop(id)
                    self._words.remove([id])

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
            if not self._entries:
                return found
            self._check(vectors)
            cosines, words = self._lines.cosines(vectors), self._words.scores(queries)
            allowed = np.ones(len(self._entries), bool)
            if where is not None:
                allowed = np.fromiter(map(where, self._entries.values()), bool, len(allowed))
            scores = _deviations(words) + _deviations(cosines)
            for n, vector in enumerate(vectors):
                if vector.any() or words[n].any():
                    best = highest(scores[n], np.flatnonzero(allowed & (cosines[n] >= min_score)), k)
                    ids = map(self._lines.id, map(int, best))
                    found[n] = [
                        self._entries[id].hit(score) for id, score in zip(ids, map(float, scores[n, best]), strict=True)
                    ]
        return found

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        with self._lock:
            return tuple(self._entries)

    def _insert(self, new: dict[str, Entry], vectors: np.ndarray) -> None:
        counts = [len(_lines(entry)) for entry in new.values()]
        with self._lock:
            self._check(vectors)
            self._lines.put(list(new), counts, vectors)
            self._entries.update(new)
            self._words.add(new.values())

    def _check(self, vectors: np.ndarray) -> None:
        if self._lines.dimension not in (0, vectors.shape[1]):
            raise ProgramError(
                f"embedder {self.embedder.name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {self._lines.dimension}; rebuild the index"
            )


class _Lines:
    """Vectors of the lines of entries, one behind the other; not locked.

    An entry that gets more or fewer lines has them at the end of the table. Lines that are no entry's are zeros, and
    go when they are most of them.
    """

    def __init__(self) -> None:
        self._rows = Rows()
        self._starts: array[int] = array("q")
        """The first line of each row."""
        self._counts: array[int] = array("q")
        self._table = Table()
        self._left = 0
        """Lines that are no entry's."""
        self._order: tuple[np.ndarray | None, np.ndarray] | None = None

    @property
    def dimension(self) -> int:
        return self._table.dimension

    def id(self, number: int) -> str:
        """The entry of a column of `cosines`."""
        return self._rows.keys[int(self._rows.live()[number])] or ""

    def put(self, ids: Sequence[str], counts: Sequence[int], vectors: np.ndarray) -> None:
        """Adds entries, or changes those that are there.

        Args:
            ids: Of the entries, each once.
            counts: How many lines each has.
            vectors: Of their lines, entry after entry.
        """
        added, start, end = np.ones(len(vectors), bool), 0, len(self._table)
        for id, count in zip(ids, counts, strict=True):
            if id in self._rows and count == self._counts[self._rows[id]]:
                self._table.put(self._starts[self._rows[id]], vectors[start : start + count])
                added[start : start + count] = False
            else:
                self._place(id, count, end)
                end += count
            start += count
        self._table.extend(vectors[added])
        self._tidy()

    def drop(self, id: str) -> None:
        """Takes an entry out."""
        self._clear(self._rows.drop(id))
        self._tidy()

    def cosines(self, vectors: np.ndarray) -> np.ndarray:
        """The cosine of the nearest line of each entry, in order of first addition; shape [vectors, entries]."""
        of_lines = vectors @ self._table.rows.T
        lines, starts = self._ordered()
        if lines is not None:
            of_lines = np.take(of_lines, lines, axis=1)
        return of_lines if len(starts) == of_lines.shape[1] else np.maximum.reduceat(of_lines, starts, axis=1)

    def _place(self, id: str, count: int, start: int) -> None:
        if id in self._rows:
            self._clear(self._rows[id])
        else:
            self._rows.add(id)
            self._starts.append(0)
            self._counts.append(0)
        self._starts[self._rows[id]], self._counts[self._rows[id]] = start, count
        self._order = None

    def _clear(self, row: int) -> None:
        start, count = self._starts[row], self._counts[row]
        self._table.put(start, np.zeros((count, self.dimension)))
        self._left += count
        self._order = None

    def _ordered(self) -> tuple[np.ndarray | None, np.ndarray]:
        """The lines of entry after entry, None where the table has them so; and where those of each entry begin."""
        if self._order is None:
            live = self._rows.live()
            starts, counts = (np.frombuffer(numbers, np.int64)[live] for numbers in (self._starts, self._counts))
            begins = np.cumsum(counts) - counts
            is_so = not self._left and np.array_equal(starts, begins)
            shifts: np.ndarray = np.repeat(starts - begins, counts)
            self._order = None if is_so else shifts + np.arange(len(shifts)), begins
        return self._order

    def _tidy(self) -> None:
        """Forgets the lines and rows that are no entry's when they are most of them."""
        if self._left <= len(self._table) // 2 + SPARE:
            return
        lines, begins = self._ordered()
        if lines is not None:
            self._table.keep(lines)
        self._starts = array("q", begins.tobytes())
        self._counts = array("q", np.frombuffer(self._counts, np.int64)[self._rows.live()].tobytes())
        self._rows = Rows(key for key in self._rows.keys if key is not None)
        self._left, self._order = 0, None


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
