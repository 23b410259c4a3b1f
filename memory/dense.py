"""Search by meaning: the cosine of embeddings, exact, in a flat faiss index.

Vectors have length 1, so that faiss's inner product is their cosine. faiss only picks candidates: they are scored again
in double precision, one dot product each, because faiss's last bits depend on how many queries come at once. So a query
gives the same hits alone and in a batch, and entries of equal text tie exactly and keep their order.

Vectors are rows of one table, which faiss reads where it lies: an entry is replaced in its row, and the row of one that
was taken out is skipped until many are empty. A change costs the same at any size.

A search runs on one thread: others only cost more, for they wait busily for one another (18 ms of CPU instead of 0.4
at ten thousand vectors). OpenMP keeps that number per calling thread: it is set around the search and put back, and no
other thread sees it.

Example:
    >>> from mempiler.engines.embedders import embedder
    >>> from mempiler.memory.dense import DenseIndex
    >>> from mempiler.memory.index import Entry
    >>> index = DenseIndex(embedder("offline"))
    >>> index.add([Entry(id="f1", text="Ann moved to Lisbon"), Entry(id="f2", text="Bob likes jazz")])
    >>> index.search(["When was Ann moving?"], k=1, min_score=.1)[0][0].id
    'f1'

Limits: searches of one index take turns (its table may be moved by an add); embedding goes on side by side. A filter is
called with the index locked. A search reads every vector: 0.3 ms per query at ten thousand, 6 ms at a hundred thousand,
where an approximate index would pay. Which cosine is near depends on the embedder.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import ProgramError
from ..records import Hit
from .index import Embedder, Entry, Where, check_search, query_vectors
from .rows import Rows
from .standing import Masks, Standing
from .table import Table

SPARE = 8
"""Candidates fetched beyond k, so that scores which are equal up to rounding rarely need a second look."""
SLACK = 1e-5
"""More than the rounding error of a cosine of two float32 vectors."""


class DenseIndex:
    """An `Index` by cosine; see there for the methods.

    Args:
        embedder: What turns texts into vectors.
    """

    kind = "dense"

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._rows = Rows()
        self._masks = Masks()
        self._table = Table()

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries with one call of the embedder; one whose id is known replaces the old one.

        Raises:
            EndpointError: The embedder cannot be reached; nothing was added.
            ProgramError: The embedder's vectors have another length than those in the index.
        """
        new = {entry.id: entry for entry in entries}
        if new:
            self._insert(list(new.values()), self.embedder.embed([entry.text for entry in new.values()]))

    def remove(self, ids: Iterable[str]) -> None:
        """Takes entries out; unknown ids are passed over."""
        with self._lock:
            for id in ids:
                if self._entries.pop(id, None) is not None:
                    self._table.put(self._rows.drop(id), np.zeros(self._table.dimension))
            if self._rows.sparse:
                self._table.keep(self._rows.live())
                self._rows = Rows(self._entries)
                self._masks.clear()

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k entries with the highest cosine for each query; see `Index.search`.

        Raises:
            UserError: k is negative, or `queries` is a string instead of a list of them.
            EndpointError: The embedder cannot be reached.
            ProgramError: The embedder's vectors have another length than those in the index.
        """
        check_search(queries, k)
        found: list[list[Hit]] = [[] for _ in queries]
        if not len(self) or not queries or k == 0:
            return found
        vectors = query_vectors(self.embedder, queries)
        asked = [row for row in range(len(queries)) if vectors[row].any()]
        with self._lock:
            if not asked or not self._entries:
                return found
            self._check(vectors)
            allowed = self._allowed(where)
            if not len(allowed):
                return found
            candidates = self._candidates(vectors[asked], k, allowed)
            for row, chosen in zip(asked, candidates, strict=True):
                found[row] = self._rank(vectors[row], chosen, k, min_score)
        return found

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        with self._lock:
            return tuple(self._entries)

    def _insert(self, entries: list[Entry], vectors: np.ndarray) -> None:
        with self._lock:
            self._check(vectors)
            new = [n for n, entry in enumerate(entries) if entry.id not in self._rows]
            for n, entry in enumerate(entries):
                # A replaced entry keeps its row: rows are in the order of first addition, which breaks ties.
                if entry.id in self._rows:
                    self._table.put(self._rows[entry.id], vectors[n])
                    self._masks.changed(self._rows[entry.id])
            for n in new:
                self._rows.add(entries[n].id)
            self._table.extend(vectors[new])
            self._entries.update((entry.id, entry) for entry in entries)

    def _check(self, vectors: np.ndarray) -> None:
        if self._table.dimension not in (0, vectors.shape[1]):
            raise ProgramError(
                f"embedder {self.embedder.name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {self._table.dimension}; rebuild the index"
            )

    def _allowed(self, where: Where | None) -> np.ndarray:
        """The rows that may be found, ascending."""
        if where is None:
            return self._rows.live()
        if isinstance(where, Standing):
            return self._masks.passed(where, self._rows.live(), self._entry)
        return np.array([self._rows[id] for id, entry in self._entries.items() if where(entry)], np.int64)

    def _candidates(self, vectors: np.ndarray, k: int, allowed: np.ndarray) -> list[np.ndarray]:
        """Rows that hold the k best of each query, and all that tie with the last of them."""
        fetch = min(k + SPARE, len(allowed))
        vectors = np.ascontiguousarray(vectors, np.float32)
        scores, found = _nearest(vectors, self._table.rows, fetch, allowed)
        chosen = list(found)
        for n in np.flatnonzero(scores[:, -1] >= scores[:, k - 1] - SLACK) if fetch < len(allowed) else ():
            near = self._table.rows @ vectors[n] >= scores[n, k - 1] - SLACK
            chosen[n] = allowed[near[allowed]]
        return chosen

    def _rank(self, vector: np.ndarray, rows: np.ndarray, k: int, min_score: float) -> list[Hit]:
        scores = (self._table.rows[rows].astype(np.float64) * vector.astype(np.float64)).sum(axis=1)
        best = np.lexsort((rows, -scores))[:k]
        hits = zip(map(int, rows[best]), map(float, scores[best]), strict=True)
        return [self._entry(row).hit(score) for row, score in hits if score >= min_score]

    def _entry(self, row: int) -> Entry:
        return self._entries[self._rows.keys[row] or ""]


def _nearest(vectors: np.ndarray, table: np.ndarray, k: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inner products and rows of the k nearest of the allowed rows of a table for each vector, best first.

    Args:
        vectors: float32, shape [vectors, dimension].
        table: float32, shape [rows, dimension].
        k: How many; no more than are allowed.
        allowed: Rows that may be found.
    """
    faiss = _faiss()
    scores, rows = np.empty((len(vectors), k), np.float32), np.empty((len(vectors), k), np.int64)
    sizes = (table.shape[1], len(vectors), len(table), k)
    arrays: list[Any] = [faiss.swig_ptr(array) for array in (vectors, table, scores, rows)]
    selector = []
    if len(allowed) < len(table):
        mask = np.zeros(len(table), bool)
        mask[allowed] = True
        bits = np.packbits(mask, bitorder="little")
        selector = [faiss.IDSelectorBitmap(len(table), faiss.swig_ptr(bits))]
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        faiss.knn_inner_product(*arrays[:2], *sizes, *arrays[2:], *selector)
    finally:
        faiss.omp_set_num_threads(threads)
    return scores, rows


def _faiss() -> Any:
    import faiss

    return faiss
