"""What a training gave: one row per objective and seed, as numbers, a table and pictures.

Every row says how many questions it rests on and what the training took. Intervals are of the test questions, resampled
by user: they do not cover differences between seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from rich.console import Console
from rich.table import Table

from ..optimizers.logo_grpo.policy import PolicyScore
from .statistics import interval

ROW = "row.json"
_COLORS = {"start": "#b0b7c3", "grpo": "#c47f2c", "local": "#4a9b6e", "logo-grpo": "#2f6db5"}


class TrainedRow(BaseModel):
    """A model's scores on the test users, and the training it comes from."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The objective; "start" for the model that all begin from."""
    seed: int | None
    model: str
    """Its folder or hub id."""
    n: int
    """Test questions."""
    greedy: float
    greedy_interval: tuple[float, float] | None
    sampled: float
    """At temperature 1."""
    sampled_interval: tuple[float, float] | None
    greedy_failures: float
    """Share of completions that could not be read."""
    sampled_failures: float
    tokens: int = 0
    """Generated for training."""
    trained_steps: int = 0
    best_step: int | None = None
    """The step whose weights were kept."""
    seconds: float = 0.0
    stopped: str | None = None
    steps: tuple[dict[str, Any], ...] = ()
    """The journal's rows: training steps and validations."""

    @property
    def label(self) -> str:
        """Name and seed."""
        return self.name if self.seed is None else f"{self.name}.{self.seed}"

    def numbers(self) -> dict[str, float]:
        """What is logged as metrics."""
        names = ("n", "greedy", "sampled", "greedy_failures", "sampled_failures", "tokens", "trained_steps", "seconds")
        return {name: float(getattr(self, name)) for name in names}

    def summary(self) -> dict[str, Any]:
        """Plain JSON without the steps."""
        return self.model_dump(mode="json", exclude={"steps"})


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

    @property
    def kept(self) -> TrainedRow:
        """Of the seeds of the asked objective, the one that validated best."""
        own = [row for row in self.rows if row.name == self.objective]
        return max(own, key=lambda row: max((step.get("validation", 0.0) for step in row.steps), default=0.0))

    def summary(self) -> dict[str, Any]:
        """The object `train --json` prints."""
        return {
            "benchmark": self.benchmark,
            "rows": [row.summary() for row in self.rows],
            "kept": self.kept.label,
            "model": self.kept.model,
            "program": str(self.program),
            "run": str(self.run),
            "run_id": self.run_id,
        }


def measured(name: str, seed: int | None, model: str, greedy: PolicyScore, sampled: PolicyScore) -> TrainedRow:
    """A row from two scorings of one model."""
    return TrainedRow(
        name=name,
        seed=seed,
        model=model,
        n=greedy.n,
        greedy=greedy.score,
        greedy_interval=_interval(greedy),
        sampled=sampled.score,
        sampled_interval=_interval(sampled),
        greedy_failures=greedy.format_failures,
        sampled_failures=sampled.format_failures,
    )


def print_trained(console: Console, outcome: Trained) -> None:
    """Prints the rows, and where model and program are."""
    console.print(f"held-out users of {outcome.benchmark}; 95 % intervals over users", soft_wrap=True)
    table = Table()
    for name in ("", "n", "greedy", "sampled", "format failures", "tokens", "steps", "seconds"):
        table.add_column(name, justify="left" if not name else "right")
    for row in outcome.rows:
        table.add_row(
            row.label,
            str(row.n),
            _score(row.greedy, row.greedy_interval),
            _score(row.sampled, row.sampled_interval),
            f"{row.greedy_failures:.1%} / {row.sampled_failures:.1%}",
            f"{row.tokens:,}",
            f"{row.trained_steps}" + ("" if row.best_step is None else f" (kept {row.best_step})"),
            f"{row.seconds:.0f}",
        )
    console.print(table)
    for row in outcome.rows:
        if row.stopped:
            console.print(f"{row.label}: {row.stopped}", soft_wrap=True)
    kept = outcome.kept
    console.print(f"kept: {kept.label}; model: local:{kept.model}\nprogram: {outcome.program}", soft_wrap=True)
    console.print(f"MLflow run: {outcome.run_id} (mempiler ui)", soft_wrap=True)


def scores_picture(outcome: Trained) -> Any:
    """A matplotlib figure: greedy and sampled scores of every row with their intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, 1.6 * len(outcome.rows)), 4), layout="constrained")
    axes = figure.add_subplot()
    for side, kind in enumerate(("greedy", "sampled")):
        for n, row in enumerate(outcome.rows):
            value, found = getattr(row, kind), getattr(row, f"{kind}_interval")
            place, color = n + (side - 0.5) * 0.38, _COLORS.get(row.name, "#888888")
            bar = axes.bar([place], [value], 0.36, color=color, alpha=1.0 if side == 0 else 0.55)
            axes.bar_label(bar, fmt="%.2f", fontsize=8, padding=3)
            if found:
                axes.vlines(place, *found, color="#333333", linewidth=1)
    axes.set_xticks(range(len(outcome.rows)), [row.label for row in outcome.rows])
    axes.set_ylabel(f"score on held-out users, n = {outcome.rows[0].n}")
    axes.set_title("greedy (dark) and sampled (light), 95 % intervals over users", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def curves_picture(outcome: Trained) -> Any:
    """A matplotlib figure: reward, validation score and format failures over the tokens generated."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    panels = figure.subplots(1, 3)
    titles = ("mean reward of rollouts", "validation score, greedy", "format failures of rollouts")
    for axes, key, title in zip(panels, ("reward", "validation", "format_failures"), titles, strict=True):
        for row in outcome.rows:
            found = _series(row.steps, key)
            if found:
                color = _COLORS.get(row.name, "#888888")
                axes.plot(*zip(*found, strict=True), marker=".", color=color, label=row.label, linewidth=1)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("tokens generated for training")
        axes.spines[["top", "right"]].set_visible(False)
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(frameon=False, fontsize=8)
    return figure


def _series(steps: Sequence[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """One number of the rows over the tokens generated up to then."""
    found, tokens = [], 0.0
    for row in steps:
        tokens += row.get("tokens", 0.0)
        if key in row:
            found.append((tokens, row[key]))
    return found


def _interval(score: PolicyScore) -> tuple[float, float] | None:
    found = interval(score.scores, score.groups)
    return None if found is None else (found.low, found.high)


def _score(value: float, found: tuple[float, float] | None) -> str:
    return f"{value:.3f}" if found is None else f"{value:.3f} [{found[0]:.3f}, {found[1]:.3f}]"
