"""What a training gave: rows of scores, how they compare, and where model and program are; as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .course import BASELINE
from .statistics import Difference
from .trained_differences import Against, Over, differences, over_seeds
from .trained_row import TrainedRow

_CURVES = ("validation", "validation_greedy")


@dataclass(frozen=True)
class Trained:
    """What a training gave."""

    rows: tuple[TrainedRow, ...]
    objective: str
    """The one that was asked for; its model is kept."""
    program: Path
    run: Path
    run_id: str
    benchmark: str
    quick: bool = False

    @property
    def kept(self) -> TrainedRow:
        """Of the seeds of the asked objective, the one that validated best."""
        own = [row for row in self.rows if row.name == self.objective]
        return max(own, key=lambda row: row.validation or 0.0)

    @cached_property
    def differences(self) -> list[Against]:
        """Each trained row against the start, and against its seed's baseline."""
        return differences(self.rows)

    @cached_property
    def objectives(self) -> list[Over]:
        """Each objective over its seeds."""
        return over_seeds(self.rows)

    def summary(self) -> dict[str, Any]:
        """The object `train --json` prints."""
        return {
            "benchmark": self.benchmark,
            "quick": self.quick,
            "rows": [row.summary() for row in self.rows],
            "differences": [each.summary() for each in self.differences],
            "objectives": [each.summary() for each in self.objectives],
            "curves": {row.label: {key: row.curve(key) for key in _CURVES} for row in self.rows if row.steps},
            "kept": self.kept.label,
            "model": self.kept.model,
            "program": str(self.program),
            "run": str(self.run),
            "run_id": self.run_id,
        }


def print_trained(console: Console, outcome: Trained) -> None:
    """Prints the rows, how they compare, and where model and program are."""
    first = outcome.rows[0]
    quick = "--quick: a look at what a run gives, too short to tell objectives apart; " if outcome.quick else ""
    told = f"{quick}{first.n} questions about {first.users} held-out users of {outcome.benchmark}; 95 % intervals"
    console.print(f"{told} over users", soft_wrap=True)
    console.print(_table(("", "greedy", "sampled", "format failures", "tokens", "steps", "seconds"), _rows(outcome)))
    pairs = _pairs(outcome)
    if pairs:
        heads = ("", "greedy - start", "sampled - start", f"greedy - {BASELINE}", f"sampled - {BASELINE}")
        console.print(_table(heads, pairs))
    if any(each.seeds > 1 for each in outcome.objectives):
        gains = (f"greedy - {BASELINE}", f"sampled - {BASELINE}")
        console.print("over seeds: mean (lowest to highest); 95 % intervals over users and seeds", soft_wrap=True)
        console.print(_table(("", "seeds", "greedy", "sampled", *gains), map(_over, outcome.objectives)))
    for row in outcome.rows:
        for remark in row.remarks:
            console.print(f"{row.label}: {remark}", soft_wrap=True)
    kept = outcome.kept
    console.print(f"kept: {kept.label}; model: local:{kept.model}\nprogram: {outcome.program}", soft_wrap=True)
    console.print(
        f"MLflow run: {outcome.run_id} (mempiler ui); page with curves: {outcome.run}/report.html", soft_wrap=True
    )


def _rows(outcome: Trained) -> Iterable[tuple[str, ...]]:
    for row in outcome.rows:
        yield (
            row.label,
            _score(row.greedy, row.greedy_interval),
            _score(row.sampled, row.sampled_interval),
            f"{row.greedy_failures:.1%} / {row.sampled_failures:.1%}",
            f"{row.tokens:,}",
            f"{row.trained_steps}" + ("" if row.best_step is None else f" (kept {row.best_step})"),
            f"{row.seconds:.0f}",
        )


def _pairs(outcome: Trained) -> list[tuple[str, ...]]:
    found: dict[str, dict[str, Against]] = {}
    for each in outcome.differences:
        found.setdefault(each.row, {})["start" if each.other == "start" else BASELINE] = each
    rows = []
    for label, others in found.items():
        cells = [_gap(others.get(other), kind) for other in ("start", BASELINE) for kind in ("greedy", "sampled")]
        rows.append((label, *cells))
    return rows


def _gap(against: Against | None, kind: str) -> str:
    if against is None:
        return ""
    found: Difference = getattr(against, kind)
    return _signed(found.mean, None if found.interval is None else (found.interval.low, found.interval.high))


def _over(each: Over) -> tuple[str, ...]:
    spreads = [f"{mean:.3f} ({least:.3f} to {most:.3f})" for mean, least, most in (each.greedy, each.sampled)]
    gains = ["" if gain is None else _signed(gain[0], gain[1:]) for gain in (each.greedy_gain, each.sampled_gain)]
    return each.name, str(each.seeds), *spreads, *gains


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table()
    for n, head in enumerate(heads):
        table.add_column(head, justify="right" if n else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _score(value: float, found: tuple[float, float] | None) -> str:
    return f"{value:.3f}" if found is None else f"{value:.3f} [{found[0]:.3f}, {found[1]:.3f}]"


def _signed(value: float, found: tuple[float, float] | None) -> str:
    mean, *ends = (f"{each:+.3f}".replace("0.", ".", 1) for each in (value, *(found or ())))
    return f"{mean} [{', '.join(ends)}]" if ends else mean
