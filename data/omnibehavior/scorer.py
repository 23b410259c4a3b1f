"""OmniBehavior's metrics: ACC and F1 of every field, scene and overall (as PraMem's released scorer).

F1 is that of Yes, 0 where it is undefined; a scene is the unweighted mean of its fields, "overall" that of the four
scenes. Failed parses are in no denominator, and counted apart. What was not asked is left out of the means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..behavior import ChosenOption
from ..confusion import Answered, Confusion
from .reader import OPTIONS
from .scenes import QUESTIONS, TABLE_NAMES


class FieldsPredicted(ChosenOption):
    """The share of fields predicted right, and the table by field and scene."""

    def aggregate(self, rows: Sequence[Answered]) -> dict[str, float]:
        """ACC and F1 of every field, scene and overall, and the number of failed parses."""
        fields = {row.category for row in rows}
        found = {field: _matrix(self, rows, field) for field in QUESTIONS if field in fields}
        asked = {field: matrix for field, matrix in found.items() if matrix.n}
        scores: dict[str, float] = {}
        scenes: dict[str, tuple[float, float]] = {}
        for scene, name in TABLE_NAMES.items():
            own = [matrix for field, matrix in asked.items() if field.partition("_")[0] == scene]
            if own:
                scenes[name] = (_mean([m.accuracy for m in own]), _mean([m.f1("Yes") for m in own]))
        every = [(field.replace("_", " "), (m.accuracy, m.f1("Yes"))) for field, m in asked.items()]
        for name, (acc, f1) in [*every, *scenes.items(), *_overall(scenes)]:
            scores |= {f"{name} ACC": acc, f"{name} F1": f1}
        answered = sum(row.failure is None for row in rows)
        return {**scores, "failed parses": answered - sum(matrix.n for matrix in asked.values())}


def _matrix(scorer: ChosenOption, rows: Sequence[Answered], field: str) -> Confusion:
    return Confusion.of(OPTIONS, scorer.parsed([row for row in rows if row.category == field], OPTIONS))


def _overall(scenes: Mapping[str, tuple[float, float]]) -> list[tuple[str, tuple[float, float]]]:
    if not scenes:
        return []
    return [("Overall", (_mean([acc for acc, _ in scenes.values()]), _mean([f1 for _, f1 in scenes.values()])))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
