"""Columns of our tables: a name, and what it reads off the evaluations of a variant.

A cell has the questions behind it and a 95 % interval. Users are resampled where there are enough, else questions
(`statistics`); a metric of all answers together is computed again for each draw. Over several seeds a cell is the mean
and, behind "±", the standard deviation over the seeds, and its interval is of each question's mean over the seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ..results import Evaluation, Row, mean
from ..statistics import interval
from .made import Made, Value
from .tables import Cell, Measured

Each = Callable[[Row], float | None]
"""What a question adds to a mean; None where it is no part of it."""


@dataclass(frozen=True)
class Column:
    """A column of our tables; one that has neither `each` nor `key` has no interval."""

    name: str
    value: Value
    digits: int = 3
    each: Each | None = None
    """Whose mean over the questions it is."""
    key: str = ""
    """The metric of all answers together that it is."""

    @classmethod
    def mean(cls, name: str, each: Each, digits: int = 3) -> Column:
        """A mean over questions; empty without any."""

        def value(found: Evaluation) -> float | None:
            return mean([value for row in found.rows if (value := each(row)) is not None])

        return cls(name, value, digits, each)

    def cell(self, made: Made) -> Cell:
        """A cell; None where there is nothing to show."""
        found = [value for each in made.evaluations if (value := self.value(each)) is not None]
        if not found:
            return None
        spread = statistics.stdev(found) if len(found) > 1 else None
        span, unit = self._interval(made)
        return Measured(sum(found) / len(found), self.digits, self.size(made), span, unit, spread)

    def size(self, made: Made) -> int:
        """Questions behind a cell."""
        rows = made.evaluation.rows
        return len(rows) if self.each is None else sum(self.each(row) is not None for row in rows)

    def _interval(self, made: Made) -> tuple[tuple[float, float] | None, str]:
        if self.each is None:
            return made.drawn.interval(self.key) if self.key else (None, "")
        found = interval(*made.by_question(self.each))
        return (None, "") if found is None else ((found.low, found.high), found.unit)


def score(name: str = "score") -> Column:
    """The headline score."""
    return Column.mean(name, lambda row: row.score if row.counts else None)


def questions(name: str = "n") -> Column:
    """Questions behind the headline score."""
    return Column(name, lambda found: float(found.n), 0)


def part(key: str, name: str = "") -> Column:
    """A part of the metric, e.g. "f1"."""
    return Column.mean(name or key.replace("_", " "), lambda row: row.parts.get(key) if row.counts else None)


def over_all(key: str, name: str = "", digits: int = 3) -> Column:
    """A metric of all answers together, e.g. "Overall F1"; empty if not measured."""
    return Column(name or key, lambda found: found.aggregate.get(key), digits, key=key)


def category(key: str, name: str = "") -> Column:
    """The score of one category; empty if it has no question, and then n is 0."""
    return Column.mean(name or key, lambda row: row.score if row.category == key else None)


def tokens(name: str = "context tokens") -> Column:
    """Mean length of the recalled context of a question."""
    return Column.mean(name, lambda row: float(row.context_tokens) if row.counts else None, 0)


def count(key: str, name: str = "", digits: int = 2) -> Column:
    """Mean of a count of the recall, e.g. "calls"."""
    return Column.mean(name or key, lambda row: float(row.recall_counts.get(key, 0)), digits)


def calls(name: str = "LM calls") -> Column:
    """Mean calls to recall and answer a question, wherever the answers came from."""
    return Column.mean(name, lambda row: float(row.calls), 2)


def interval_cell(made: Made) -> str:
    """95 % interval of the score, of each question's mean over the seeds."""
    found = interval(*made.by_question(lambda row: row.score if row.counts else None))
    return "-" if found is None else f"[{found.low:.3f}, {found.high:.3f}]"
