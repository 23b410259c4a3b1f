"""The cells of a variant, computed from its evaluations, of which there is one for each seed.

    result = VariantResult("RAG", (evaluation_of_seed_0, evaluation_of_seed_1))
    cell = result.cell(Column(name="all", of="score"), printed=(61.2,))
    # Cell(value=0.58, n=40, interval=CellInterval(low=0.47, high=0.69), unit="group", ...)

Over several seeds the value is the mean, and the interval is that of each question's mean over the
seeds. For the interval whole users (or conversations) are resampled if there are enough of them,
and single questions otherwise. A metric of all answers together, such as macro-F1, is computed anew
for each draw.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..results import Evaluation
from ..row_metrics import mean
from ..rows import Row
from ..statistics import MIN_GROUPS, Difference, Unit, bootstrap_interval, compare_paired_scores
from .paper import Column, PrintedCell

Aggregate = Callable[[Sequence[Row]], Mapping[str, float]]
"""Computes the metrics of all answers together, e.g. `Scorer.aggregate`."""

DRAWS = 200
"""Draws behind the interval of a metric of all answers: each computes the metric anew."""

_MEANS_OVER_QUESTIONS = (
    "score",
    "category",
    "part",
    "count",
    "tokens",
    "calls",
)
"""What columns show that is a mean of one value a question."""

_HEADLINE_SCORE = Column(name="score", of="score")


class CellInterval(NamedTuple):
    """A 95 % interval of a cell; JSON has it as a list."""

    low: float
    high: float


@dataclass(frozen=True)
class Cell:
    """A number of our table, the questions behind it, and how sure it is."""

    value: float | None
    """None where there is nothing to show."""
    digits: int = 3
    n: int = 0
    """The number of questions behind it."""
    interval: CellInterval | None = None
    """None where there is too little to resample."""
    unit: str = ""
    """What was resampled: "group" (users, conversations) or "question"."""
    spread: float | None = None
    """Standard deviation over the seeds; None with one."""
    printed: tuple[PrintedCell, ...] = ()
    """The paper's cells that stand beside it."""

    def in_points(self) -> Cell:
        """Return a cell that holds a share, from 0 to 1, as one that holds points, to 100."""
        interval = self.interval
        if interval is not None:
            interval = CellInterval(100 * interval.low, 100 * interval.high)
        return replace(
            self,
            value=None if self.value is None else 100 * self.value,
            digits=max(0, self.digits - 2),
            interval=interval,
            spread=None if self.spread is None else 100 * self.spread,
        )


@dataclass(frozen=True)
class _Resampling:
    """What resampling the questions of a variant says of one column."""

    n: int
    """The number of questions that the column is about."""
    interval: CellInterval | None = None
    unit: str = ""
    """What was resampled; "" without an interval."""


@dataclass(frozen=True)
class _MetricDraws:
    """The metrics of all answers together, for each draw of users or questions."""

    unit: Unit
    """What was drawn."""
    metrics: list[dict[str, float]]
    """One dictionary a draw; none where nothing can be drawn."""


@dataclass(frozen=True)
class VariantResult:
    """A variant and its evaluations."""

    label: str
    evaluations: tuple[Evaluation, ...]
    """One for each seed, all on the same questions."""
    runs: tuple[Path, ...] = ()
    """Their folders."""
    aggregate: Aggregate | None = field(default=None, compare=False)
    """Computes the metrics of all answers together; None where there are none."""

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the first seed."""
        return self.evaluations[0]

    def cell(self, column: Column, printed: tuple[PrintedCell, ...] = ()) -> Cell:
        """Return the cell of a column, with the paper's cells that stand beside it."""
        values: list[float] = []
        for evaluation in self.evaluations:
            value = _value_of_evaluation(column, evaluation)
            if value is not None:
                values.append(value)
        if not values:
            return Cell(value=None, digits=column.digits, printed=printed)

        resampling = self._bootstrap_column(column)
        return Cell(
            value=sum(values) / len(values),
            digits=column.digits,
            n=resampling.n,
            interval=resampling.interval,
            unit=resampling.unit,
            spread=statistics.stdev(values) if len(values) > 1 else None,
            printed=printed,
        )

    def difference(self, baseline: VariantResult) -> Difference:
        """Return the scores of this variant minus those of another one.

        Only the questions that both were asked are compared.
        """
        baseline_scores = baseline._means_by_question(_HEADLINE_SCORE)
        scores = self._means_by_question(_HEADLINE_SCORE)
        shared_questions = [question for question in baseline_scores if question in scores]
        return compare_paired_scores(
            [scores[question] for question in shared_questions],
            [baseline_scores[question] for question in shared_questions],
            [self._groups_by_question[question] for question in shared_questions],
        )

    @cached_property
    def _groups_by_question(self) -> dict[str, str]:
        """The user or conversation that each question is about."""
        groups: dict[str, str] = {}
        for evaluation in self.evaluations:
            for row in evaluation.rows:
                groups[row.id] = row.group
        return groups

    def _means_by_question(self, column: Column) -> dict[str, float]:
        """Return the mean over the seeds for each question that the column is about."""
        values_by_question: dict[str, list[float]] = {}
        for evaluation in self.evaluations:
            for row in evaluation.rows:
                value = _value_of_question(column, row)
                if value is not None:
                    values_by_question.setdefault(row.id, []).append(value)
        return {
            question: sum(values) / len(values) for question, values in values_by_question.items()
        }

    def _bootstrap_column(self, column: Column) -> _Resampling:
        """Return the bootstrap interval of a column, and the number of questions behind it."""
        rows = self.evaluation.rows
        if column.of == "metric":
            # A metric of all answers together is no mean: each draw computes it anew.
            return self._bootstrap_metric(column.key)
        if column.of not in _MEANS_OVER_QUESTIONS:
            # What is measured for a whole run, e.g. its minutes, has no values to resample.
            return _Resampling(n=len(rows))

        # All seeds ask the same questions, so those of the first seed are counted.
        n = sum(_value_of_question(column, row) is not None for row in rows)
        means = self._means_by_question(column)
        groups = [self._groups_by_question[question] for question in means]
        interval = bootstrap_interval(list(means.values()), groups)
        if interval is None:
            return _Resampling(n)
        return _Resampling(n, CellInterval(interval.low, interval.high), interval.unit)

    def _bootstrap_metric(self, name: str) -> _Resampling:
        """Return the bootstrap interval of a metric of all answers together.

        A draw may lack the metric, e.g. if it has no answer of a class. There is no interval unless
        most draws have it: those that have it would not stand for all.
        """
        n = len(self.evaluation.rows)
        draws = self._metric_draws
        values = [metrics[name] for metrics in draws.metrics if name in metrics]
        most_draws_have_it = len(values) > DRAWS / 2
        if not most_draws_have_it:
            return _Resampling(n)
        low, high = np.quantile(np.asarray(values, dtype=float), [0.025, 0.975])
        return _Resampling(n, CellInterval(float(low), float(high)), draws.unit)

    @cached_property
    def _metric_draws(self) -> _MetricDraws:
        """The metrics of each bootstrap sample: of users or questions, drawn with replacement.

        Whole users (or conversations) are drawn if there are enough of them. All metrics are
        computed from the same samples. There are no samples if the benchmark has no such metrics,
        or if fewer than two questions were asked.
        """
        groups = {row.group for row in self.evaluation.rows}
        unit: Unit = "group" if len(groups) >= MIN_GROUPS else "question"
        if self.aggregate is None or len(self.evaluation.rows) < 2:
            return _MetricDraws(unit, [])

        rows_of_seeds = [_rows_by_unit(evaluation, unit) for evaluation in self.evaluations]
        # The names of the users, or the ids of the questions. They are the same for all seeds.
        unit_names = sorted(rows_of_seeds[0])
        rng = np.random.default_rng(0)
        metrics: list[dict[str, float]] = []
        for _ in range(DRAWS):
            positions = rng.integers(len(unit_names), size=len(unit_names))
            drawn_names = [unit_names[position] for position in positions]
            metrics.append(_mean_metrics(self.aggregate, rows_of_seeds, drawn_names))
        return _MetricDraws(unit, metrics)


def _rows_by_unit(evaluation: Evaluation, unit: Unit) -> dict[str, list[Row]]:
    """Return the rows of an evaluation by user or by question."""
    rows_by_unit: dict[str, list[Row]] = {}
    for row in evaluation.rows:
        name = row.group if unit == "group" else row.id
        rows_by_unit.setdefault(name, []).append(row)
    return rows_by_unit


def _mean_metrics(
    aggregate: Aggregate, rows_of_seeds: Sequence[Mapping[str, list[Row]]], names: Sequence[str]
) -> dict[str, float]:
    """Return the metrics of one bootstrap draw: their means over the seeds.

    A metric that the first seed lacks is left out; one that another seed lacks counts as 0 there.

    Args:
        aggregate: Computes the metrics.
        rows_of_seeds: For each seed its rows, by user or question.
        names: The users or questions that were drawn. Some of them were drawn several times.
    """
    metrics_of_seeds: list[Mapping[str, float]] = []
    for rows_by_unit in rows_of_seeds:
        rows: list[Row] = []
        for name in names:
            rows.extend(rows_by_unit.get(name, ()))
        metrics_of_seeds.append(aggregate(rows))

    means: dict[str, float] = {}
    for key in metrics_of_seeds[0]:
        total = sum(metrics.get(key, 0.0) for metrics in metrics_of_seeds)
        means[key] = total / len(metrics_of_seeds)
    return means


def _value_of_evaluation(column: Column, evaluation: Evaluation) -> float | None:
    """Return what an evaluation has in a column; None if there is nothing to show."""
    match column.of:
        case "metric":
            return evaluation.aggregate.get(column.key)
        case "seconds":
            return _seconds_per_memory(evaluation)
        case "minutes":
            seconds = _seconds_per_memory(evaluation)
            return None if seconds is None else seconds / 60
        case "memory_words":
            return evaluation.memory_words
        case "refused":
            return _refused_percent(evaluation)
        case _:
            return mean([_value_of_question(column, row) for row in evaluation.rows])


def _seconds_per_memory(evaluation: Evaluation) -> float | None:
    """Return the seconds that it took to write one memory; None if none was written."""
    if evaluation.construction is None or not evaluation.histories:
        return None
    return evaluation.construction.seconds / evaluation.histories


def _refused_percent(evaluation: Evaluation) -> float | None:
    """Return the share of operations on the memories that code refused; None without operations."""
    total = sum(evaluation.operations.values())
    if not total:
        return None
    return 100 * evaluation.operations.get("refused", 0) / total


def _value_of_question(column: Column, row: Row) -> float | None:
    """Return the value of a question in a column, which is a mean; None if it does not count there.

    The score and what belongs to it are means over the questions that count in the headline score.
    Counts and calls are means over all questions.
    """
    match column.of:
        case "score":
            return row.score if row.in_headline else None
        case "category":
            return row.score if row.category == column.key else None
        case "part":
            is_counted = row.in_headline and column.category in ("", row.category)
            return row.parts.get(column.key) if is_counted else None
        case "count":
            return float(row.recall_counts.get(column.key, 0))
        case "tokens":
            return float(row.context_tokens) if row.in_headline else None
        case "calls":
            return float(row.calls)
        case _:
            raise ValueError(f"{column.of} is no mean over questions")
