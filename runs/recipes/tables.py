"""The two kinds of tables that a recipe prints, which are never one: the paper's cells, and ours.

Example:
    >>> from mempiler.runs.recipes.tables import OurTable
    >>> OurTable("Spread", ("method", "score"), (("x", 0.5),)).to_dict()["rows"]
    [['x', 0.5]]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Cell = str | float | None


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
        """Plain JSON."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "note": self.note,
        }
