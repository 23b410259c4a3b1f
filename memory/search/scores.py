"""Arithmetic of scores: how far each is from the mean, and which rows have the best."""

from __future__ import annotations

import math

import numpy as np

_MIN_DEVIATION = 1e-9
"""A smaller standard deviation comes from rounding: the scores are equal."""
_COLUMN_HEIGHT = 16
"""How many scores share a column when the best ones are narrowed down."""


def standard_scores(scores: np.ndarray) -> np.ndarray:
    """Return how many standard deviations each score is above the mean of all; negative below it.

    Scores of different kinds can be added in this unit. If all scores are equal, all results are 0.
    """
    if len(scores) == 0:
        return np.zeros(0)

    differences = scores.astype(np.float64)
    differences -= differences.mean()
    deviation = differences.std()
    if deviation > _MIN_DEVIATION:
        return differences / deviation
    return np.zeros_like(differences)


def best_rows(scores: np.ndarray, lowest: float, limit: int) -> np.ndarray:
    """Return the numbers of the rows with the best scores, best first.

    Of rows with equal scores, the row with the lowest number comes first.

    Args:
        scores: One score for each row.
        lowest: Rows with a lower score are left out.
        limit: The most rows to return.
    """
    # Sorting is slow. So before it, leave out most rows that cannot be among the best.
    lowest = max(lowest, _lower_bound_of_best(scores, limit))
    rows = np.flatnonzero(scores >= lowest)
    best_first = np.argsort(-scores[rows], kind="stable")
    return rows[best_first[:limit]]


def _lower_bound_of_best(scores: np.ndarray, limit: int) -> float:
    """Find a score that at least `limit` scores reach, without sorting all: lower ones cannot win.

    The scores are arranged as a table, and the best score of each column is taken. For example, if
    the third best of these is 0.8, at least three scores are 0.8 or more.

    Returns:
        The bound; -inf if there are too few scores to find one.
    """
    column_count = len(scores) // _COLUMN_HEIGHT
    if column_count <= limit:
        return -math.inf

    # Scores at the end that do not fill another line of the table are left out. If they reach the
    # bound as well, it still holds.
    table = scores[: _COLUMN_HEIGHT * column_count].reshape(_COLUMN_HEIGHT, column_count)
    column_bests = table.max(axis=0)

    # For a `limit` of 3, the bound is the third best of the column bests. If these were sorted,
    # lowest first, it would stand at `bound_index`. `np.partition` puts it there without sorting.
    bound_index = column_count - limit
    return float(np.partition(column_bests, bound_index)[bound_index])
