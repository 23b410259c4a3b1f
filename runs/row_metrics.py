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
    """Return the mean of every kind of evidence recall, over the rows whose evidence is known.

    `SHOWN_RECALL` is the share of the evidence that the prompt showed. Kinds such as "recall@5" are
    the share that a plain search of the memory finds.
    """
    labelled_rows = [row for row in rows if row.recall]
    means = _means_by_kind(labelled_rows)

    # A row without `SHOWN_RECALL` had a context of summaries alone, which name no turns. The mean
    # over the other rows would ignore it.
    if any(SHOWN_RECALL not in row.recall for row in labelled_rows):
        means.pop(SHOWN_RECALL, None)
        shown_recall = _mean_shown_recall(labelled_rows)
        if shown_recall is not None:
            means = {SHOWN_RECALL: shown_recall, **means}

    # A user's own system has this kind alone. If it never names a turn, its recall is unknown.
    if set(means) == {SHOWN_RECALL} and not any(row.sources for row in labelled_rows):
        return {}
    return means


def _means_by_kind(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean of every kind of evidence recall, over the rows that have this kind."""
    means: dict[str, float] = {}
    for row in rows:
        for kind in row.recall:
            if kind not in means:
                means[kind] = mean(other.recall.get(kind) for other in rows) or 0.0
    return means


def _mean_shown_recall(rows: Sequence[Row]) -> float | None:
    """Return the mean share of the evidence that prompts showed, if some showed only summaries.

    If the method names turns in any context, a context of summaries shows no evidence and counts as
    0. If it never does, nothing is known of what its prompts showed, and the result is None.
    """
    names_turns = any(row.hits and SHOWN_RECALL in row.recall for row in rows)
    if not names_turns:
        return None
    return sum(row.recall.get(SHOWN_RECALL, 0.0) for row in rows) / len(rows)


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
