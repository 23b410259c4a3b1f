"""A variant and its evaluations, one per seed, and what is drawn from their questions again and again.

Made ── by_question ──> a value per question and its user, for the intervals of means
└─ drawn ────────> metrics of all answers together on questions drawn with replacement
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..results import Evaluation, Row, mean
from ..statistics import MIN_GROUPS

Value = Callable[[Evaluation], float | None]
Aggregate = Callable[[Sequence[Row]], Mapping[str, float]]
"""Metrics of all answers together, e.g. `Scorer.aggregate`."""

DRAWS = 200
"""Draws behind the interval of a metric of all answers: each computes it anew."""


@dataclass(frozen=True)
class Drawn:
    """Metrics of all answers together, over questions drawn with replacement."""

    values: Mapping[str, Sequence[float]]
    """By metric, one for every draw that has it."""
    unit: str

    def interval(self, key: str) -> tuple[tuple[float, float] | None, str]:
        """The 95 % interval of a metric and what was drawn; None where it could not be computed in most draws."""
        values = self.values.get(key, ())
        if len(values) <= DRAWS / 2:
            return None, ""
        low, high = np.quantile(np.asarray(values, dtype=float), [0.025, 0.975])
        return (float(low), float(high)), self.unit


@dataclass(frozen=True)
class Made:
    """A variant and its evaluations."""

    label: str
    evaluations: tuple[Evaluation, ...]
    """One per seed, all on the same questions."""
    aggregate: Aggregate | None = field(default=None, compare=False)
    """Computes the metrics of all answers together."""

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

    def by_question(self, each: Callable[[Row], float | None]) -> tuple[list[float], list[str]]:
        """A value per question that has one, its mean over the seeds, and the question's user."""
        found = self.by_id(each)
        groups = {row.id: row.group for evaluation in self.evaluations for row in evaluation.rows}
        return list(found.values()), [groups[id] for id in found]

    def by_id(self, each: Callable[[Row], float | None]) -> dict[str, float]:
        """A value per question that has one, its mean over the seeds, by the question's id."""
        values: dict[str, list[float]] = {}
        for row in (row for evaluation in self.evaluations for row in evaluation.rows):
            value = each(row)
            if value is not None:
                values.setdefault(row.id, []).append(value)
        return {id: sum(found) / len(found) for id, found in values.items()}

    @cached_property
    def drawn(self) -> Drawn:
        """Metrics of all answers together on questions drawn with replacement, users whole where there are enough."""
        groups = {row.group for row in self.evaluation.rows}
        unit = "group" if len(groups) >= MIN_GROUPS else "question"
        if self.aggregate is None or len(self.evaluation.rows) < 2:
            return Drawn({}, unit)
        rng, values = np.random.default_rng(0), dict[str, list[float]]()
        units = sorted({_unit(row, unit) for row in self.evaluation.rows})
        parts = [_by_unit(each, unit) for each in self.evaluations]
        for _ in range(DRAWS):
            chosen = [units[n] for n in rng.integers(len(units), size=len(units))]
            found = [self.aggregate([row for name in chosen for row in part.get(name, ())]) for part in parts]
            for key in found[0]:
                values.setdefault(key, []).append(sum(each.get(key, 0.0) for each in found) / len(found))
        return Drawn(values, unit)


def _unit(row: Row, unit: str) -> str:
    return row.group if unit == "group" else row.id


def _by_unit(evaluation: Evaluation, unit: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in evaluation.rows:
        found.setdefault(_unit(row, unit), []).append(row)
    return found
