"""Lexical search: BM25 over stems, by rank-bm25 for a memory of up to 500 entries, beyond that by postings.

Scores are those of rank_bm25's Okapi (k1 = 1.5, b = .75) over `memory.tokens`; turns of a dialogue lend one another
shares of theirs (`memory.neighbours`). An entry is a hit when it shares a term with the query, or is lent something.
Okapi gives a term that is in half of the entries no weight, or in a memory of two or three entries a
negative one; such terms get a small positive weight here, so that the first facts of a memory can be found.

rank-bm25 rebuilds its statistics after each change (10 ms per thousand entries) and reads every entry for every term of
a query. With more than `SMALL` entries `memory.bm25` takes over: same weights, same scores (to 1e-9), same order, but
an add takes the same time at any size, and a query over ten thousand entries takes a thirtieth of the time.
`python perf/search_cost.py` measures both in one run.

Measured on two LoCoMo conversations, conv-26 and conv-30 (231 questions of categories 1-4, one entry per turn):
evidence recall .605 in the first 5 and .789 in the first 20; .546 and .705 where no turn lends anything
(`python perf/retrieval.py`).

Example:
    >>> from mempiler.memory.index import Entry
    >>> from mempiler.memory.sparse import SparseIndex
    >>> index = SparseIndex()
    >>> index.add([Entry(id="f1", text="Ann moved to Lisbon"), Entry(id="f2", text="Ann likes jazz")])
    >>> index.search(["Which music does she like?"], k=1)[0][0].id
    'f2'

Limits: scores depend on the other entries, compare them within one search only. Searches of a large index take turns,
and a filter is called with it locked, with the best entries first until k have passed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from ..records import Hit
from .bm25 import FLOOR, K1, B, Bm25
from .index import Embedder, Entry, Where, check_search, load_folder, save_folder
from .neighbours import Neighbours, Shares
from .tokens import tokens

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi

SMALL = 500
"""Most entries that rank-bm25 ranks: thirty probes take 10 ms then, at a thousand entries twice that."""


@dataclass(frozen=True)
class _Snapshot:
    """Entries and their statistics at one moment; immutable, so searched without a lock."""

    entries: tuple[Entry, ...]
    statistics: BM25Okapi | None
    """None while no entry has a term."""
    neighbours: Neighbours
    shares: Shares

    def scores(self, query: str) -> np.ndarray:
        """BM25 of every entry with what neighbours lend, shape [entries]; 0 where neither shares a term."""
        if self.statistics is None:
            return np.zeros(len(self.entries))
        return self.neighbours.lent(self.statistics.get_scores(tokens(query)), self.shares)


class SparseIndex:
    """An `Index` by BM25; see there for the methods.

    Args:
        shares: What the turns of one dialogue lend one another.
    """

    kind = "sparse"

    def __init__(self, shares: Shares | None = None) -> None:
        self.shares = Shares() if shares is None else shares
        self._lock = threading.RLock()
        self._entries: dict[str, tuple[Entry, list[str]]] = {}
        self._snapshot: _Snapshot | None = None
        self._large: Bm25 | None = None

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries; one whose id is known replaces the old one."""
        rows = {entry.id: (entry, tokens(entry.text)) for entry in entries}
        with self._lock:
            self._entries.update(rows)
            self._snapshot = None
            if self._large is None and len(self._entries) > SMALL:
                self._large, rows = Bm25(self.shares), self._entries
            if self._large is not None:
                for id, (entry, terms) in rows.items():
                    self._large.put(id, terms, entry.dialogue)

    def remove(self, ids: Iterable[str]) -> None:
        """Takes entries out; unknown ids are passed over."""
        with self._lock:
            for id in ids:
                self._entries.pop(id, None)
                if self._large is not None:
                    self._large.remove(id)
            self._snapshot = None

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k entries with the highest BM25 for each query; see `Index.search`."""
        check_search(queries, k)
        with self._lock:
            if self._large is not None:
                return self._search_large(self._large, queries, k, min_score, where)
            snapshot = self._current()
        allowed = np.ones(len(snapshot.entries), dtype=bool)
        if where is not None:
            allowed = np.fromiter(map(where, snapshot.entries), dtype=bool, count=len(snapshot.entries))
        found: list[list[Hit]] = []
        for query in queries:
            scores = snapshot.scores(query)
            rows = np.flatnonzero(allowed & (scores > 0) & (scores >= min_score))
            best = rows[np.argsort(-scores[rows], kind="stable")[:k]]
            found.append([snapshot.entries[row].hit(float(scores[row])) for row in map(int, best)])
        return found

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """The score of every entry for each query, shape [queries, entries], in the order of `ids`; 0 for no hit."""
        with self._lock:
            if self._large is not None:
                found = [self._large.scores(tokens(query)) for query in queries]
            else:
                found = [self._current().scores(query) for query in queries]
            return np.stack(found) if found else np.zeros((0, len(self._entries)))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        with self._lock:
            return tuple(self._entries)

    def save(self, folder: str | Path) -> None:
        """Writes the entries to a folder; the terms are cut again when it is loaded.

        Raises:
            DataError: The folder cannot be written.
        """
        with self._lock:
            entries = [entry for entry, _ in self._entries.values()]
        save_folder(folder, self.kind, entries, {"shares": self.shares.model_dump()}, {})

    @classmethod
    def load(cls, folder: str | Path, embedder: Embedder | None = None) -> Self:
        """Reads an index that `save` wrote; the embedder is not needed.

        Raises:
            DataError: A file is missing, altered or of another kind.
        """
        entries, about, _ = load_folder(folder, cls.kind)
        index = cls(Shares.saved(folder, about))
        index.add(entries)
        return index

    def _search_large(
        self, large: Bm25, queries: Sequence[str], k: int, min_score: float, where: Where | None
    ) -> list[list[Hit]]:
        passes: Callable[[str], bool] | None = None if where is None else lambda id: where(self._entries[id][0])
        found = large.search([tokens(query) for query in queries], k, min_score, passes)
        return [[self._entries[id][0].hit(score) for id, score in best] for best in found]

    def _current(self) -> _Snapshot:
        with self._lock:
            if self._snapshot is None:
                entries, neighbours = tuple(entry for entry, _ in self._entries.values()), Neighbours()
                for row, entry in enumerate(entries):
                    neighbours.put(row, entry.dialogue)
                statistics = _statistics([terms for _, terms in self._entries.values()])
                self._snapshot = _Snapshot(entries, statistics, neighbours, self.shares)
            return self._snapshot


def _statistics(documents: list[list[str]]) -> BM25Okapi | None:
    from rank_bm25 import BM25Okapi

    if not any(documents):
        return None
    statistics = BM25Okapi(documents, k1=K1, b=B)
    share = statistics.epsilon * statistics.average_idf
    least = max(share, FLOOR)
    for term, weight in statistics.idf.items():
        # rank_bm25 has given negative terms their share already, which may be less than the floor.
        if weight <= 0 or weight == share:
            statistics.idf[term] = least
    return statistics
