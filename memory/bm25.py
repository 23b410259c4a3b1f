"""BM25 that grows and shrinks: the scores of rank_bm25's Okapi, kept up to date instead of rebuilt.

    term ──> posting: the rows that hold it, ascending, and how often each does

An add touches the postings of its own terms only, so it costs the same in a small index and in a large one. What
depends on all entries (their number, mean length, the mean weight of all terms) is kept as counters and turned into
numbers at the next search, for the terms that it asks for; they serve all searches until the next change. A query adds
up the postings of its terms with numpy, and looks for its best among the blocks of rows that reach as high as the
k-th best block.

Why not a library: of those that were measured (bm25s, tantivy, the FTS5 of SQLite), the fast ones
rebuild or commit on every add (bm25s 2 s, tantivy 8 ms and more at 100,000 entries; here 0.02 ms), FTS5 needs 50 ms for
a query of common words, and all of them rank otherwise than rank_bm25: they know no floor for terms that are in half of
the entries (names of speakers), so 99 % of LoCoMo's questions would get other hits.

Example:
    >>> from mempiler.memory.bm25 import Bm25
    >>> scorer = Bm25()
    >>> scorer.put("f1", ["ann", "moved", "lisbon"])
    >>> scorer.put("f2", ["ann", "likes", "jazz"])
    >>> [key for key, score in scorer.search([["jazz"]], k=5)[0]]
    ['f2']

Limits: not locked, its owner does that (a posting cannot grow while numpy looks at it). Taking an entry out of a term
that is everywhere moves up to 1.2 MB per 100,000 entries. A query of very common words reads them all, 0.3 ms for each
at 100,000 entries; there is no skipping of hopeless ones.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np

from .neighbours import ALONE, Neighbours, Shares
from .rows import Rows

K1, B = 1.5, 0.75
EPSILON = 0.25
"""Weight of a term that is in half of the entries or more, as a share of the mean weight of all terms."""
FLOOR = 0.01
"""Least weight of such a term, where that share is smaller or negative."""
BLOCK = 64
"""Scores of which only the highest is looked at, to find where the best begin."""


@dataclass
class _Posting:
    """The rows that hold one term, ascending, and how often each does."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("I"))

    def set(self, row: int, count: int) -> None:
        """Says how often a row holds the term."""
        if not self.rows or row > self.rows[-1]:
            self.rows.append(row)
            self.counts.append(count)
            return
        at = bisect_left(self.rows, row)
        if self.rows[at] == row:
            self.counts[at] = count
        else:
            self.rows.insert(at, row)
            self.counts.insert(at, count)

    def drop(self, row: int) -> None:
        at = bisect_left(self.rows, row)
        if at == len(self.rows) or self.rows[at] != row:
            raise KeyError(row)
        del self.rows[at], self.counts[at]

    def extend(self, rows: np.ndarray, counts: np.ndarray) -> None:
        """Adds rows behind those that are there."""
        self.rows.frombytes(rows.astype(np.int64).tobytes())
        self.counts.frombytes(counts.astype(np.uint32).tobytes())


class _Moment:
    """What depends on all documents, as they are until the next change; each number is worked out when it is asked for.

    Args:
        number: Documents.
        mean: Their mean length.
        lengths: The length of every row.
        terms_in: How many terms are in 1, 2, ... documents, by that number; what stands at 0 is not read.
    """

    def __init__(self, number: int, mean: float, lengths: array[float], terms_in: array[int]) -> None:
        self._number, self._mean, self._lengths, self._terms_in = number, mean, lengths, terms_in
        self._impacts: dict[str, np.ndarray] = {}

    @cached_property
    def least(self) -> float:
        """Weight of the terms that are in half of the documents or more."""
        terms = np.frombuffer(self._terms_in, np.int64)
        counts = np.flatnonzero(terms[1:] != 0) + 1
        weights = np.log(self._number - counts + 0.5) - np.log(counts + 0.5)
        return max(EPSILON * math.fsum(terms[counts] * weights) / int(terms[counts].sum()), FLOOR)

    def weight(self, count: int) -> float:
        """The inverse document frequency of a term that is in so many documents."""
        if 2 * count >= self._number:
            return self.least
        return math.log(self._number - count + 0.5) - math.log(count + 0.5)

    def impacts(self, term: str, posting: _Posting) -> np.ndarray:
        """What a term adds to the score of each row of its posting.

        The order of operations is that of rank_bm25: the last bits agree too.
        """
        found = self._impacts.get(term)
        if found is None:
            counts = np.frombuffer(posting.counts, np.uint32)
            lengths = np.frombuffer(self._lengths, np.float64)[np.frombuffer(posting.rows, np.int64)]
            norms = K1 * (1 - B + B * lengths / self._mean)
            found = self._impacts[term] = self.weight(len(counts)) * (counts * (K1 + 1) / (counts + norms))
        return found


class Bm25:
    """Documents, as lists of terms under a key, and their BM25 for a query.

    Who takes a document out or replaces it says its terms: they are not kept a second time.

    Args:
        shares: What the documents of one dialogue lend one another.
    """

    def __init__(self, shares: Shares = ALONE) -> None:
        self._shares = shares
        self._neighbours = Neighbours()
        self._postings: dict[str, _Posting] = {}
        self._terms_in: array[int] = array("q", [0])
        self._rows = Rows()
        self._lengths: array[float] = array("d")
        self._total = 0
        self._moment: _Moment | None = None
        self._scored = np.empty(0)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, key: str, terms: Sequence[str], dialogue: str = "") -> None:
        """Adds a document.

        Args:
            key: Names it; a new one.
            terms: What it says.
            dialogue: What it is a turn of, if anything.
        """
        self._moment = None
        row = self._rows.add(key)
        self._lengths.append(len(terms))
        self._total += len(terms)
        for term, count in Counter(terms).items():
            self._set(term, row, count)
        self._neighbours.put(row, dialogue)

    def put_all(self, keys: Sequence[str], documents: Sequence[Sequence[str]], dialogues: Sequence[str]) -> None:
        """Adds documents, as `put` does each: many of them in a third of the time.

        Args:
            keys: New ones, each once.
            documents: The terms of each.
            dialogues: What each is a turn of.
        """
        self._moment = None
        rows = [self._rows.add(key) for key in keys]
        lengths = [len(terms) for terms in documents]
        self._lengths.extend(lengths)
        self._total += sum(lengths)
        numbers = {term: number for number, term in enumerate(dict.fromkeys(chain.from_iterable(documents)))}
        terms = np.fromiter(map(numbers.__getitem__, chain.from_iterable(documents)), np.int64, sum(lengths))
        # Sorted by term, then by row: what is equal is one row's count of one term.
        pairs, counts = np.unique(
            terms * len(self._lengths) + np.repeat(np.array(rows, np.int64), lengths), return_counts=True
        )
        holders, ends = pairs % len(self._lengths), np.cumsum(np.bincount(pairs // len(self._lengths)))
        for (term, number), end in zip(numbers.items(), ends.tolist(), strict=True):
            start = int(ends[number - 1]) if number else 0
            posting = self._postings.setdefault(term, _Posting())
            before = len(posting.rows)
            posting.extend(holders[start:end], counts[start:end])
            self._moved(before, before + end - start)
        self._neighbours.put_all(rows, dialogues)

    def replace(self, key: str, old: Sequence[str], new: Sequence[str], dialogue: str = "") -> None:
        """Gives a document other terms; it keeps its place among equal scores.

        Args:
            key: A known one.
            old: The terms that it was put with.
            new: The terms from now on.
            dialogue: What it is a turn of from now on.
        """
        self._moment = None
        row, before, after = self._rows[key], Counter(old), Counter(new)
        for term in before.keys() - after.keys():
            self._unset(term, row)
        for term, count in after.items():
            if before[term] != count:
                self._set(term, row, count)
        self._lengths[row] = len(new)
        self._total += len(new) - len(old)
        self._neighbours.put(row, dialogue)

    def remove(self, key: str, terms: Sequence[str]) -> None:
        """Takes a document out.

        Args:
            key: A known one.
            terms: The terms that it was put with.
        """
        self._moment = None
        row = self._rows.drop(key)
        for term in set(terms):
            self._unset(term, row)
        self._lengths[row] = 0.0
        self._total -= len(terms)
        self._neighbours.drop(row)
        if self._rows.sparse:
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
        return scores[self._rows.live()] if self._rows.gaps else scores.copy()

    def weight(self, term: str) -> float:
        """The inverse document frequency of a term, with the floor of those in half of the documents; 0 if unknown."""
        posting = self._postings.get(term)
        return 0.0 if posting is None else self._current().weight(len(posting.rows))

    def _scores(self, terms: Iterable[str]) -> np.ndarray:
        """BM25 of every row with what neighbours lend, shape [rows], until the next call."""
        if len(self._scored) < len(self._rows.keys):
            self._scored = np.empty(2 * len(self._rows.keys))
        # The same room each time, for fresh pages take longer than all the rest. Terms are added in their order.
        scores, moment = self._scored[: len(self._rows.keys)], self._current()
        scores.fill(0)
        for term in terms:
            posting = self._postings.get(term)
            if posting is not None:
                scores[np.frombuffer(posting.rows, np.int64)] += moment.impacts(term, posting)
        return self._neighbours.lent(scores, self._shares)

    def _best(
        self, scores: np.ndarray, k: int, min_score: float, passes: Callable[[str], bool]
    ) -> list[tuple[str, float]]:
        fetch = k
        while True:
            least = max(min_score, _reached(scores, fetch))
            rows = highest(scores, np.flatnonzero((scores > 0) & (scores >= least)), fetch)
            keys = [self._rows.keys[row] or "" for row in map(int, rows)]
            found = [(key, score) for key, score in zip(keys, map(float, scores[rows]), strict=True) if passes(key)]
            if len(found) >= k or len(rows) < fetch:
                return found[:k]
            fetch *= 8

    def _current(self) -> _Moment:
        if self._moment is None:
            self._moment = _Moment(len(self._rows), self._total / len(self._rows), self._lengths, self._terms_in)
        return self._moment

    def _set(self, term: str, row: int, count: int) -> None:
        posting = self._postings.get(term)
        if posting is None:
            posting = self._postings[term] = _Posting()
        before = len(posting.rows)
        posting.set(row, count)
        self._moved(before, len(posting.rows))

    def _unset(self, term: str, row: int) -> None:
        posting = self._postings[term]
        posting.drop(row)
        self._moved(len(posting.rows) + 1, len(posting.rows))
        if not posting.rows:
            del self._postings[term]

    def _moved(self, old: int, new: int) -> None:
        """Notes that a term was in `old` documents and is in `new` ones; what stands at 0 is never read."""
        if new >= len(self._terms_in):
            self._terms_in.extend([0] * (new + 1 - len(self._terms_in)))
        self._terms_in[old] -= 1
        self._terms_in[new] += 1

    def _renumber(self) -> None:
        """Forgets the rows of removed documents; the order of the others stays."""
        kept = self._rows.live()
        new = np.zeros(len(self._rows.keys), np.int64)
        new[kept] = np.arange(len(kept))
        for posting in self._postings.values():
            posting.rows = array("q", new[np.frombuffer(posting.rows, np.int64)].tobytes())
        self._neighbours = self._neighbours.kept(kept.tolist())
        self._lengths = array("d", np.frombuffer(self._lengths, np.float64)[kept].tobytes())
        self._rows = Rows(key for key in self._rows.keys if key is not None)


def highest(scores: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """The k rows of highest score, best first, equal ones in their order."""
    if len(rows) > k:
        least = np.partition(scores[rows], len(rows) - k)[len(rows) - k]
        rows = rows[scores[rows] >= least]
    return rows[np.argsort(-scores[rows], kind="stable")[:k]]


def _reached(scores: np.ndarray, k: int) -> float:
    """A score that k rows reach, and more than a few others do not; -inf where that is not worth looking for."""
    blocks = len(scores) // BLOCK
    if blocks <= k:
        return -math.inf
    # The highest of a block is a score as well, so that k of them are k rows.
    tops = scores[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
    return float(np.partition(tops, blocks - k)[blocks - k])
