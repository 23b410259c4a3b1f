"""The vectors of an index, and how similar each of its entries is to a query.

An entry has one vector for each of its passages. Its similarity to a query is the cosine of the
most similar passage.

Vectors of length 1 are expected, so that cosines are inner products.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

_NO_ROW = -1
"""Stands in for the row of a passage that was removed."""
_BLOCK_SIZE = 1024
"""How many vectors to compare with all queries before the next ones: so many fit into the cache of
a processor."""


class PassageVectors(NamedTuple):
    """The vectors of some rows."""

    passage_counts: list[int]
    """How many of `vectors` belong to each row."""
    vectors: np.ndarray
    """float32 of shape [passages, dimension], row after row."""


class VectorTable:
    """The vectors of the passages in each row of an index; threads need a lock."""

    def __init__(self) -> None:
        self._buffer = np.empty((0, 0), np.float32)
        """The vectors, and behind them room for more; shape [capacity, dimension]."""
        self._passages_of_row: dict[int, range] = {}
        """Where the vectors of each row stand in the buffer."""
        self._row_of_passage: array[int] = array("q")
        """The row of each vector in the buffer; `_NO_ROW` if its row has other vectors by now."""
        self.removed_count = 0
        """How many vectors in the buffer belong to no row."""

    @property
    def vectors(self) -> np.ndarray:
        """All vectors, also removed ones, [passages, dimension]. Valid until the next change."""
        return self._buffer[: len(self._row_of_passage)]

    @property
    def dimension(self) -> int:
        """The length of a vector; 0 before the first one."""
        return self._buffer.shape[1]

    def set_vectors(
        self, rows: Sequence[int], passage_counts: Sequence[int], vectors: np.ndarray
    ) -> None:
        """Store the vectors of rows, in place of those that they have.

        A row is an entry. It has one vector for each passage of its text, so it may have several.

        Args:
            rows: The rows.
            passage_counts: How many vectors each row gets.
            vectors: The vectors of the first row, then those of the second, and so on; float32 of
                shape [passages, dimension].
        """
        start = len(self._row_of_passage)
        end = start + len(vectors)
        self._reserve(end, vectors.shape[1])
        self._buffer[start:end] = vectors

        # Note which of these vectors belong to which row, and give up the old ones of the row.
        for row, passage_count in zip(rows, passage_counts, strict=True):
            self.remove(row)
            first_passage = len(self._row_of_passage)
            self._passages_of_row[row] = range(first_passage, first_passage + passage_count)
            self._row_of_passage.extend([row] * passage_count)

    def remove(self, row: int) -> None:
        """Remove the vectors of a row, if any.

        They stay in the buffer, marked with `_NO_ROW`; the index is rebuilt when these are many.
        """
        passages = self._passages_of_row.pop(row, range(0))
        for passage in passages:
            self._row_of_passage[passage] = _NO_ROW
        self.removed_count += len(passages)

    def vectors_of(self, rows: Sequence[int]) -> PassageVectors:
        """Return copies of the vectors of rows; a row has one vector for each of its passages."""
        passage_counts: list[int] = []
        passages: list[int] = []
        for row in rows:
            row_passages = self._passages_of_row.get(row, range(0))
            passage_counts.append(len(row_passages))
            passages.extend(row_passages)
        return PassageVectors(passage_counts, self.vectors[passages])

    def cosines(self, queries: np.ndarray, row_count: int) -> np.ndarray:
        """Return how similar each row is to each query, as a cosine from -1 to 1.

        A row is an entry of the index. Its text may have several passages, each with a vector. The
        passage that is most similar to the query counts.

        Args:
            queries: The vectors of the queries, shape [queries, dimension].
            row_count: The number of rows; they are numbered from 0.

        Returns:
            float32 of shape [queries, rows]; -inf for rows without vectors.
        """
        passage_cosines = self._passage_cosines(queries)
        if len(self.vectors) == row_count and self.removed_count == 0:
            # Every row has one passage, and they stand in the order of the rows.
            return passage_cosines

        # A removed passage belongs to the row -1 (`_NO_ROW`), and numpy takes the index -1 for the
        # last column. So add a column that collects removed passages, and cut it off at the end.
        row_cosines = np.full((len(queries), row_count + 1), -np.inf, np.float32)
        rows = np.frombuffer(self._row_of_passage, np.int64)
        for best_cosines, query_cosines in zip(row_cosines, passage_cosines, strict=True):
            # Of several passages of a row, the highest cosine stays.
            np.maximum.at(best_cosines, rows, query_cosines)
        return row_cosines[:, :row_count]

    def _passage_cosines(self, queries: np.ndarray) -> np.ndarray:
        """Return the cosine between each query and each vector, float32 [queries, passages].

        All vectors have length 1 (or 0), so a cosine is an inner product.
        """
        # faiss reads raw memory, so it must be float32 without gaps.
        queries = np.ascontiguousarray(queries, np.float32)
        vectors = self.vectors
        cosines = np.empty((len(queries), len(vectors)), np.float32)

        # One matrix product for all queries would round differently than for one query alone, and
        # the scores of a query must not depend on other queries. So take one query at a time. A
        # block of vectors stays in the cache of the processor until all queries have read it.
        for start in range(0, len(vectors), _BLOCK_SIZE):
            block = vectors[start : start + _BLOCK_SIZE]
            for query, query_cosines in zip(queries, cosines, strict=True):
                block_cosines = query_cosines[start : start + len(block)]
                _write_inner_products(query, block, into=block_cosines)
        return cosines

    def _reserve(self, capacity: int, dimension: int) -> None:
        """Make the buffer large enough for `capacity` vectors, and keep those in it."""
        if capacity <= len(self._buffer):
            return

        # The size at least doubles, so that adding vectors one by one copies each a few times only.
        new_capacity = max(2 * len(self._buffer), capacity)
        buffer = np.empty((new_capacity, dimension), np.float32)
        vectors = self.vectors
        if len(vectors):
            buffer[: len(vectors)] = vectors
        self._buffer = buffer


def _write_inner_products(query: np.ndarray, vectors: np.ndarray, *, into: np.ndarray) -> None:
    """Write the inner product of a query and each of some vectors into an array.

    Args:
        query: float32 of shape [dimension].
        vectors: float32 of shape [vectors, dimension].
        into: Is overwritten with the inner products; float32 of shape [vectors].
    """
    import faiss

    # faiss's searches use all threads, and round a query differently alone and among others. Its
    # function for one query uses one thread, and always rounds in the same way. "ny" stands for
    # many vectors y.
    api = cast("Any", faiss)
    api.fvec_inner_products_ny(
        api.swig_ptr(into),
        api.swig_ptr(query),
        api.swig_ptr(vectors),
        vectors.shape[1],
        len(vectors),
    )
