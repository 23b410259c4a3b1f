"""Add the signals of a search to one score for each row of an index.

| signal | how well a row fits by it | unit |
|---|---|---|
| words | BM25, with what the neighbours of a turn in its dialogue lend it | none, 0 for no hit |
| cosines | the cosine of the nearest passage, with what neighbours lend | from -1 to 1 |
| speaker | `SignalWeights.speaker` if the question asks for the words of its speaker | deviations |
| month | `SignalWeights.month`, or a share of it, if the question names its month | deviations |

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

ANY_SCORE = float(np.finfo(np.float32).min)
"""Lower than every score and every cosine, but not than the -inf of a row that is no hit."""
POSITIVE_SCORE = float(np.finfo(np.float64).smallest_subnormal)
"""The lowest score above 0."""


@dataclass(frozen=True)
class QueryScores:
    """How well each row of an index fits one query."""

    scores: np.ndarray
    """Shape [rows]; higher is better."""
    lowest_hit_score: float
    """A row that scores less is no hit; infinity if there are no hits."""
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
        return replace(self, scores=np.where(passes, self.scores, -math.inf))


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
    """Score rows by words alone; only those that share a word with the query are hits.

    Args:
        word_scores: BM25 of each row, with what neighbours lend.
        bonus: What `question_bonus` returned.
        min_score: What a hit scores at least, without the bonus.
    """
    lowest_hit_score = max(min_score, POSITIVE_SCORE)
    if bonus is None:
        return QueryScores(word_scores, lowest_hit_score)

    is_hit = word_scores > max(min_score, 0)
    with_bonus = word_scores + bonus * word_scores.std()
    return QueryScores(np.where(is_hit, with_bonus, 0), lowest_hit_score)


def score_by_cosines(cosines: np.ndarray, has_vector: bool, min_score: float) -> QueryScores:
    """Score rows by cosines alone.

    Args:
        cosines: The cosine of each row; -inf for a row without an entry.
        has_vector: Whether the query has a vector, which a blank one has not.
        min_score: What a hit scores at least.
    """
    lowest_hit_score = max(min_score, ANY_SCORE) if has_vector else math.inf
    return QueryScores(cosines, lowest_hit_score)


def score_by_words_and_cosines(
    word_scores: np.ndarray,
    cosines: np.ndarray,
    has_vector: bool,
    bonus: np.ndarray | None,
    smoothing: NeighbourSmoothing,
    min_score: float,
    weights: SignalWeights,
) -> QueryScores:
    """Score rows by the sum of all signals.

    Args:
        word_scores: BM25 of each row, with what neighbours lend.
        cosines: The cosine of each row; -inf for a row without an entry.
        has_vector: Whether the query has a vector, which a blank one has not.
        bonus: What `question_bonus` returned.
        smoothing: Lends cosines between neighbours.
        min_score: Rows with a lower cosine are no hits.
        weights: The weights of the index.
    """
    has_entry = cosines >= ANY_SCORE
    smoothed_cosines = np.where(has_entry, cosines, 0)
    smoothing.add_shares(smoothed_cosines, factor=weights.neighbour_cosines)

    # Rows without an entry may not shift the means. A slice takes all rows without a copy.
    counted = slice(None) if has_entry.all() else has_entry
    similarity = np.full(len(cosines), -math.inf)
    standard_words = standard_scores(word_scores[counted])
    standard_cosines = standard_scores(smoothed_cosines[counted])
    similarity[counted] = standard_words + standard_cosines
    similarity[cosines < min_score] = -math.inf

    scores = similarity if bonus is None else similarity + bonus
    has_hits = has_vector or word_scores.any()
    return QueryScores(scores, ANY_SCORE if has_hits else math.inf, similarity)
