"""Add the signals of a search to one score for each row of an index.

| signal | how well a row fits by it | unit |
|---|---|---|
| words | BM25, with shares of the BM25 of neighbouring turns | none, 0 for no hit |
| cosines | the cosine of the most similar passage, with shares of neighbours' | from -1 to 1 |
| speaker | `SignalWeights.speaker` if the question asks for the words of its speaker | deviations |
| month | `SignalWeights.month`, or a share of it, if the question names its month | deviations |

Where words and cosines both count, the score of a row is

    (words - mean of words) / deviation of words
    + SignalWeights.cosines * (cosine - mean of cosines) / deviation of cosines
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
"""The score of a row that must never be a hit, e.g. of one without an entry."""

# Values for `QueryScores.lowest_hit_score`, the least score of a hit.
ANY_SCORE = float(np.finfo(np.float32).min)
"""The lowest finite number: every row is a hit, except those that are `EXCLUDED`."""
POSITIVE_SCORE = float(np.finfo(np.float64).smallest_subnormal)
"""The smallest number above 0: every row that scores more than 0 is a hit."""
NO_HITS = math.inf
"""No score reaches infinity, so no row is a hit."""


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
        """Return the same scores, but with the rows that do not pass a filter excluded.

        Args:
            passes: Whether each row passes, shape [rows]; None if there is no filter.
        """
        if passes is None:
            return self
        return replace(self, scores=np.where(passes, self.scores, EXCLUDED))


def question_bonus(
    is_speaker: np.ndarray | None, month_nearness: np.ndarray | None, weights: SignalWeights
) -> np.ndarray | None:
    """Return what each row gains by its speaker and its month, if a question asks for these.

    A row is an entry of the index. For "What did Ann say in May?" entries by Ann gain, and entries
    of May.

    Args:
        is_speaker: Whether each row is by a speaker that the question asks for; None if it asks for
            nobody's words.
        month_nearness: How near each row is to the months that the question names, from 0 to 1;
            None if it names none.
        weights: The weights of the search.

    Returns:
        The gains in standard deviations of a score, shape [rows]; None if nothing is asked for.
    """
    bonus: np.ndarray | None = None
    if is_speaker is not None:
        bonus = weights.speaker * is_speaker
    if month_nearness is not None:
        month_bonus = weights.month * month_nearness
        bonus = month_bonus if bonus is None else bonus + month_bonus
    return bonus


def score_by_words(
    word_scores: np.ndarray,
    bonus: np.ndarray | None,
    min_score: float,
    is_filled: np.ndarray | None = None,
) -> QueryScores:
    """Score the rows of an index by the words that they share with a query, not by vectors.

    Args:
        word_scores: How well the words of each row match (BM25), with the shares of its neighbours.
        bonus: What each row gains by its speaker and month, from `question_bonus`; None if nothing.
        min_score: The least score of a hit, without the bonus.
        is_filled: Whether each row has an entry; None if all have.
    """
    # A row that scores 0 has no word of the query, so it is no hit even if `min_score` is 0.
    lowest_hit_score = max(min_score, POSITIVE_SCORE)
    if bonus is None:
        return QueryScores(word_scores, lowest_hit_score)

    # The bonus only changes the order of the hits. Rows that are no hits by their words score 0.
    # The bonus is in standard deviations, so it is multiplied with that of the word scores. Rows
    # without an entry do not count: how many there are depends on what was searched before.
    entry_scores = word_scores if is_filled is None else word_scores[is_filled]
    is_hit = word_scores >= lowest_hit_score
    scores = word_scores + bonus * entry_scores.std()
    return QueryScores(np.where(is_hit, scores, 0), lowest_hit_score)


def score_by_cosines(cosines: np.ndarray, has_vector: bool, min_score: float) -> QueryScores:
    """Score the rows of an index by the similarity of their vectors to that of a query.

    Args:
        cosines: The similarity of each row, from -1 to 1; -inf for a row without an entry.
        has_vector: Whether the query has a vector; a query without words has none.
        min_score: The least score of a hit; -inf if every score will do.
    """
    if not has_vector:
        return QueryScores(cosines, NO_HITS)

    # A row without an entry scores -inf. It must not be a hit even if `min_score` is -inf, so let
    # the least score of a hit be a finite number.
    lowest_hit_score = max(min_score, ANY_SCORE)
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
    """Score the rows of an index by words and vectors together, and by speaker and month.

    Words and cosines are each counted in standard deviations from their mean, and added; see the
    formula at the top of the module.

    Args:
        word_scores: How well the words of each row match (BM25), with the shares of its neighbours.
        cosines: The similarity of the vectors of each row and the query, without shares of
            neighbours; -inf for a row without an entry.
        has_vector: Whether the query has a vector; a query without words has none.
        bonus: What each row gains by its speaker and month, from `question_bonus`; None if nothing.
        smoothing: Gives each turn of a dialogue a share of the cosines of the turns around it.
        min_score: Rows with a lower value in `cosines` are no hits.
        weights: The weights of the search.
    """
    has_entry = cosines > -math.inf

    # A row without an entry counts as 0 here: even a share of 0 of -inf would be NaN.
    finite_cosines = np.where(has_entry, cosines, 0)
    smoothed_cosines = smoothing.smoothed(finite_cosines, factor=weights.neighbour_cosines)

    similarity = _sum_of_standard_scores(
        word_scores, smoothed_cosines, has_entry, cosine_weight=weights.cosines
    )
    similarity[cosines < min_score] = EXCLUDED
    scores = similarity if bonus is None else similarity + bonus

    # A query without words is similar to nothing.
    has_hits = has_vector or word_scores.any()
    return QueryScores(
        scores=scores,
        lowest_hit_score=ANY_SCORE if has_hits else NO_HITS,
        similarity=similarity,
    )


def _sum_of_standard_scores(
    word_scores: np.ndarray, cosines: np.ndarray, has_entry: np.ndarray, cosine_weight: float
) -> np.ndarray:
    """Add the word score and the cosine of each row, each in standard deviations from its mean.

    BM25 and cosines have no common unit, so they cannot be added as they are. Rows without an entry
    get the score `EXCLUDED`, and count for no mean.
    """
    if has_entry.all():
        # The usual case, in which no rows need to be picked out.
        return standard_scores(word_scores) + cosine_weight * standard_scores(cosines)

    sums = np.full(len(cosines), EXCLUDED)
    standard_words = standard_scores(word_scores[has_entry])
    standard_cosines = standard_scores(cosines[has_entry])
    sums[has_entry] = standard_words + cosine_weight * standard_cosines
    return sums
