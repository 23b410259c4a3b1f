"""Add the signals of a search to one score for each row of an index.

| signal | how well a row fits by it | unit |
|---|---|---|
| words | BM25, with shares of the BM25 of neighbouring turns | none, 0 for no hit |
| cosines | the cosine of the most similar passage, with shares of neighbours' | from -1 to 1 |
| speaker | `SignalWeights.speaker` if the question asks for the words of its speaker | deviations |
| month | `SignalWeights.month`, or a share of it, if the question names its month | deviations |

Where words and cosines both count, the score of a row is

    (words - mean of words) / deviation of words
    + (cosine - mean of cosines) / deviation of cosines
    + speaker + month

BM25 and cosines have no common unit. So each is counted in standard deviations from its mean over
all rows, and the other two signals are given in the same unit. For example, a row of the speaker
that is asked for gains as much as one whose cosine is two deviations higher.

Scores can be compared within one search only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .neighbours import NeighbourSmoothing
from .scores import standard_scores
from .weights import SignalWeights

EXCLUDED = -math.inf
"""The score of a row that cannot be a hit, e.g. of one without an entry."""
ANY_SCORE = float(np.finfo(np.float32).min)
"""As the lowest score of a hit: every row is a hit, except those that are `EXCLUDED`."""
POSITIVE_SCORE = float(np.finfo(np.float64).smallest_subnormal)
"""As the lowest score of a hit: every row that scores more than 0 is a hit."""
NO_HITS = math.inf
"""As the lowest score of a hit: no row is a hit."""


@dataclass(frozen=True)
class QueryScores:
    """How well each row of an index fits one query."""

    scores: np.ndarray
    """Shape [rows]; higher is better."""
    lowest_hit_score: float
    """A row that scores less is no hit; `NO_HITS` if no row is one."""
    similarity: np.ndarray | None = None
    """What words and cosines add to `scores`, shape [rows]; None if only one of them counts.

    A reranker takes the place of this part.
    """

    def masked(self, passes: np.ndarray | None) -> QueryScores:
        """Return scores by which only the rows that pass can be hits.

        Args:
            passes: Whether each row passes; None passes all.
        """
        if passes is None:
            return self
        return replace(self, scores=np.where(passes, self.scores, EXCLUDED))


def question_bonus(
    is_speaker: np.ndarray | None, month_nearness: np.ndarray | None, weights: SignalWeights
) -> np.ndarray | None:
    """Return what each row gains because a question asks for a speaker or a month, in deviations.

    Args:
        is_speaker: Whether each row is by a speaker that the question asks for; None if it asks for
            nobody's words.
        month_nearness: How near each row is to the months that the question names, from 0 to 1;
            None if it names none.
        weights: The weights of the index.

    Returns:
        Shape [rows]; None if the question asks for neither.
    """
    bonus: np.ndarray | None = None
    if is_speaker is not None:
        bonus = weights.speaker * is_speaker
    if month_nearness is not None:
        month_bonus = weights.month * month_nearness
        bonus = month_bonus if bonus is None else bonus + month_bonus
    return bonus


def score_by_words(
    word_scores: np.ndarray, bonus: np.ndarray | None, min_score: float
) -> QueryScores:
    """Score rows by words alone; only rows whose word score is above 0 are hits.

    Args:
        word_scores: BM25 of each row, with the shares of its neighbours.
        bonus: What `question_bonus` returned.
        min_score: What a hit scores at least, without the bonus.
    """
    lowest_hit_score = max(min_score, POSITIVE_SCORE)
    if bonus is None:
        return QueryScores(word_scores, lowest_hit_score)

    # The bonus is in deviations. It orders the hits by words, and makes no further hits.
    is_hit = word_scores >= lowest_hit_score
    scores = word_scores + bonus * word_scores.std()
    return QueryScores(np.where(is_hit, scores, 0), lowest_hit_score)


def score_by_cosines(cosines: np.ndarray, has_vector: bool, min_score: float) -> QueryScores:
    """Score rows by cosines alone.

    Args:
        cosines: The cosine of each row; -inf for a row without an entry.
        has_vector: Whether the query has a vector, which a blank one has not.
        min_score: What a hit scores at least.
    """
    lowest_hit_score = max(min_score, ANY_SCORE) if has_vector else NO_HITS
    return QueryScores(cosines, lowest_hit_score)


def score_by_words_and_cosines(
    *,
    word_scores: np.ndarray,
    cosines: np.ndarray,
    has_vector: bool,
    bonus: np.ndarray | None,
    smoothing: NeighbourSmoothing,
    min_score: float,
    weights: SignalWeights,
) -> QueryScores:
    """Score rows by the sum of all signals; see the formula at the top of the module.

    Args:
        word_scores: BM25 of each row, with the shares of its neighbours.
        cosines: The cosine of each row, without shares; -inf for a row without an entry.
        has_vector: Whether the query has a vector, which a blank one has not.
        bonus: What `question_bonus` returned.
        smoothing: Adds to cosines the shares of neighbours.
        min_score: Rows with a lower cosine of their own are no hits.
        weights: The weights of the index.
    """
    has_entry = cosines > -math.inf

    # A row without an entry counts as 0 here: even a share of 0 of -inf would be NaN.
    finite_cosines = np.where(has_entry, cosines, 0)
    smoothed_cosines = smoothing.smoothed(finite_cosines, factor=weights.neighbour_cosines)

    similarity = _sum_of_standard_scores(word_scores, smoothed_cosines, has_entry)
    similarity[cosines < min_score] = EXCLUDED
    scores = similarity if bonus is None else similarity + bonus

    has_hits = has_vector or word_scores.any()
    return QueryScores(
        scores=scores,
        lowest_hit_score=ANY_SCORE if has_hits else NO_HITS,
        similarity=similarity,
    )


def _sum_of_standard_scores(
    word_scores: np.ndarray, cosines: np.ndarray, has_entry: np.ndarray
) -> np.ndarray:
    """Return the sum of words and cosine of each row, each in standard deviations from its mean.

    A row without an entry is `EXCLUDED`, and counts for no mean.
    """
    if has_entry.all():
        # The usual case, in which no rows need to be picked out.
        return standard_scores(word_scores) + standard_scores(cosines)

    sums = np.full(len(cosines), EXCLUDED)
    standard_words = standard_scores(word_scores[has_entry])
    standard_cosines = standard_scores(cosines[has_entry])
    sums[has_entry] = standard_words + standard_cosines
    return sums
