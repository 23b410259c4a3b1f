"""Means and other figures of many rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .rows import SHOWN_RECALL, Row


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    known_values = [value for value in values if value is not None]
    if not known_values:
        return None
    return sum(known_values) / len(known_values)


def counted_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a category that are in the headline score; all if none of them is.

    Most benchmarks leave whole categories out. By the metric `support`, single questions that
    cannot be answered are left out, and would pull down the mean of their category.
    """
    return [row for row in rows if row.in_headline] or list(rows)


def mean_parts(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean of every part of the metric, over the rows that have it."""
    return _means_by_name([row.parts for row in rows])


def mean_recall(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean of every kind of evidence recall, over the rows whose evidence is known.

    `SHOWN_RECALL` is the share of the evidence that the prompt showed. Kinds such as "recall@5" are
    the share that a plain search of the memory finds.
    """
    labelled_rows = [row for row in rows if row.recall]
    means = _means_by_name([row.recall for row in labelled_rows])

    # This kind has a rule of its own for rows without it.
    means.pop(SHOWN_RECALL, None)
    shown_recall = _mean_shown_recall(labelled_rows)
    if shown_recall is not None:
        means = {SHOWN_RECALL: shown_recall, **means}

    # Of a user's own system, whose searches cost something, only the shown recall is measured. The
    # system need not say from which turns its entries come. If it never does, its recall is not 0,
    # but unknown.
    is_only_shown = means.keys() == {SHOWN_RECALL}
    names_turns = any(row.sources for row in labelled_rows)
    if is_only_shown and not names_turns:
        return {}
    return means


def _means_by_name(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every figure, over the mappings that have it."""
    values_by_name: dict[str, list[float]] = {}
    for values in figures:
        for name, value in values.items():
            values_by_name.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in values_by_name.items()}


def _mean_shown_recall(rows: Sequence[Row]) -> float | None:
    """Return the mean share of the evidence that the prompts showed; None if it is not known.

    The recall of a prompt is not known if it showed only summaries, since these name no turns. Such
    a row has no `SHOWN_RECALL`. What it counts depends on the method:

    - A method that shows turns in some prompts showed none in this one, so the row counts as 0.
    - A method that shows turns in no prompt has no recall that could be measured: the result is
      None.

    Args:
        rows: Rows of questions whose evidence is known.
    """
    if not rows:
        return None

    rows_with_recall = [row for row in rows if SHOWN_RECALL in row.recall]
    some_show_summaries = len(rows_with_recall) < len(rows)
    # A prompt without any recalled entry has a recall of 0, but it shows no turns either.
    some_show_turns = any(row.hits > 0 for row in rows_with_recall)
    if some_show_summaries and not some_show_turns:
        return None

    recalls = [row.recall.get(SHOWN_RECALL, 0.0) for row in rows]
    return sum(recalls) / len(recalls)


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
