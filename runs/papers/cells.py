"""A variant's evaluations, one for each seed, and the cells of a table that they give.

Users are resampled where there are enough, else questions; a metric of all answers together is computed again for each
draw. Over several seeds a cell is the mean, and its interval is of each question's mean over the seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..results import Evaluation
from ..row_metrics import mean
from ..rows import Row
from ..statistics import MIN_GROUPS, Difference, bootstrap_interval, compare_paired_scores
from .paper import Column

Aggregate = Callable[[Sequence[Row]], Mapping[str, float]]
"""Metrics of all answers together, e.g. `Scorer.aggregate`."""
Each = Callable[[Row], float | None]
"""What a question adds to a mean; None where it is no part of it."""

DRAWS = 200
"""Draws behind the interval of a metric of all answers: each computes it anew."""


@dataclass(frozen=True)
class Cell:
    """A number, the questions behind it, and how sure it is."""

    value: float | None
    """None where there is nothing to show."""
    digits: int = 3
    n: int = 0
    interval: tuple[float, float] | None = None
    """95 % interval; None where there is too little to resample."""
    unit: str = ""
    """What was resampled: "group" (users, conversations) or "question"."""
    spread: float | None = None
    """Standard deviation over the seeds; None with one."""
    printed: tuple[str | int | float | None, ...] = ()
    """The paper's cells that stand beside it."""

    def in_points(self) -> Cell:
        """Return a cell that holds a share, from 0 to 1, as one that holds points, from 0 to 100."""
        return replace(
            self,
            value=None if self.value is None else 100 * self.value,
            digits=max(0, self.digits - 2),
            interval=None if self.interval is None else (100 * self.interval[0], 100 * self.interval[1]),
            spread=None if self.spread is None else 100 * self.spread,
        )


@dataclass(frozen=True)
class VariantResult:
    """A variant and its evaluations."""

    label: str
    evaluations: tuple[Evaluation, ...]
    """One per seed, all on the same questions."""
    runs: tuple[Path, ...] = ()
    """Their folders."""
    aggregate: Aggregate | None = field(default=None, compare=False)
    """Computes the metrics of all answers together."""

    @property
    def evaluation(self) -> Evaluation:
        """That of the first seed."""
        return self.evaluations[0]

    def cell(self, column: Column, printed: tuple[str | int | float | None, ...] = ()) -> Cell:
        """The cell of a column."""
        values = [found for each in self.evaluations if (found := _value(column, each)) is not None]
        rows = self.evaluation.rows
        if not values:
            return Cell(None, column.digits, 0, printed=printed)
        spread = statistics.stdev(values) if len(values) > 1 else None
        each = _each(column)
        n, span, unit = len(rows), None, ""
        if column.of == "metric":
            span, unit = self._drawn_interval(column.key)
        elif each is not None:
            n, means = sum(each(row) is not None for row in rows), self._by_id(each)
            found = bootstrap_interval(list(means.values()), [self._groups[id] for id in means])
            span, unit = (None, "") if found is None else ((found.low, found.high), found.unit)
        return Cell(sum(values) / len(values), column.digits, n, span, unit, spread, printed)

    def difference(self, own: VariantResult) -> Difference:
        """How this variant did against the section's own one on the questions that both were asked."""
        before, after = own._by_id(_counted), self._by_id(_counted)
        shared = [id for id in before if id in after]
        groups = [self._groups[id] for id in shared]
        return compare_paired_scores([after[id] for id in shared], [before[id] for id in shared], groups)

    @cached_property
    def _groups(self) -> dict[str, str]:
        return {row.id: row.group for evaluation in self.evaluations for row in evaluation.rows}

    def _by_id(self, each: Each) -> dict[str, float]:
        values: dict[str, list[float]] = {}
        for row in (row for evaluation in self.evaluations for row in evaluation.rows):
            value = each(row)
            if value is not None:
                values.setdefault(row.id, []).append(value)
        return {id: sum(found) / len(found) for id, found in values.items()}

    def _drawn_interval(self, key: str) -> tuple[tuple[float, float] | None, str]:
        """The 95 % interval of a metric of all answers together, and what was drawn; None if most draws lack it."""
        unit, draws = self._draws
        values = [found[key] for found in draws if key in found]
        if len(values) <= DRAWS / 2:
            return None, ""
        low, high = np.quantile(np.asarray(values, dtype=float), [0.025, 0.975])
        return (float(low), float(high)), unit

    @cached_property
    def _draws(self) -> tuple[str, list[dict[str, float]]]:
        by_group = len({row.group for row in self.evaluation.rows}) >= MIN_GROUPS
        unit, draws = "group" if by_group else "question", list[dict[str, float]]()
        if self.aggregate is None or len(self.evaluation.rows) < 2:
            return unit, draws
        parts: list[dict[str, list[Row]]] = []
        for evaluation in self.evaluations:
            parts.append({})
            for row in evaluation.rows:
                parts[-1].setdefault(row.group if by_group else row.id, []).append(row)
        rng, units = np.random.default_rng(0), sorted(parts[0])
        for _ in range(DRAWS):
            chosen = [units[n] for n in rng.integers(len(units), size=len(units))]
            found = [self.aggregate([row for name in chosen for row in part.get(name, ())]) for part in parts]
            draws.append({key: sum(each.get(key, 0.0) for each in found) / len(found) for key in found[0]})
        return unit, draws


def _value(column: Column, found: Evaluation) -> float | None:
    if column.of == "metric":
        return found.aggregate.get(column.key)
    if column.of in ("minutes", "seconds"):
        if found.construction is None or not found.histories:
            return None
        seconds = found.construction.seconds / found.histories
        return seconds / 60 if column.of == "minutes" else seconds
    if column.of == "memory_words":
        return found.memory_words
    if column.of == "refused":
        total = sum(found.operations.values())
        return 100 * found.operations.get("refused", 0) / total if total else None
    each = _each(column)
    return None if each is None else mean([value for row in found.rows if (value := each(row)) is not None])


def _each(column: Column) -> Each | None:
    key = column.key
    kinds: dict[str, Each] = {
        "score": _counted,
        "category": lambda row: row.score if row.category == key else None,
        "part": lambda row: row.parts.get(key) if row.in_headline and column.category in ("", row.category) else None,
        "count": lambda row: float(row.recall_counts.get(key, 0)),
        "tokens": lambda row: float(row.context_tokens) if row.in_headline else None,
        "calls": lambda row: float(row.calls),
    }
    return kinds.get(column.of)


def _counted(row: Row) -> float | None:
    return row.score if row.in_headline else None
