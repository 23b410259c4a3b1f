"""BM25: how well the texts of an index match the words of a query.

    >>> from mempiler.memory.search.bm25 import BM25Index
    >>> index = BM25Index()
    >>> for row, text in enumerate(["Ann moved to Lisbon", "Ann likes jazz", "Bob likes rain"]):
    ...     index.set_text(row, text)
    >>> [round(score, 2) for score in index.scores("Does she like jazz?").tolist()]
    [0.0, 0.57, 0.05]

The score of a text is the sum, over the terms of the query, of

    weight * count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean length))

where `count` is how often the text has the term, lengths are numbers of terms, and

    weight = log(texts - frequency + 0.5) - log(frequency + 0.5)

for a term that is in `frequency` of the texts. This is Okapi BM25 (Robertson and Zaragoza, "The
Probabilistic Relevance Framework: BM25 and Beyond", 2009) as rank_bm25's `BM25Okapi` computes it.
Scores equal those of rank_bm25, but for terms that are in half of the texts or more: their weights
are at least `FLOOR`. Unlike rank_bm25, the index is updated in place: changing a text costs as much
as the text is long, however many others there are.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from .tokens import query_terms, tokens

K1 = 1.5
"""How much further occurrences of a term in one text add; 0: nothing."""
B = 0.75
"""How much longer texts are marked down, from 0 to 1."""
EPSILON = 0.25
"""Weight of a term in at least half of the texts, as a share of the mean weight of all terms."""
FLOOR = 0.01
"""The least weight of such a term. In a memory of one or two texts every term is one, and without a
floor no text would be found."""


class BM25Index:
    """BM25 scores for the texts in numbered rows. Not safe under threads without a lock."""

    def __init__(self) -> None:
        self._postings: dict[str, _Posting] = {}
        """The rows that have each term; no term without rows."""
        self._lengths: array[float] = array("d")
        """The number of terms in each row; 0 for a row without a text."""
        self._total_length = 0
        """The sum of `_lengths`."""
        self._text_count = 0
        """How many rows have a text."""
        self._terms_by_frequency: array[int] = array("q", [0])
        """At place n: how many terms are in exactly n texts. Place 0 means nothing."""

        # What follows from all texts is computed when a query needs it, and dropped at every
        # change.
        self._term_scores: dict[str, np.ndarray] = {}
        """What each term adds to the scores of the rows of its posting."""
        self._common_weight: float | None = None
        """The weight of terms that are in half of the texts or more."""

    def set_text(self, row: int, text: str | None, old_text: str | None = None) -> None:
        """Give a row another text.

        A row without a text, None, does not count as a text. A row with the empty text "" does, and
        makes the mean length smaller.

        Args:
            row: A row that exists, or the next one.
            text: The new text; None if the row is to have none.
            old_text: The text that the row has now; None if it has none.
        """
        if row == len(self._lengths):
            self._lengths.append(0)

        old_counts = _term_counts(old_text)
        new_counts = _term_counts(text)
        for term, count in new_counts.items():
            if old_counts.get(term) != count:
                self._set_count(term, row, count)
        for term in old_counts.keys() - new_counts.keys():
            self._set_count(term, row, 0)

        self._lengths[row] = new_counts.total()
        self._total_length += new_counts.total() - old_counts.total()
        if old_text is not None:
            self._text_count -= 1
        if text is not None:
            self._text_count += 1

        # Both depend on all texts, so they are outdated now.
        self._term_scores = {}
        self._common_weight = None

    def scores(self, query: str) -> np.ndarray:
        """Return the score of every row, float64 of shape [rows].

        Rows that share no word with the query score 0.
        """
        scores = np.zeros(len(self._lengths))
        # Terms are added in the order of the query, and twice if they are there twice: in another
        # order sums would be rounded in another way.
        for term in query_terms(query):
            posting = self._postings.get(term)
            if posting is not None:
                scores[posting.row_array()] += self._scores_of_term(term, posting)
        return scores

    def rarity(self, text: str) -> float:
        """Return how rare the rarest term of a text is; 0 for a text without terms.

        It is log(1 + (texts - frequency + 0.5) / (frequency + 0.5)), which is never negative.
        """
        rarity = 0.0
        for term in tokens(text):
            frequency = self._frequency(term)
            odds = (self._text_count - frequency + 0.5) / (frequency + 0.5)
            rarity = max(rarity, math.log(1 + odds))
        return rarity

    def _frequency(self, term: str) -> int:
        """Return how many texts have a term."""
        posting = self._postings.get(term)
        return len(posting.rows) if posting is not None else 0

    def _set_count(self, term: str, row: int, count: int) -> None:
        """Set how often the text of a row has a term.

        Args:
            term: The term.
            row: The row.
            count: How often; 0 only if the row has had the term so far.
        """
        posting = self._postings.get(term)
        if posting is None:
            posting = _Posting()
            self._postings[term] = posting

        old_frequency = len(posting.rows)
        posting.set_count(row, count)
        frequency = len(posting.rows)
        if frequency == 0:
            del self._postings[term]

        # The term moves from the terms in `old_frequency` texts to those in `frequency` texts.
        if frequency == len(self._terms_by_frequency):
            self._terms_by_frequency.append(0)
        self._terms_by_frequency[old_frequency] -= 1
        self._terms_by_frequency[frequency] += 1

    def _scores_of_term(self, term: str, posting: _Posting) -> np.ndarray:
        """Return what a term adds to the scores of its rows; the module has the formula."""
        if term not in self._term_scores:
            counts = posting.count_array()
            lengths = np.frombuffer(self._lengths)[posting.row_array()]
            mean_length = self._total_length / self._text_count

            # Do not reorder the operations: they are those of rank_bm25, one by one, and floats
            # that are multiplied in another order differ in the last bit.
            norms = K1 * (1 - B + B * lengths / mean_length)
            saturations = counts * (K1 + 1) / (counts + norms)
            self._term_scores[term] = self._weight(len(posting.rows)) * saturations
        return self._term_scores[term]

    def _weight(self, frequency: int) -> float:
        """Return the weight of a term that is in so many texts."""
        if 2 * frequency < self._text_count:
            return math.log(self._text_count - frequency + 0.5) - math.log(frequency + 0.5)

        # By the formula it would be 0 or less: a text would lose by having a word of the query.
        if self._common_weight is None:
            self._common_weight = max(EPSILON * self._mean_weight(), FLOOR)
        return self._common_weight

    def _mean_weight(self) -> float:
        """Return the mean weight of all terms by the formula, which may be negative."""
        # Terms of the same frequency have the same weight, so it is computed once for all of them.
        terms_by_frequency = np.frombuffer(self._terms_by_frequency, np.int64)
        frequencies = np.flatnonzero(terms_by_frequency[1:]) + 1
        term_counts = terms_by_frequency[frequencies]
        weights = np.log(self._text_count - frequencies + 0.5) - np.log(frequencies + 0.5)
        return math.fsum(term_counts * weights) / int(term_counts.sum())


@dataclass(eq=False, slots=True)
class _Posting:
    """The rows whose texts have one term, in two parallel arrays."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    """Sorted, lowest first."""
    counts: array[int] = field(default_factory=lambda: array("I"))
    """How often the text of each of these rows has the term; never 0."""

    def set_count(self, row: int, count: int) -> None:
        """Set how often the text of a row has the term.

        Args:
            row: The row.
            count: How often; 0 removes the row, which must be among `rows` then.
        """
        if not self.rows or row > self.rows[-1]:
            # The usual case: a new text of an index has its last row.
            self.rows.append(row)
            self.counts.append(count)
            return

        position = bisect_left(self.rows, row)
        if self.rows[position] != row:
            self.rows.insert(position, row)
            self.counts.insert(position, count)
        elif count > 0:
            self.counts[position] = count
        else:
            del self.rows[position]
            del self.counts[position]

    # An array cannot grow while a numpy array shares its memory. So the arrays that these two
    # return must be gone before the next change.
    def row_array(self) -> np.ndarray:
        """Return `rows` without copying them."""
        return np.frombuffer(self.rows, np.int64)

    def count_array(self) -> np.ndarray:
        """Return `counts` without copying them."""
        return np.frombuffer(self.counts, np.uint32)


def _term_counts(text: str | None) -> Counter[str]:
    """Return how often a text has each of its terms; None has none."""
    return Counter(tokens(text)) if text else Counter()
