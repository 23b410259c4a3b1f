"""A paper as data: its variants, the sections that evaluate them, and what it printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ValidationInfo, field_validator

from ...errors import UnknownNameError

PAPERS = ("h2memory", "memory-r2", "pgr", "pramem", "rgmem")
LOGO = "logo-grpo"
"""The optimizer that `train` runs; the others are those of `compile --optimizer`."""

AS_IN_PAPERS: Mapping[str, Any] = {"task.dates": False}
"""Settings of every variant: no paper shows its models resolved dates, which all methods get by default otherwise."""

Cell = str | int | float | None


class Printed(BaseModel, frozen=True, extra="forbid"):
    """Cells as a paper prints them."""

    title: str
    """The paper and the table's number."""
    model: str
    """The models behind it, and n if the paper gives it."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    table: str = ""
    """Its name in the paper, e.g. "Table 4", where cells of several tables stand in one cell of ours: it is written
    behind each of them."""
    layer: str = ""
    """The one of several sources that disagree, e.g. "figure"; it stands beside each of its cells in our tables."""
    source: str = ""
    """Where the cells were read: file and place."""
    note: str = ""
    """What a reader must know before comparing anything with it."""

    def prints_shares(self, column: str) -> bool:
        """Whether a column is printed from 0 to 1: none of its numbers is above 1, as in percent most would be."""
        if column not in self.columns:
            return False
        place = self.columns.index(column)
        cells = [row[place] for row in self.rows]
        numbers = [cell for cell in cells if isinstance(cell, int | float)]
        return bool(numbers) and all(abs(number) <= 1 for number in numbers)


_DECIMAL = re.compile(r"\d*\.\d+")


def _in_points(cell: str | int | float) -> str | int | float:
    """Return a share in points; in a text such as "0.72 > 0.71" every decimal number."""
    if isinstance(cell, str):
        return _DECIMAL.sub(lambda number: f"{100 * float(number[0]):g}", cell)
    # Without rounding, .072 would become 7.199999999999999.
    return round(100 * cell, 6)


class Column(BaseModel, frozen=True, extra="forbid"):
    """A column of our table."""

    name: str
    of: Literal[
        "score",
        "category",
        "part",
        "metric",
        "count",
        "tokens",
        "calls",
        "minutes",
        "seconds",
        "memory_words",
        "refused",
    ] = "score"
    """What a cell is: the mean score, of all questions or of a category, or of a part of it; a metric of all answers
    together; the mean of a count of the recall, of tokens of the context, or of calls; minutes or seconds to write a
    memory; its words; of the operations that wrote it the share that code refused, in percent."""
    key: str = ""
    """The category, part, metric or count."""
    category: str = ""
    """Of a part: the only category whose questions count; all if empty."""
    printed: tuple[str, ...] = ()
    """The printed columns that stand beside it."""
    digits: int = 3
    unit: Literal["share", "points", "number"] | None = None
    """What its values are: shares from 0 to 1, points from 0 to 100, or a number of something.

    Shares are shown in points, as the paper's cells beside them. By default scores and metrics are shares, but for
    metrics without decimals, which count something.
    """

    @property
    def is_share(self) -> bool:
        """Whether its values go from 0 to 1."""
        if self.unit is not None:
            return self.unit == "share"
        if self.of == "metric":
            return self.digits > 0
        return self.of in ("score", "category", "part")


class Tuning(BaseModel, frozen=True, extra="forbid"):
    """How the program of a variant is compiled or trained before it is evaluated."""

    optimizer: str
    """As `compile --optimizer` takes it, or `LOGO`."""
    stage: Literal["read", "write", "all"] = "all"
    on: str = ""
    """The benchmark that it learns on; that of the section if empty."""
    start: str = ""
    """The variant whose program it begins from; the method as it is if empty."""
    train: int | None = None
    """Training questions at most; what the command line says if None."""
    settings: Mapping[str, Any] = {}


class Variant(BaseModel, frozen=True, extra="forbid"):
    """One row of our tables."""

    program: str
    """A method, or somebody else's system: `system:NAME`."""
    settings: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    """Options of the benchmark in this row alone, e.g. {"against": "turn-rag"}."""
    lm: str = ""
    """The weights that the row is about, e.g. "Qwen2.5-3B-Instruct"; left out with any other --lm. Any if empty."""
    answer_lm: str = ""
    """The same of the model that answers, which --answer-lm names."""
    tuned: Tuning | None = None
    rows: tuple[str, ...] = ()
    """Printed rows that stand beside it, besides one of its label."""
    columns: tuple[str, ...] = ()
    """The printed columns that are its own, where a printed row holds several variants."""

    @property
    def config(self) -> dict[str, Any]:
        """What its program is built with: the settings, and what all papers leave out."""
        return {**AS_IN_PAPERS, **self.settings}


class NotRun(BaseModel, frozen=True, extra="forbid"):
    """A row of the paper's table that nothing here can run: it has printed cells at most."""

    label: str
    why: str
    """The reason, as tables say it."""
    rows: tuple[str, ...] = ()
    """Printed rows that stand in it, besides one of its label."""


class Comparison(BaseModel, frozen=True, extra="forbid"):
    """Two variants whose answers a judge compares."""

    label: str
    one: str
    other: str


class Section(BaseModel, frozen=True, extra="forbid"):
    """A table: variants on one benchmark."""

    name: str
    title: str
    benchmark: str
    variants: tuple[str, ...]
    baseline: str
    """The variant that the others are compared with."""
    columns: tuple[Column, ...]
    printed: tuple[str, ...] = ()
    """Keys of the paper's printed tables."""
    not_run: tuple[NotRun, ...] = ()
    """Rows of the paper that are shown without numbers of ours."""
    comparisons: tuple[Comparison, ...] = ()
    options: Mapping[str, Any] = {}
    """Options of the benchmark in this section."""
    seeds: int | None = None
    """Repetitions, where they are not those of the whole paper."""
    needs: Literal["judge", "training", "answers", ""] = ""
    """What it cannot be without; left out, and said, where that is not there.

    "answers" is another model that answers; in a paper with such a section it answers in no other one.
    """
    offline: Mapping[str, str] = {}
    """Models and adapter that take the offline engine's place."""
    all_questions: bool = False
    """Whether the offline engine answers all questions of a bundled sample, since a few lack what the section shows."""
    note: str = ""


class NotReproduced(BaseModel, frozen=True, extra="forbid"):
    """What the paper shows and a table of variants cannot."""

    what: str
    why: str
    printed: tuple[str, ...] = ()


class Paper(BaseModel, frozen=True, extra="forbid"):
    """What to run for a paper, and what it printed."""

    name: str
    summary: str
    presets: Mapping[str, Mapping[str, Any]] = {}
    """By program: settings of the paper that all its variants have, unless they name others."""
    variants: Mapping[str, Variant]
    """By label."""
    sections: tuple[Section, ...]
    printed: Mapping[str, tuple[Printed, ...]] = {}
    judged: Mapping[str, Mapping[str, Any]] = {}
    """By benchmark: its options with a judge."""
    unjudged: Mapping[str, Mapping[str, Any]] = {}
    """By benchmark: its options without one, e.g. another metric."""
    seeds: int = 1
    offline_test: int | None = None
    """Questions a section where the offline engine answers about a bundled sample, unless --test says otherwise."""
    not_reproduced: tuple[NotReproduced, ...] = ()

    @field_validator("variants")
    @classmethod
    def _with_presets(cls, variants: Mapping[str, Variant], info: ValidationInfo) -> Mapping[str, Variant]:
        presets: Mapping[str, Mapping[str, Any]] = info.data.get("presets", {})
        return {
            label: variant.model_copy(update={"settings": {**presets.get(variant.program, {}), **variant.settings}})
            for label, variant in variants.items()
        }

    @property
    def has_other_reader(self) -> bool:
        """Whether there is a section in which another model answers than the one that writes the memories."""
        return any(section.needs == "answers" for section in self.sections)

    def chosen(self, names: Sequence[str]) -> tuple[Section, ...]:
        """The sections of these names; "table2" also means "table2-restate"; all if there are none.

        Raises:
            UnknownNameError: A section is not there.
        """
        named = {name: [each for each in self.sections if f"{each.name}-".startswith(f"{name}-")] for name in names}
        for name, found in named.items():
            if not found:
                raise UnknownNameError(f"section of {self.name}", name, [each.name for each in self.sections])
        return tuple(each for each in self.sections if not names or any(each in found for found in named.values()))

    def tables(self, section: Section) -> tuple[Printed, ...]:
        """The printed tables of a section."""
        return tuple(table for key in section.printed for table in self.printed[key])

    def printed_cells(self, section: Section, label: str, column: Column) -> tuple[Cell, ...]:
        """Return the printed cells that stand beside one of ours, in the order of the section's tables.

        Tables that name a layer are sources of the same number that disagree: the first one that has a cell is taken,
        and its layer is written behind the cell, e.g. "49.7 (figure)". Where a table names itself, its name is written
        behind the cell, e.g. "72.3 (Table 1)". Beside shares the cells are in points, from 0 to 100, also where they
        are printed from 0 to 1.
        """
        row_names = self._printed_rows(section, label)
        column_names = self._printed_columns(label, column)
        cells: list[Cell] = []
        has_layer = False
        for table in self.tables(section):
            if table.layer and has_layer:
                continue
            found = _cells(table, row_names, column_names, in_points=column.is_share)
            label_of_cells = table.layer or table.table
            if table.layer and found:
                has_layer = True
            if label_of_cells:
                cells.extend(f"{cell} ({label_of_cells})" for cell in found)
            else:
                cells.extend(found)
        return tuple(cells)

    def _printed_rows(self, section: Section, label: str) -> tuple[str, ...]:
        """Return the names of the printed rows that belong to a row of a section."""
        for row in section.not_run:
            if row.label == label:
                return (label, *row.rows)
        return (label, *self.variants[label].rows)

    def _printed_columns(self, label: str, column: Column) -> tuple[str, ...]:
        """Return the names of the printed columns that belong to a column, in a row that may have its own ones."""
        variant = self.variants.get(label)
        if variant is None or not variant.columns:
            return column.printed
        return tuple(name for name in column.printed if name in variant.columns)


def _cells(table: Printed, row_names: Sequence[str], column_names: Sequence[str], in_points: bool) -> list[Cell]:
    """Return the cells of a printed table that stand in some rows and columns, but for the empty ones.

    Shares that are printed from 0 to 1 are returned in points, if `in_points`.
    """
    shares = {name for name in column_names if in_points and table.prints_shares(name)}
    cells: list[Cell] = []
    for row in table.rows:
        if row[0] not in row_names:
            continue
        for name, cell in zip(table.columns, row, strict=True):
            if name in column_names and cell is not None:
                cells.append(_in_points(cell) if name in shares else cell)
    return cells


def read_paper(name: str) -> Paper:
    """A paper of the suite.

    Raises:
        UnknownNameError: There is none of this name.
    """
    if name not in PAPERS:
        raise UnknownNameError("paper", name, PAPERS)
    file = resources.files(__package__ or "").joinpath(f"{name.replace('-', '_')}.json")
    return Paper.model_validate_json(file.read_bytes())
