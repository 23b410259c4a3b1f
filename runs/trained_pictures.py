"""Pictures of a training: scores of every row, and curves over the tokens generated."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from .trained import Trained
from .trained_row import TrainedRow

_COLORS = {
    "start": "#b0b7c3",
    "grpo": "#c47f2c",
    "grpo-session": "#b55a7a",
    "grpo-cumulative": "#7d6bb0",
    "local": "#4a9b6e",
    "logo-grpo": "#2f6db5",
}
_PANELS = {
    "validation": "validation score, sampled",
    "validation_greedy": "validation score, greedy",
    "reward": "mean reward of rollouts",
    "format_failures": "format failures of rollouts",
}


def scores_picture(outcome: Trained) -> Any:
    """A matplotlib figure: greedy and sampled scores of every row with their intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, 1.0 * len(outcome.rows)), 4), layout="constrained")
    axes = figure.add_subplot()
    for side, kind in enumerate(("greedy", "sampled")):
        for n, row in enumerate(outcome.rows):
            value, found = getattr(row, kind), getattr(row, f"{kind}_interval")
            place = n + (side - 0.5) * 0.38
            bar = axes.bar([place], [value], 0.36, color=_color(row), alpha=1.0 if side == 0 else 0.55)
            axes.bar_label(bar, fmt="%.2f", fontsize=7, padding=3)
            if found:
                axes.vlines(place, *found, color="#333333", linewidth=1)
    names = [row.label for row in outcome.rows]
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes.set_ylabel(f"score on held-out users, n = {outcome.rows[0].n}")
    axes.set_title("greedy (dark) and sampled (light), 95 % intervals over users", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def curves_picture(outcome: Trained) -> Any:
    """A matplotlib figure: validation scores, reward and format failures over the tokens generated, a line a seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(_PANELS) + 2, 3.6), layout="constrained")
    panels = figure.subplots(1, len(_PANELS))
    for axes, (key, title) in zip(panels, _PANELS.items(), strict=True):
        named: set[str] = set()
        for row in outcome.rows:
            found = row.curve(key)
            if found:
                label = "_" if row.name in named else row.name
                axes.plot(*zip(*found, strict=True), marker=".", color=_color(row), label=label, linewidth=1)
                named.add(row.name)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("tokens generated for training")
        axes.spines[["top", "right"]].set_visible(False)
    lines, names = panels[0].get_legend_handles_labels()
    if lines:
        panels[-1].legend(lines, names, frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def write_picture(figure: Any, path: Path) -> None:
    """Writes a figure as PNG."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(path, dpi=120)


def _color(row: TrainedRow) -> str:
    return _COLORS.get(row.name, "#888888")
