"""Search by meaning: the cosines of embeddings, exact, over the vectors of a flat faiss index.

Vectors have length 1, so that an inner product is a cosine. An entry has one vector, or one of each line of its text;
a line is replaced in its place, and those that are nobody's are skipped until most are. So a change costs the same at
any size, and a search reads every vector: 0.3 ms at ten thousand, 6 ms at a hundred thousand.

faiss only picks the nearest, on one thread: others wait busily for one another (18 ms of CPU instead of .4 at ten
thousand vectors). Its last bits depend on how many queries come at once, so that what it picks is scored again in
double precision: a query gives the same hits alone and in a batch, and entries of equal text tie and keep their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

SPARE = 8
"""Candidates fetched beyond k, so that scores which are equal up to rounding rarely need a second look."""
SLACK = 1e-5
"""More than the rounding error of a cosine of two float32 vectors."""
NOBODY = -1


class Vectors:
    """Vectors of the lines of entries, by the rows of these; not locked."""

    def __init__(self) -> None:
        self._room = np.empty((0, 0), np.float32)
        self._lines: dict[int, range] = {}
        """The lines of each row."""
        self._rows: array[int] = array("q")
        """The row of each line."""
        self.unused = 0
        """Lines that are nobody's."""

    @property
    def dimension(self) -> int:
        """The length of a vector; 0 until the first one came."""
        return self._room.shape[1]

    @property
    def table(self) -> np.ndarray:
        """All vectors, shape [lines, dimension]; to be read until the next change."""
        return self._room[: len(self._rows)]

    def put(self, rows: Sequence[int], counts: Sequence[int], vectors: np.ndarray) -> None:
        """Gives rows other vectors.

        Args:
            rows: Any rows, each once.
            counts: How many lines each has from now on, one at least.
            vectors: Of their lines, row after row, float32 of shape [lines, dimension].
        """
        start = 0
        for row, count in zip(rows, counts, strict=True):
            lines = self._lines.get(row, range(0))
            if len(lines) != count:
                self.drop(row)
                lines = self._lines[row] = range(len(self._rows), len(self._rows) + count)
                self._grow(lines.stop, vectors.shape[1])
                self._rows.extend([row] * count)
            self._room[lines.start : lines.stop] = vectors[start : start + count]
            start += count

    def drop(self, row: int) -> None:
        """Takes a row out."""
        lines = self._lines.pop(row, range(0))
        self._rows[lines.start : lines.stop] = array("q", [NOBODY] * len(lines))
        self.unused += len(lines)

    def of(self, rows: Sequence[int]) -> tuple[list[int], np.ndarray]:
        """How many lines each of some rows has, and their vectors, row after row."""
        lines = [self._lines.get(row, range(0)) for row in rows]
        return list(map(len, lines)), self.table[list(chain.from_iterable(lines))]

    def cosines(self, vectors: np.ndarray) -> np.ndarray:
        """The cosine of the nearest line of each row that is not gone, in their order; shape [vectors, rows]."""
        owners = np.frombuffer(self._rows, np.int64)
        lines = np.argsort(owners, kind="stable")
        # Those of nobody come first, and begin no row.
        starts = np.flatnonzero(np.diff(owners[lines], prepend=NOBODY))
        return np.maximum.reduceat((vectors @ self.table.T)[:, lines], starts, axis=1)

    def nearest(
        self, vectors: np.ndarray, k: int, allowed: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The k nearest of some rows of one line each, and all that tie with the last of them, for each vector.

        Args:
            vectors: float32, shape [vectors, dimension].
            k: How many; at least 1.
            allowed: The rows that may be found; None for all.

        Returns:
            Rows, ascending, and their cosines in double precision.
        """
        owners, table = np.frombuffer(self._rows, np.int64), self.table
        passes = owners != NOBODY
        if allowed is not None:
            mask = np.zeros(int(owners.max()) + 2, bool)
            mask[allowed] = True
            passes = mask[owners]
        fetch = min(k + SPARE, int(np.count_nonzero(passes)))
        scores, found = self._picked(np.ascontiguousarray(vectors, np.float32), fetch, passes)
        for n, vector in enumerate(vectors):
            picked = found[n] if vector.any() else found[n, :0]
            if len(picked) > k and scores[n, -1] >= scores[n, k - 1] - SLACK:
                picked = np.flatnonzero(passes & (table @ vector >= scores[n, k - 1] - SLACK))
            picked = picked[np.argsort(owners[picked])]
            yield owners[picked], (table[picked].astype(np.float64) * vector.astype(np.float64)).sum(axis=1)

    def _picked(self, vectors: np.ndarray, k: int, passes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inner products and numbers of the k nearest of the lines that pass for each vector, best first."""
        scores, found = np.empty((len(vectors), k), np.float32), np.empty((len(vectors), k), np.int64)
        if not k:
            return scores, found
        faiss, table, selector = _faiss(), self.table, []
        if not passes.all():
            bits = np.packbits(passes, bitorder="little")
            selector = [faiss.IDSelectorBitmap(len(table), faiss.swig_ptr(bits))]
        asked, held, best, numbers = map(faiss.swig_ptr, (vectors, table, scores, found))
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            faiss.knn_inner_product(asked, held, table.shape[1], len(vectors), len(table), k, best, numbers, *selector)
        finally:
            faiss.omp_set_num_threads(threads)
        return scores, found

    def _grow(self, lines: int, dimension: int) -> None:
        """Makes room for so many lines; room is doubled when it is used up, so that this costs the same at any size."""
        if lines > len(self._room):
            room = np.empty((max(2 * len(self._room), lines), dimension), np.float32)
            room[: len(self._room)] = self._room if len(self._room) else 0
            self._room = room


def _faiss() -> Any:
    import faiss

    return faiss
