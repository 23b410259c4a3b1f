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
    lowest = max(lowest, _bound_of_best(scores, limit))
    rows = np.flatnonzero(scores >= lowest)
    best_first = np.argsort(-scores[rows], kind="stable")
    return rows[best_first[:limit]]


def _bound_of_best(scores: np.ndarray, limit: int) -> float:
    """Return a score that at least `limit` rows reach; -inf if there are few rows.

    Sorting the rows that reach it is much cheaper than sorting all. Scores are laid out in columns,
    and only the best score of each column is looked at. These belong to different rows, so `limit`
    rows or more reach the `limit`-th best of them.
    """
    columns = len(scores) // _COLUMN_HEIGHT
    if columns <= limit:
        return -math.inf

    table = scores[: _COLUMN_HEIGHT * columns].reshape(_COLUMN_HEIGHT, columns)
    column_bests = table.max(axis=0)
    place = columns - limit
    return float(np.partition(column_bests, place)[place])
