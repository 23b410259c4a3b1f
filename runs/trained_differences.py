"""How the objectives of a training compare: paired differences of each row, and over all seeds of an objective.

    row        against the start, and against the baseline (GRPO by trajectories) of the same seed; users are resampled
    objective  mean and spread over its seeds, and the difference from the baseline over all of them; users and seeds
               are resampled

All are of the same test questions, so shared hardness cancels.

Limits: a row's interval holds for this seed's weights and other users. That of an objective is meant for other seeds
too, but three of them are a poor sample: it is wide where they disagree and says little where, by luck, they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from .course import BASELINE
from .statistics import Difference, crossed, paired
from .trained_row import TrainedRow

KINDS = ("greedy", "sampled")


@dataclass(frozen=True)
class Against:
    """A row's scores minus those of another one, on the same questions."""

    row: str
    other: str
    greedy: Difference
    sampled: Difference

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"row": self.row, "against": self.other, **{kind: getattr(self, kind).to_dict() for kind in KINDS}}


@dataclass(frozen=True)
class Over:
    """An objective over its seeds: mean, least and most, and the difference from the baseline over all of them."""

    name: str
    seeds: int
    greedy: tuple[float, float, float]
    sampled: tuple[float, float, float]
    greedy_gain: tuple[float, float, float] | None
    """Difference from the baseline: mean and interval; None for the baseline, or where there is none."""
    sampled_gain: tuple[float, float, float] | None

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""
        found: dict[str, Any] = {"name": self.name, "seeds": self.seeds}
        for kind in KINDS:
            mean, least, most = getattr(self, kind)
            gain = getattr(self, f"{kind}_gain")
            found[kind] = {"mean": mean, "min": least, "max": most}
            if gain is not None:
                found[f"{kind}_minus_{BASELINE}"] = {"mean": gain[0], "interval": list(gain[1:])}
        return found


def differences(rows: Sequence[TrainedRow]) -> list[Against]:
    """Each trained row against the start and, but for the baseline itself, against its seed's baseline."""
    found = []
    for row in rows:
        start = next((other for other in rows if other.seed is None and row.seed is not None), None)
        found += [_against(row, other) for other in (start, _baseline(row, rows)) if other is not None]
    return found


def over_seeds(rows: Sequence[TrainedRow]) -> list[Over]:
    """Each objective over its seeds, in the order of the rows."""
    trained = [row for row in rows if row.seed is not None]
    return [
        _over([row for row in trained if row.name == name], rows) for name in dict.fromkeys(r.name for r in trained)
    ]


def _over(own: Sequence[TrainedRow], rows: Sequence[TrainedRow]) -> Over:
    spread: dict[str, Any] = {}
    for kind in KINDS:
        scores = [getattr(row, kind) for row in own]
        spread[kind] = (fmean(scores), min(scores), max(scores))
        spread[f"{kind}_gain"] = _gain(own, rows, kind)
    return Over(own[0].name, len(own), **spread)


def _gain(own: Sequence[TrainedRow], rows: Sequence[TrainedRow], kind: str) -> tuple[float, float, float] | None:
    pairs = [(row, other) for row in own if (other := _baseline(row, rows)) is not None]
    if len(pairs) < len(own) or not own[0].groups:
        return None
    gaps = [[a - b for a, b in zip(row.scores[kind], other.scores[kind], strict=True)] for row, other in pairs]
    found = crossed(gaps, own[0].groups)
    return fmean(map(fmean, gaps)), found.low, found.high


def _baseline(row: TrainedRow, rows: Sequence[TrainedRow]) -> TrainedRow | None:
    """The baseline of the row's seed; none for the start and the baseline itself."""
    if row.seed is None or row.name == BASELINE:
        return None
    return next((other for other in rows if (other.name, other.seed) == (BASELINE, row.seed)), None)


def _against(row: TrainedRow, other: TrainedRow) -> Against:
    found = {kind: paired(row.scores[kind], other.scores[kind], row.groups) for kind in KINDS}
    return Against(row.label, other.label, **found)
