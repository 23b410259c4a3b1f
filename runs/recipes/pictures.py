"""Pictures of a recipe: matplotlib figures with no window behind them, saved as PNG.

Every function makes a new `Figure`, which draws with Agg: no display, no global state, safe in threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Points = tuple[Sequence[float], Sequence[float | None]]
"""x and y; a point whose y is None is left out."""

_COLORS = ("#2f6db5", "#c8553d", "#588157", "#7b5ea7", "#b08900", "#6c757d", "#00838f", "#ad1457")


@dataclass(frozen=True)
class Picture:
    """A figure and the name of its file, without the suffix."""

    name: str
    figure: Any


def lines(
    title: str,
    x: str,
    series: Mapping[str, Points],
    y: str = "score",
    spread: Mapping[str, Sequence[float]] | None = None,
) -> Any:
    """Lines with a mark at every point, in the order of x.

    Args:
        title: Above the axes.
        x: Name of the x axis.
        series: Points by the name of their line.
        y: Name of the y axis.
        spread: Half the length of an error bar at each point, by the name of the line.
    """
    figure, axes = _axes(title, x, y)
    for n, (name, (xs, ys)) in enumerate(series.items()):
        bars = (spread or {}).get(name) or [0.0] * len(xs)
        kept = sorted((a, b, e) for a, b, e in zip(xs, ys, bars, strict=True) if b is not None)
        color = _COLORS[n % len(_COLORS)]
        places, values, lengths = ([point[k] for point in kept] for k in range(3))
        axes.plot(places, values, marker="o", markersize=4, linewidth=1.4, color=color, label=_plain(name))
        if any(lengths):
            axes.errorbar(places, values, yerr=lengths, fmt="none", ecolor=color, capsize=3, linewidth=1)
    if all(float(place).is_integer() for xs, _ in series.values() for place in xs):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def scatter(title: str, x: str, y: str, points: Mapping[str, tuple[float, float]]) -> Any:
    """One named point each, e.g. methods in the plane of two scores."""
    figure, axes = _axes(title, x, y)
    for n, (name, (a, b)) in enumerate(points.items()):
        axes.scatter([a], [b], s=36, color=_COLORS[n % len(_COLORS)])
        axes.annotate(_plain(name), (a, b), xytext=(5, 4), textcoords="offset points", fontsize=8)
    return figure


def bars(title: str, groups: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> Any:
    """Bars side by side: a group per name of `groups`, in it one bar per series."""
    figure, axes = _axes(title, "", "score", width=max(6.0, 1.2 * len(groups)))
    wide = 0.8 / max(1, len(series))
    for n, (name, values) in enumerate(series.items()):
        places = [place + (n - (len(series) - 1) / 2) * wide for place in range(len(groups))]
        heights = [value or 0.0 for value in values]
        axes.bar(places, heights, wide * 0.94, color=_COLORS[n % len(_COLORS)], label=_plain(name))
    axes.set_xticks(range(len(groups)), [_plain(group) for group in groups], fontsize=8)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def matrix(
    title: str, labels: Sequence[str], counts: Sequence[Sequence[float]], x: str = "predicted", y: str = "gold"
) -> Any:
    """A confusion matrix with its counts; rows are shaded by their share."""
    figure, axes = _axes(title, x, y, width=5.0, height=4.5)
    shares = [[value / (sum(row) or 1) for value in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for r, row in enumerate(counts):
        for c, value in enumerate(row):
            axes.text(c, r, f"{value:g}", ha="center", va="center", color="white" if shares[r][c] > 0.5 else "black")
    axes.set_xticks(range(len(labels)), [_plain(label) for label in labels])
    axes.set_yticks(range(len(labels)), [_plain(label) for label in labels])
    return figure


def save(picture: Picture, folder: Path) -> Path:
    """Writes a picture as PNG into a folder, which is there."""
    path = folder / f"{picture.name}.png"
    with warnings.catch_warnings():
        # Names may have letters that the font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        picture.figure.savefig(path, dpi=120)
    return path


def _axes(title: str, x: str, y: str, width: float = 6.0, height: float = 4.0) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_plain(title), fontsize=9, wrap=True)
    axes.set_xlabel(_plain(x))
    axes.set_ylabel(_plain(y))
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _plain(text: str) -> str:
    """Text as it is: "$" would start a formula."""
    return text.replace("$", r"\$")
