"""Floors: fixed minimums for figures of an evaluation, e.g. `recall@20=.7`.

    floors = parse_floors(["recall@20=.7", "score=.5"])
    [result.is_met for result in check_floors(evaluation, floors)]

These figures may have a floor:

- the headline score ("score"), a part of the metric ("f1"), or a metric of all answers together
- the share of the evidence of a question that is among its first k hits ("recall@20")
- the share of the evidence that the prompt showed in the end ("shown")

A floor is compared with the figure itself; the confidence interval beside it decides nothing. So a
program that scores exactly at its floor is below it about half of the time, by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UnknownNameError, UserError
from .console import format_estimate
from .results import Evaluation
from .rows import SHOWN_RECALL, Row
from .statistics import TIE_TOLERANCE, Interval, bootstrap_interval

SCORE = "score"
"""The name of the headline score."""


@dataclass(frozen=True)
class FloorResult:
    """A figure beside its fixed minimum."""

    name: str
    """The name of the figure."""
    floor: float
    """The least value that passes."""
    value: float
    """What the evaluation measured."""
    interval: Interval | None
    """Confidence interval of the value; None where the figure is no mean over questions."""

    @property
    def is_met(self) -> bool:
        """Whether the figure is not below the floor, up to rounding."""
        return self.value >= self.floor - TIE_TOLERANCE

    def __str__(self) -> str:
        """Return a text such as `recall@20 is 0.643 [0.580, 0.700], below the floor 0.7`."""
        value = format_estimate(self.value, self.interval)
        relation = "not below" if self.is_met else "below"
        return f"{self.name} is {value}, {relation} the floor {self.floor:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        interval = None
        if self.interval is not None:
            interval = [self.interval.low, self.interval.high]
        return {
            "name": self.name,
            "floor": self.floor,
            "value": self.value,
            "interval": interval,
            "met": self.is_met,
        }


def parse_floors(pairs: Iterable[str]) -> dict[str, float]:
    """Return floors by the name of the figure.

    Args:
        pairs: Floors as the command line takes them: NAME=VALUE.

    Raises:
        UserError: One has another form, or a figure has two floors.
    """
    floors: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise UserError(f"floor {pair!r:.100}: give NAME=VALUE, e.g. recall@20=.7")
        if name in floors:
            raise UserError(f"floor {pair!r:.100}: {name} has another floor already; give one")
        try:
            floors[name] = float(text)
        except ValueError as error:
            raise UserError(f"floor {pair!r:.100}: {text!r:.50} is no number") from error
    check_floor_values(floors)
    return floors


def check_floor_values(floors: Mapping[str, float]) -> None:
    """Refuse floors that are no finite numbers.

    Raises:
        UserError: A floor is something else.
    """
    for name, floor in floors.items():
        is_number = isinstance(floor, int | float) and not isinstance(floor, bool)
        if not is_number or not math.isfinite(floor):
            raise UserError(f"floor of {name}: {floor!r:.50} is no finite number; give e.g. 0.7")


def check_floors(evaluation: Evaluation, floors: Mapping[str, float]) -> tuple[FloorResult, ...]:
    """Compare figures of an evaluation with their floors.

    Raises:
        UnknownNameError: The evaluation has no figure of a name.
    """
    figures = _figures(evaluation)
    results: list[FloorResult] = []
    for name, floor in floors.items():
        if name not in figures:
            raise UnknownNameError("figure of --floor", name, figures)
        interval = _interval(evaluation.headline_rows, name)
        results.append(FloorResult(name, floor, figures[name], interval))
    return tuple(results)


def _figures(evaluation: Evaluation) -> dict[str, float]:
    """Return all figures of an evaluation that may have a floor."""
    figures: dict[str, float] = {
        **evaluation.aggregate,
        **evaluation.retrieval(),
        **evaluation.metrics(),
    }
    if evaluation.score is not None:
        figures[SCORE] = evaluation.score
    return figures


def _interval(rows: Sequence[Row], name: str) -> Interval | None:
    """Return the interval of a figure that is a mean over questions; None for any other figure."""
    values: list[float] = []
    groups: list[str] = []
    for row in rows:
        value = _value_of_question(row, name)
        if value is not None:
            values.append(value)
            groups.append(row.group)
    return bootstrap_interval(values, groups)


def _value_of_question(row: Row, name: str) -> float | None:
    """Return the value of a figure for one question; None if the question has none."""
    if name == SCORE:
        return row.score
    if name in row.parts:
        return row.parts[name]
    if name == SHOWN_RECALL and row.recall:
        # A prompt without turns has shown none of the evidence (as in `row_metrics.mean_recall`).
        return row.recall.get(SHOWN_RECALL, 0.0)
    return row.recall.get(name)
