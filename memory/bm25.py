"""BM25 that grows and shrinks: the scores of rank_bm25's Okapi, kept up to date instead of rebuilt.

    term ──> posting: the rows that hold it, ascending, and how often each does

An add touches the postings of its own terms only, so it costs the same in a small index and in a large one. What
depends on all entries (their number, mean length, the mean weight of all terms) is kept as counters and turned into
numbers at the next search. A query reads the postings of its terms with numpy.

Why not a library: of those that were measured (bm25s, tantivy, the FTS5 of SQLite), the fast ones
rebuild or commit on every add (bm25s 2 s, tantivy 8 ms and more at 100,000 entries; here 0.02 ms), FTS5 needs 50 ms for
a query of common words, and all of them rank otherwise: they know no floor for terms that are in half of the entries
(names of speakers), so 99 % of LoCoMo's questions would get other hits on the day a memory outgrows rank-bm25.

Example:
    >>> from mempiler.memory.bm25 import Bm25
    >>> scorer = Bm25()
    >>> scorer.put("f1", ["ann", "moved", "lisbon"])
    >>> scorer.put("f2", ["ann", "likes", "jazz"])
    >>> [key for key, score in scorer.search([["jazz"]], k=5)[0]]
    ['f2']

Limits: not locked, its owner does that (a posting cannot grow while numpy looks at it). Taking an entry out of a term
that is everywhere moves up to 1.2 MB per 100,000 entries. A query of very common words reads them all, 1 ms for each
at 100,000 entries; there is no skipping of hopeless ones.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .neighbours import ALONE, Neighbours, Shares

K1, B = 1.5, 0.75
EPSILON = 0.25
"""Weight of a term that is in half of the entries or more, as a share of the mean weight of all terms."""
FLOOR = 0.01
"""Least weight of such a term, where that share is smaller or negative."""
SPARE_ROWS = 1000
"""Rows of removed entries that are kept before rows are numbered anew."""


@dataclass
class _Posting:
    """The rows that hold one term, ascending, and how often each does."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("I"))

    def insert(self, row: int, count: int) -> None:
        if not self.rows or row > self.rows[-1]:
            self.rows.append(row)
            self.counts.append(count)
        else:
            at = bisect_left(self.rows, row)
            self.rows.insert(at, row)
            self.counts.insert(at, count)

    def drop(self, row: int) -> None:
        at = bisect_left(self.rows, row)
        del self.rows[at], self.counts[at]


@dataclass(frozen=True)
class _State:
    """What all scores of one moment share."""

    norms: np.ndarray
    """k1 (1 - b + b length / mean length) of every row."""
    least: float
    """Weight of the terms that are in half of the entries or more."""


class Bm25:
    """Documents, as lists of terms under a key, and their BM25 for a query.

    Args:
        shares: What the documents of one dialogue lend one another.
    """

    def __init__(self, shares: Shares = ALONE) -> None:
        self._shares = shares
        self._neighbours = Neighbours()
        self._postings: dict[str, _Posting] = {}
        self._terms_in: array[int] = array("q", [0])
        """How many terms are in 1, 2, ... documents, by that number: all that the mean weight needs to know."""
        self._rows: dict[str, int] = {}
        self._keys: list[str | None] = []
        self._documents: dict[str, Counter[str]] = {}
        self._lengths: array[float] = array("d")
        self._total = 0
        self._state: _State | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, key: str, terms: Sequence[str], dialogue: str = "") -> None:
        """Adds a document; a known key gets new terms and keeps its place among equal scores.

        Args:
            key: Names it.
            terms: What it says.
            dialogue: What it is a turn of, if anything.
        """
        if key in self._rows:
            self._clear(key)
        else:
            self._rows[key] = len(self._keys)
            self._keys.append(key)
            self._lengths.append(0.0)
        row, counts = self._rows[key], Counter(terms)
        for term, count in counts.items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = _Posting()
            posting.insert(row, count)
            self._moved(len(posting.rows) - 1, len(posting.rows))
        self._neighbours.put(row, dialogue)
        self._documents[key] = counts
        self._lengths[row] = len(terms)
        self._total += len(terms)
        self._state = None

    def remove(self, key: str) -> None:
        """Takes a document out; an unknown key is passed over."""
        if key not in self._rows:
            return
        self._clear(key)
        del self._documents[key]
        self._neighbours.drop(self._rows[key])
        self._keys[self._rows.pop(key)] = None
        self._state = None
        if len(self._keys) > 2 * len(self._rows) + SPARE_ROWS:
            self._renumber()

    def search(
        self,
        queries: Sequence[Sequence[str]],
        k: int,
        min_score: float = -math.inf,
        where: Callable[[str], bool] | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Finds the k documents with the highest BM25 for each query.

        Args:
            queries: Terms; one that is there twice counts twice.
            k: The most documents per query.
            min_score: Documents that score lower are left out.
            where: Says by the key which documents count; asked once per key, and only of those that may be found.

        Returns:
            Key and score of each, best first, equal scores in the order in which the keys were first put.
        """
        if not self._total or k == 0:
            return [[] for _ in queries]
        verdicts: dict[str, bool] = {}

        def passes(key: str) -> bool:
            if where is not None and key not in verdicts:
                verdicts[key] = where(key)
            return where is None or verdicts[key]

        return [self._best(self._scores(terms), k, min_score, passes) for terms in queries]

    def scores(self, terms: Sequence[str]) -> np.ndarray:
        """BM25 of every document, in the order in which their keys were first put, shape [documents]."""
        if not self._total:
            return np.zeros(len(self._rows))
        scores = self._scores(terms)
        gaps = len(self._keys) > len(self._rows)
        return scores[np.fromiter(self._rows.values(), np.int64, len(self._rows))] if gaps else scores

    def weight(self, term: str) -> float:
        """The inverse document frequency of a term, with the floor of `least`; 0 for an unknown one."""
        posting = self._postings.get(term)
        if posting is None:
            return 0.0
        count, number = len(posting.rows), len(self._rows)
        if 2 * count >= number:
            return self._current().least
        return math.log(number - count + 0.5) - math.log(count + 0.5)

    def _scores(self, terms: Iterable[str]) -> np.ndarray:
        """BM25 of every row with what neighbours lend, shape [rows].

        Each term is added in rank_bm25's order of operations: the last bits agree too.
        """
        norms, scores = self._current().norms, np.zeros(len(self._keys))
        for term in terms:
            posting = self._postings.get(term)
            if posting is not None:
                rows, counts = np.frombuffer(posting.rows, np.int64), np.frombuffer(posting.counts, np.uint32)
                scores[rows] += self.weight(term) * (counts * (K1 + 1) / (counts + norms[rows]))
        return self._neighbours.lent(scores, self._shares)

    def _best(
        self, scores: np.ndarray, k: int, min_score: float, passes: Callable[[str], bool]
    ) -> list[tuple[str, float]]:
        rows = np.flatnonzero((scores > 0) & (scores >= min_score))
        fetch = k
        while True:
            keys = [(self._keys[row] or "", float(scores[row])) for row in map(int, highest(scores, rows, fetch))]
            found = [(key, score) for key, score in keys if passes(key)]
            if len(found) >= k or fetch >= len(rows):
                return found[:k]
            fetch *= 8

    def _current(self) -> _State:
        if self._state is None:
            lengths = np.frombuffer(self._lengths, np.float64)
            norms = K1 * (1 - B + B * lengths / (self._total / len(self._rows)))
            terms = np.frombuffer(self._terms_in, np.int64)
            counts = np.flatnonzero(terms[1:]) + 1
            weights = np.log(len(self._rows) - counts + 0.5) - np.log(counts + 0.5)
            mean = math.fsum(terms[counts] * weights) / len(self._postings)
            self._state = _State(norms, max(EPSILON * mean, FLOOR))
        return self._state

    def _clear(self, key: str) -> None:
        """Takes a document's terms out of the postings."""
        row = self._rows[key]
        for term in self._documents[key]:
            posting = self._postings[term]
            posting.drop(row)
            self._moved(len(posting.rows) + 1, len(posting.rows))
            if not posting.rows:
                del self._postings[term]
        self._total -= int(self._lengths[row])
        self._lengths[row] = 0.0

    def _moved(self, old: int, new: int) -> None:
        """Notes that a term was in `old` documents and is in `new` ones; what stands at 0 is never read."""
        if new == len(self._terms_in):
            self._terms_in.append(0)
        self._terms_in[old] -= 1
        self._terms_in[new] += 1

    def _renumber(self) -> None:
        """Forgets the rows of removed documents; the order of the others stays."""
        kept = [row for row, key in enumerate(self._keys) if key is not None]
        new = np.zeros(len(self._keys), np.int64)
        new[kept] = np.arange(len(kept))
        for posting in self._postings.values():
            posting.rows = array("q", new[np.frombuffer(posting.rows, np.int64)].tobytes())
        self._neighbours = self._neighbours.kept(kept)
        self._keys = [self._keys[row] for row in kept]
        self._lengths = array("d", [self._lengths[row] for row in kept])
        self._rows = {key: row for row, key in enumerate(self._keys) if key is not None}


def highest(scores: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """The k rows of highest score, best first, equal ones in their order."""
    if len(rows) > k:
        least = np.partition(scores[rows], len(rows) - k)[len(rows) - k]
        rows = rows[scores[rows] >= least]
    return rows[np.argsort(-scores[rows], kind="stable")[:k]]
