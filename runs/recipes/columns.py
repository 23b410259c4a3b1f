"""Columns of our tables: a name, and what it reads off the evaluations of a variant.

Over several seeds a cell is the mean and, behind "±", the standard deviation over the seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..results import Evaluation, mean
from ..statistics import interval
from .tables import Cell

Value = Callable[[Evaluation], float | None]


@dataclass(frozen=True)
class Made:
    """A variant and its evaluations."""

    label: str
    evaluations: tuple[Evaluation, ...]
    """One per seed, all on the same questions."""

    @property
    def evaluation(self) -> Evaluation:
        """That of the first seed."""
        return self.evaluations[0]

    def mean(self, value: Value) -> float | None:
        """Mean over the seeds; None where no seed has a value."""
        return mean([found for each in self.evaluations if (found := value(each)) is not None])

    def spread(self, value: Value) -> float | None:
        """Standard deviation over the seeds; None with fewer than two."""
        found = [each for each in map(value, self.evaluations) if each is not None]
        return statistics.stdev(found) if len(found) > 1 else None

    def per_query(self, name: str) -> float:
        """Mean of a count of the recall, e.g. "calls" or "facts"."""
        rows = [row for each in self.evaluations for row in each.rows]
        return sum(row.recall_counts.get(name, 0) for row in rows) / len(rows) if rows else 0.0


@dataclass(frozen=True)
class Column:
    """A column of our tables."""

    name: str
    value: Value
    digits: int = 3
    size: Value | None = None
    """Questions behind a cell; where a column has it, our table begins with a row of them."""

    def cell(self, made: Made) -> Cell:
        """The text of a cell; None where there is nothing to show."""
        found, spread = made.mean(self.value), made.spread(self.value)
        if found is None:
            return None
        return f"{found:,.{self.digits}f}" + ("" if spread is None else f" ± {spread:,.{self.digits}f}")


def score(name: str = "score") -> Column:
    """The headline score."""
    return Column(name, lambda found: found.score, size=lambda found: float(found.n))


def questions(name: str = "n") -> Column:
    """Questions behind the headline score."""
    return Column(name, lambda found: float(found.n), 0)


def part(key: str, name: str = "") -> Column:
    """A part of the metric, e.g. "f1"."""
    return Column(name or key.replace("_", " "), lambda found: found.metrics().get(key))


def over_all(key: str, name: str = "", digits: int = 3) -> Column:
    """A metric of all answers together, e.g. "Overall F1"; empty if not measured."""
    return Column(name or key, lambda found: found.aggregate.get(key), digits)


def category(key: str, name: str = "") -> Column:
    """The score of one category; empty if it has no question, and then n is 0."""

    def value(found: Evaluation) -> float | None:
        return found.by_category().get(key, {}).get("score")

    def size(found: Evaluation) -> float:
        return float(found.by_category().get(key, {}).get("n", 0))

    return Column(name or key, value, size=size)


def tokens(name: str = "context tokens") -> Column:
    """Mean length of the recalled context of a question."""
    return Column(name, lambda found: found.context()["tokens"] if found.n else None, 0)


def count(key: str, name: str = "", digits: int = 2) -> Column:
    """Mean of a count of the recall, e.g. "calls"."""

    def value(found: Evaluation) -> float | None:
        return mean([float(row.recall_counts.get(key, 0)) for row in found.rows])

    return Column(name or key, value, digits)


def calls(name: str = "LM calls") -> Column:
    """Calls of the task model in the whole evaluation, writing included where this variant wrote the memories."""
    return Column(name, lambda found: float(found.calls.get("task", 0)), 0)


def interval_cell(made: Made) -> str:
    """95 % interval of the score, of each question's mean over the seeds."""
    found = interval(*_by_question(made.evaluations))
    return "-" if found is None else f"[{found.low:.3f}, {found.high:.3f}]"


def _by_question(evaluations: Sequence[Evaluation]) -> tuple[list[float], list[str]]:
    scores: dict[str, list[float]] = {}
    groups: dict[str, str] = {}
    for row in (row for each in evaluations for row in each.counted):
        scores.setdefault(row.id, []).append(row.score)
        groups[row.id] = row.group
    return [sum(found) / len(found) for found in scores.values()], list(groups.values())
