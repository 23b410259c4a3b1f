"""The picture of a confusion matrix."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from ..data.confusion import Confusion
from ..errors import UserError


def confusion_picture(confusion: Confusion, title: str = "") -> Any:
    """A matplotlib figure: gold classes in rows, predicted ones in columns, each row's share as colour and count.

    Args:
        confusion: The counts.
        title: A line above it.
    """
    from matplotlib.figure import Figure

    size = len(confusion.labels)
    figure = Figure(figsize=(max(4.0, 1.0 + 0.8 * size), max(3.6, 0.8 + 0.7 * size)), layout="constrained")
    axes = figure.add_subplot()
    draw(axes, confusion)
    axes.set_title(title.replace("$", r"\$"), fontsize=8, wrap=True)
    return figure


def draw(axes: Any, confusion: Confusion) -> None:
    """Draws the matrix into given axes."""
    shares = [[count / max(sum(row), 1) for count in row] for row in confusion.counts]
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for gold, row in enumerate(confusion.counts):
        for predicted, count in enumerate(row):
            colour = "white" if shares[gold][predicted] > 0.5 else "black"
            axes.text(predicted, gold, str(count), ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(confusion.labels)), confusion.labels)
    axes.set_yticks(range(len(confusion.labels)), confusion.labels)
    axes.set_xlabel(f"predicted (diagonal dominance {confusion.diagonal_dominance:.2f})")
    axes.set_ylabel("gold")


def write(figure: Any, path: Path) -> None:
    """Writes a figure as PNG.

    Raises:
        UserError: It cannot be written.
    """
    try:
        with warnings.catch_warnings():
            # Class names may have letters that the font lacks.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure.savefig(path, dpi=120)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
