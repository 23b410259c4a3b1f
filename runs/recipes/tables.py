"""The two kinds of tables that a recipe prints, which are never one: the paper's cells, and ours.

Example:
    >>> from mempiler.runs.recipes.tables import Measured, OurTable
    >>> table = OurTable("Spread", ("method", "score"), (("x", Measured(0.5, n=8, interval=(0.25, 0.75))),))
    >>> table.to_dict()["rows"], table.rows[0][1].shown()
    ([['x', '0.500']], '0.500 [0.250, 0.750]')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measured:
    """A number, the questions behind it, and how sure it is."""

    value: float
    digits: int = 3
    n: int = 0
    """Questions behind it."""
    interval: tuple[float, float] | None = None
    """95 % interval; None where there is too little to resample."""
    unit: str = ""
    """What was resampled: "group" (users, conversations) or "question"."""
    spread: float | None = None
    """Standard deviation over the seeds; None with one."""

    def __str__(self) -> str:
        return self._text(self.value) + ("" if self.spread is None else f" ± {self._text(self.spread)}")

    def __float__(self) -> float:
        return self.value

    def shown(self) -> str:
        """The number with its interval."""
        if self.interval is None:
            return str(self)
        return f"{self} [{self._text(self.interval[0])}, {self._text(self.interval[1])}]"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        span = None if self.interval is None else list(self.interval)
        return {"value": self.value, "n": self.n, "interval": span, "unit": self.unit, "spread": self.spread}

    def _text(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


Cell = str | float | Measured | None


@dataclass(frozen=True)
class PaperTable:
    """Cells as a paper prints them."""

    title: str
    """The paper and the table's number."""
    model: str
    """The models behind it, and n if the paper gives it."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """What a reader must know before comparing anything with it."""


@dataclass(frozen=True)
class OurTable:
    """Cells that were computed here. Its section names the LM and the data."""

    title: str
    columns: tuple[str, ...]
    """The first names what a row is."""
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: the cells as they are printed, without intervals, and those that were measured in full."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[str(cell) if isinstance(cell, Measured) else cell for cell in row] for row in self.rows],
            "cells": [
                {"row": row[0], "column": column, **cell.to_dict()}
                for row in self.rows
                for column, cell in zip(self.columns, row, strict=True)
                if isinstance(cell, Measured)
            ],
            "note": self.note,
        }
