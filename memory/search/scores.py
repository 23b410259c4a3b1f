"""Arithmetic of scores: how far each is from the mean, and which rows have the best."""

from __future__ import annotations

import math

import numpy as np

_MIN_DEVIATION = 1e-9
"""A smaller standard deviation comes from rounding: the scores are equal."""
_COLUMN_HEIGHT = 16
"""How many scores share a column when the best ones are narrowed down."""


def standard_scores(scores: np.ndarray) -> np.ndarray:
    """Return how many standard deviations each score is above the mean; 0 if all are equal."""
    if len(scores) == 0:
        return np.zeros(0)

    differences = scores.astype(np.float64)
    differences -= differences.mean()
    deviation = differences.std()
    if deviation > _MIN_DEVIATION:
        return differences / deviation
    return np.zeros_like(differences)


def best_rows(scores: np.ndarray, lowest: float, limit: int) -> np.ndarray:
    """Return the rows with the best scores, best first; of equal ones the first row comes first.

    Args:
        scores: One score for each row.
        lowest: The least score that counts.
        limit: The most rows to return.
    """
    # Sorting is slow. So leave out most rows that cannot be among the best before it.
    lowest = max(lowest, _lower_bound_of_best(scores, limit))
    rows = np.flatnonzero(scores >= lowest)
    best_first = np.argsort(-scores[rows], kind="stable")
    return rows[best_first[:limit]]


def _lower_bound_of_best(scores: np.ndarray, limit: int) -> float:
    """Return a number that at least `limit` scores reach, without sorting all scores.

    Scores are laid out in columns, and only the best score of each column is looked at. These
    belong to different rows. So if the third best of them is 0.8, at least three rows score 0.8 or
    more.

    Returns:
        The bound; -inf if there are too few scores for more than `limit` columns.
    """
    column_count = len(scores) // _COLUMN_HEIGHT
    if column_count <= limit:
        return -math.inf

    # Scores at the end that do not fill another row of the table are left out. They can only be
    # further ones that reach the bound.
    table = scores[: _COLUMN_HEIGHT * column_count].reshape(_COLUMN_HEIGHT, column_count)
    column_bests = table.max(axis=0)

    # The index of the bound if the column bests were sorted, lowest first. `np.partition` puts the
    # right number there without sorting the rest.
    bound_index = column_count - limit
    return float(np.partition(column_bests, bound_index)[bound_index])
