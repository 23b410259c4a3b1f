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
        """For each term the rows with texts that have it; no term without rows."""
        self._lengths: array[float] = array("d")
        """The number of terms in each row; 0 for a row without a text."""
        self._total_length = 0
        """The sum of `_lengths`."""
        self._text_count = 0
        """How many rows have a text."""
        self._terms_by_frequency: array[int] = array("q", [0])
        """How many terms have each document frequency: at index 3, how many are in 3 texts.

        Index 0 means nothing.
        """

        # What follows from all texts is computed when a query needs it, and dropped at every
        # change.
        self._term_scores: dict[str, np.ndarray] = {}
        """What each term adds to the scores of the rows of its posting."""
        self._common_weight: float | None = None
        """The weight of terms that are in half of the texts or more."""

    def set_text(self, row: int, text: str | None, old_text: str | None = None) -> None:
        """Store the text of a row, in place of the old one, so that queries can find its words.

        A row is the number of an entry. A row without a text, None, does not count as a text. A row
        with the empty text "" does, and makes the mean length smaller.

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

        # These two depend on all texts, so they are outdated now.
        self._term_scores = {}
        self._common_weight = None

    def scores(self, query: str) -> np.ndarray:
        """Return how well the text of every row matches the words of a query.

        Returns:
            The BM25 scores, float64 of shape [rows]; 0 for rows that share no word with the query.
        """
        scores = np.zeros(len(self._lengths))
        # A term that the query has twice is added twice. The order of the terms matters too: in
        # another order sums would be rounded in another way.
        for term in query_terms(query):
            posting = self._postings.get(term)
            if posting is not None:
                scores[posting.row_array()] += self._scores_of_term(term, posting)
        return scores

    def rarity(self, text: str) -> float:
        """Return how rare the rarest term of a text is in this index; 0 for a text without terms.

        The rarity of a term is log(1 + (texts - frequency + 0.5) / (frequency + 0.5)). It is never
        negative.
        """
        rarity = 0.0
        for term in tokens(text):
            frequency = self._frequency(term)
            odds = (self._text_count - frequency + 0.5) / (frequency + 0.5)
            rarity = max(rarity, math.log(1 + odds))
        return rarity

    def _frequency(self, term: str) -> int:
        """Return the document frequency of a term: how many texts have it."""
        posting = self._postings.get(term)
        return len(posting.rows) if posting is not None else 0

    def _set_count(self, term: str, row: int, count: int) -> None:
        """Store how often a term stands in the text of a row, and update the statistics of terms.

        The document frequency of a term is the number of texts that have it. `_terms_by_frequency`
        counts terms by it: if 5 terms are in 3 texts each, the number at index 3 is 5.

        Args:
            term: The term, a stemmed word.
            row: The row.
            count: How often the term stands in the text now. 0 removes the term from the row, which
                must have it.
        """
        # A posting lists the rows whose texts have the term.
        posting = self._postings.get(term)
        if posting is None:
            posting = _Posting()
            self._postings[term] = posting

        old_frequency = len(posting.rows)
        posting.set_count(row, count)
        frequency = len(posting.rows)
        if frequency == 0:
            del self._postings[term]

        # A frequency rises by at most 1 in one call, so one more place is enough. A new term takes
        # 1 off the number at index 0, which nobody reads.
        if frequency == len(self._terms_by_frequency):
            self._terms_by_frequency.append(0)
        self._terms_by_frequency[old_frequency] -= 1
        self._terms_by_frequency[frequency] += 1

    def _scores_of_term(self, term: str, posting: _Posting) -> np.ndarray:
        """Return what a term of a query adds to the BM25 score of each text that has the term.

        Longer texts get less. The docstring of the module has the formula.

        Args:
            term: The term.
            posting: The rows that have the term, and how often.
        """
        # Computed once, and kept until a text of the index changes.
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
        """Return how much a term counts in a query; rare terms count more.

        Args:
            frequency: In how many texts the term is.
        """
        if 2 * frequency < self._text_count:
            return math.log(self._text_count - frequency + 0.5) - math.log(frequency + 0.5)

        # A term in half of the texts or more would get 0 or less by this formula, and a text would
        # lose by having a word of the query. So all such terms get the same small weight.
        if self._common_weight is None:
            self._common_weight = max(EPSILON * self._mean_weight(), FLOOR)
        return self._common_weight

    def _mean_weight(self) -> float:
        """Return the mean of log(texts - frequency + 0.5) - log(frequency + 0.5) over all terms.

        The frequency of a term is the number of texts that have it. The mean may be negative.
        """
        # Terms of the same frequency have the same weight, so it is computed once for all of them.
        # At index 3 of this array stands how many terms are in 3 texts; index 0 means nothing.
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
        """Store how often the text of a row has the term. `rows` stay sorted.

        Args:
            row: The row.
            count: How often. 0 removes the row, and is allowed only if the row is among `rows`.
        """
        if not self.rows or row > self.rows[-1]:
            # The usual case: a new text of an index has the highest row.
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

    def row_array(self) -> np.ndarray:
        """Return `rows` as a numpy array that shares their memory.

        Drop it before the next change: `rows` cannot grow while a numpy array shares their memory.
        """
        return np.frombuffer(self.rows, np.int64)

    def count_array(self) -> np.ndarray:
        """Return `counts` as a numpy array that shares their memory; drop it as `row_array`."""
        return np.frombuffer(self.counts, np.uint32)


def _term_counts(text: str | None) -> Counter[str]:
    """Return how often a text has each of its terms (stemmed words); None has no terms."""
    return Counter(tokens(text)) if text else Counter()
