"""Search by meaning: the cosine of embeddings, exact, in a flat faiss index.

Vectors have length 1, so that faiss's inner product is their cosine. faiss only picks candidates: they are scored again
in double precision, one dot product each, because faiss's last bits depend on how many queries come at once. So a query
gives the same hits alone and in a batch, and entries of equal text tie exactly and keep their order.

Up to `SMALL` vectors a search runs on one thread, which was 25 times faster than two on a busy machine. OpenMP keeps
that number per calling thread: it is set around the search and put back, and no other thread sees it.

Example:
    >>> from mempiler.engines.embedders import embedder
    >>> from mempiler.memory.dense import DenseIndex
    >>> from mempiler.memory.index import Entry
    >>> index = DenseIndex(embedder("offline"))
    >>> index.add([Entry(id="f1", text="Ann moved to Lisbon"), Entry(id="f2", text="Bob likes jazz")])
    >>> index.search(["When was Ann moving?"], k=1, min_score=.1)[0][0].id
    'f1'

Limits: searches of one index take turns (faiss cannot search while another thread adds); embedding goes on side by
side. A filter is called with the index locked. A search reads every vector: 0.3 ms per query at ten thousand, 9 ms at a
hundred thousand, where an approximate index would pay. Which cosine is near depends on the embedder: see `unrelated`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import ProgramError
from ..records import Hit
from .index import Embedder, Entry, Where, check_search, query_vectors
from .vectors import load_vectors, save_vectors

SMALL = 10_000
"""Up to this many vectors one thread is faster than several."""
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
        self._labels: dict[str, int] = {}
        self._entries: dict[int, Entry] = {}
        self._next = 0
        self._vectors: Any = None

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
            labels = [self._labels.pop(id) for id in dict.fromkeys(ids) if id in self._labels]
            for label in labels:
                del self._entries[label]
            self._drop(labels)

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
            labels = None if where is None else [label for label, entry in self._entries.items() if where(entry)]
            if not asked or not self._entries or labels == []:
                return found
            self._check(vectors)
            candidates = self._candidates(vectors[asked], k, labels)
            for row, chosen in zip(asked, candidates, strict=True):
                found[row] = self._rank(vectors[row], chosen, k, min_score)
        return found

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        with self._lock:
            return tuple(self._labels)

    def save(self, folder: str | Path) -> None:
        """Writes entries, vectors and the embedder's name to a folder.

        Raises:
            DataError: The folder cannot be written.
        """
        with self._lock:
            entries = list(self._entries.values())
            vectors = self._read(list(self._entries))
        save_vectors(folder, self.kind, entries, self.embedder, vectors)

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
        embedder, entries, vectors, _ = load_vectors(folder, cls.kind, embedder)
        index = cls(embedder)
        if entries:
            index._insert(entries, vectors)
        return index

    def _insert(self, entries: list[Entry], vectors: np.ndarray) -> None:
        with self._lock:
            if self._vectors is None:
                faiss = _faiss()
                self._vectors = faiss.IndexIDMap2(faiss.IndexFlatIP(vectors.shape[1]))
            self._check(vectors)
            self._drop([self._labels[entry.id] for entry in entries if entry.id in self._labels])
            for entry in entries:
                # A replaced entry keeps its label: labels grow in the order of first addition, which breaks ties.
                self._next += entry.id not in self._labels
                label = self._labels.setdefault(entry.id, self._next)
                self._entries[label] = entry
            labels = np.array([self._labels[entry.id] for entry in entries], dtype=np.int64)
            self._vectors.add_with_ids(np.ascontiguousarray(vectors, dtype=np.float32), labels)

    def _drop(self, labels: list[int]) -> None:
        if labels:
            self._vectors.remove_ids(np.array(labels, dtype=np.int64))

    def _check(self, vectors: np.ndarray) -> None:
        if vectors.shape[1] != self._vectors.d:
            raise ProgramError(
                f"embedder {self.embedder.name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {self._vectors.d}; rebuild the index"
            )

    def _candidates(self, vectors: np.ndarray, k: int, labels: list[int] | None) -> list[np.ndarray]:
        """Labels that hold the k best of each query, and all that tie with the last of them."""
        faiss = _faiss()
        options: dict[str, Any] = {}
        if labels is not None:
            selector = faiss.IDSelectorBatch(np.array(labels, dtype=np.int64))
            options = {"params": faiss.SearchParameters(sel=selector)}
        number = len(self._entries) if labels is None else len(labels)
        fetch = min(k + SPARE, number)
        with _one_thread(len(self._entries)):
            scores, found = self._vectors.search(vectors, fetch, **options)
            chosen = list(found)
            for row in np.flatnonzero(scores[:, -1] >= scores[:, k - 1] - SLACK) if fetch < number else ():
                radius = float(scores[row, k - 1]) - SLACK
                _, _, chosen[row] = self._vectors.range_search(vectors[row : row + 1], radius, **options)
        return chosen

    def _rank(self, vector: np.ndarray, labels: np.ndarray, k: int, min_score: float) -> list[Hit]:
        rows = self._read(labels).astype(np.float64)
        scores = (rows * vector.astype(np.float64)).sum(axis=1)
        best = [row for row in np.lexsort((labels, -scores))[:k] if scores[row] >= min_score]
        return [self._entries[int(labels[row])].hit(float(scores[row])) for row in best]

    def _read(self, labels: Sequence[int] | np.ndarray) -> np.ndarray:
        if not len(labels):
            return np.zeros((0, self._vectors.d if self._vectors is not None else self.embedder.dimension), np.float32)
        return self._vectors.reconstruct_batch(np.asarray(labels, dtype=np.int64))


def _faiss() -> Any:
    import faiss

    return faiss


@contextmanager
def _one_thread(vectors: int) -> Generator[None]:
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    if vectors <= SMALL:
        faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
