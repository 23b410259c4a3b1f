"""Means and other figures of many rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .rows import SHOWN_RECALL, Row


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    known_values = [value for value in values if value is not None]
    if not known_values:
        return None
    return sum(known_values) / len(known_values)


def mean_parts(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean of every part of the metric, over the rows that have it."""
    means: dict[str, float] = {}
    for row in rows:
        for name in row.parts:
            if name not in means:
                means[name] = mean(other.parts.get(name) for other in rows) or 0.0
    return means


def mean_recall(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean of every kind of evidence recall, over the rows that name evidence.

    A row of which only the plain search is known, and not what the prompt showed, had a context of
    summaries, which name no turns. If all contexts are like this, nothing is said about what
    prompts showed. If the method names turns in other contexts, such a context shows no evidence.
    """
    labelled_rows = [row for row in rows if row.recall]
    means: dict[str, float] = {}
    for row in labelled_rows:
        for name in row.recall:
            if name not in means:
                means[name] = mean(other.recall.get(name) for other in labelled_rows) or 0.0

    is_shown_partly = any(SHOWN_RECALL not in row.recall for row in labelled_rows)
    if SHOWN_RECALL in means and is_shown_partly:
        del means[SHOWN_RECALL]
        if any(row.hits and SHOWN_RECALL in row.recall for row in labelled_rows):
            shown_total = sum(row.recall.get(SHOWN_RECALL, 0.0) for row in labelled_rows)
            means = {SHOWN_RECALL: shown_total / len(labelled_rows), **means}

    # A system that never says what an answer rests on has no recall.
    if set(means) == {SHOWN_RECALL} and not any(row.sources for row in labelled_rows):
        return {}
    return means


def search_times(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return how long one recall searches, in milliseconds.

    Returns:
        "p50" and "p95": the median and the 95th percentile of the time; "cpu": the mean CPU time.
        All are None if nothing was searched.
    """
    times = [row.search for row in rows if row.search is not None]
    median: float | None = None
    percentile_95: float | None = None
    if times:
        median, percentile_95 = np.percentile(times, (50, 95)).tolist()
    return {"p50": median, "p95": percentile_95, "cpu": mean(row.search_cpu for row in rows)}
