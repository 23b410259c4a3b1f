"""What a reproduction gave: a table of ours for each section beside the paper's cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..preference import Preferences
from ..statistics import Difference
from .cells import Cell, VariantResult
from .paper import Paper, Section


@dataclass(frozen=True)
class SectionResult:
    """The variants of a section that were evaluated whole."""

    paper: Paper
    section: Section
    heading: str
    """What our numbers rest on: benchmark, LM, judge, and whether they are a wiring check."""
    rows: tuple[VariantResult, ...]
    failed: Mapping[str, str]
    """Variants that ended in an error, with its words."""
    win_rates: Mapping[str, Preferences]
    """By the label of the duel."""

    def cells(self, row: VariantResult) -> list[Cell]:
        """The cells of a variant, the paper's beside them."""
        columns = self.section.columns
        return [row.cell(column, self.paper.beside(self.section, row.label, column)) for column in columns]

    def difference(self, row: VariantResult) -> Difference | None:
        """Of a variant to the section's own one, on shared questions; None for the own one, or without it."""
        own = next((each for each in self.rows if each.label == self.section.own), None)
        return None if own is None or row is own else row.difference(own)

    @property
    def broken(self) -> tuple[str, ...]:
        """Variants of which so many calls were lost that their scores say little."""
        return tuple(row.label for row in self.rows if any(each.broken for each in row.evaluations))

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""
        section = self.section
        return {
            "section": section.name,
            "title": section.title,
            "heading": self.heading,
            "note": section.note,
            "printed": [table.model_dump(mode="json") for table in self.paper.tables(section)],
            "rows": [self._row(row) for row in self.rows],
            "failed": dict(self.failed),
            "broken": list(self.broken),
            "win_rates": {label: found.to_dict() for label, found in self.win_rates.items()},
        }

    def _row(self, row: VariantResult) -> dict[str, Any]:
        variant, found = self.paper.variants[row.label], self.difference(row)
        names = [column.name for column in self.section.columns]
        return {
            "label": row.label,
            "program": variant.program,
            "settings": dict(variant.settings),
            "tuned": None if variant.tuned is None else variant.tuned.model_dump(mode="json"),
            "runs": [path.name for path in row.runs],
            "n": row.evaluation.n,
            "cells": {name: asdict(cell) for name, cell in zip(names, self.cells(row), strict=True)},
            "difference": None if found is None else {"to": self.section.own, **found.to_dict()},
            "takes": row.evaluation.taken.model_dump(),
            "failures": sum(each.failures for each in row.evaluations),
            "lost": max(each.lost for each in row.evaluations),
        }


@dataclass(frozen=True)
class Reproduced:
    """What a paper gave."""

    paper: Paper
    sections: tuple[SectionResult, ...]
    run: Path
    run_id: str
    notes: tuple[str, ...]
    """What was left out, or smaller than in the paper."""
    stopped: str | None
    """The limit that ended it."""

    @property
    def failed(self) -> bool:
        """Whether a variant ended in an error, or its score is that of a broken run."""
        return any(each.failed or each.broken for each in self.sections)

    def summary(self) -> dict[str, Any]:
        """Plain JSON: our tables with the paper's beside them."""
        return {
            "paper": self.paper.name,
            "sections": [section.summary() for section in self.sections],
            "not_drawn": [each.model_dump(mode="json") for each in self.paper.not_drawn],
            "notes": list(self.notes),
            "stopped": self.stopped,
            "run": str(self.run),
            "run_id": self.run_id,
        }
