"""A paper as data: what is run for it, and the numbers that it printed.

A paper is a JSON file of this folder, such as this one, which is shortened:

    {
      "name": "rgmem",
      "variants": {
        "RGMem": {"program": "rgmem"},
        "RAG": {"program": "turn-rag", "settings": {"k": 10}, "rows": ["RAG-500"]}
      },
      "sections": [{
        "name": "table2", "benchmark": "locomo",
        "variants": ["RGMem", "RAG"], "baseline": "RAG",
        "columns": [{"name": "all", "of": "score", "printed": ["Avg."]}],
        "printed": ["table2"]
      }],
      "printed": {
        "table2": [{"title": "Table 2", "model": "GPT-4o-mini", "columns": ["method", "Avg."],
                    "rows": [["RGMem", 78.9], ["RAG-500", 61.2]]}]
      }
    }

- A *section* is one table of ours: a benchmark, on which variants are evaluated.
- A *variant* is a row of it: a program with settings, perhaps compiled or trained first.
- A *column* says what is measured, e.g. the mean score, or the tokens of the context.
- A *cell* is one number of ours (`cells.Cell`). The *printed cells* beside it are the paper's. In
  the row "RAG" and the column "all" that is 61.2, from the printed row "RAG-500" and the printed
  column "Avg.".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Literal

from pydantic import BaseModel, JsonValue, ValidationInfo, field_validator

from ...errors import UnknownNameError

PAPERS = (
    "h2memory",
    "memory-r2",
    "pgr",
    "pramem",
    "rgmem",
)

LOGO = "logo-grpo"
"""The optimizer that `train` runs; the others are those of `compile --optimizer`."""

AS_IN_PAPERS: Mapping[str, JsonValue] = {"task.dates": False}
"""Settings of every variant.

Methods show their models resolved dates by default, which no paper does.
"""

PrintedCell = str | int | float | None
"""A cell of a paper's table; None if it is empty."""

_DECIMAL = re.compile(r"\d*\.\d+")


class PrintedTable(BaseModel, frozen=True, extra="forbid"):
    """A table, or a part of one, as a paper prints it."""

    title: str
    """The paper and the table's number."""
    model: str
    """The models behind the numbers, and n if the paper says it."""
    columns: tuple[str, ...]
    rows: tuple[tuple[PrintedCell, ...], ...]
    """Each begins with its name."""
    table: str = ""
    """The table's name in the paper, e.g. "Table 4", which is written behind each of its cells.

    It is needed where cells of several tables stand beside one cell of ours.
    """
    layer: str = ""
    """The name of this source, e.g. "figure", where several sources of the same numbers disagree.

    It is written behind each of the cells.
    """
    source: str = ""
    """Where the cells were read: file and place."""
    note: str = ""
    """What a reader must know before comparing anything with it."""

    def prints_shares(self, column: str) -> bool:
        """Tell whether a column is printed as shares, from 0 to 1, and not in percent.

        The paper does not say it, so the numbers decide: if all are between -1 and 1, they are
        shares, for in a column of percentages most are larger. Differences may be negative.
        """
        if column not in self.columns:
            return False

        position = self.columns.index(column)
        cells = [row[position] for row in self.rows]
        numbers = [cell for cell in cells if isinstance(cell, int | float)]
        return bool(numbers) and all(abs(number) <= 1 for number in numbers)

    def cells(
        self, row_names: Sequence[str], column_names: Sequence[str]
    ) -> list[str | int | float]:
        """Return the cells in some rows and columns, row by row, without the empty ones."""
        cells: list[str | int | float] = []
        for row in self.rows:
            if row[0] not in row_names:
                continue
            for column, cell in zip(self.columns, row, strict=True):
                if column in column_names and cell is not None:
                    cells.append(cell)
        return cells

    def in_points(self, column_names: Sequence[str]) -> PrintedTable:
        """Return the table with points, from 0 to 100, in those columns that print shares."""
        share_columns = [name for name in column_names if self.prints_shares(name)]
        rows: list[tuple[PrintedCell, ...]] = []
        for row in self.rows:
            cells: list[PrintedCell] = []
            for column, cell in zip(self.columns, row, strict=True):
                if cell is not None and column in share_columns:
                    cells.append(_in_points(cell))
                else:
                    cells.append(cell)
            rows.append(tuple(cells))
        return self.model_copy(update={"rows": tuple(rows)})


def _in_points(cell: str | int | float) -> str | int | float:
    """Return a share in points; in a text such as "0.72 > 0.71" every decimal number."""
    if isinstance(cell, str):
        return _DECIMAL.sub(lambda number: f"{100 * float(number[0]):g}", cell)
    # Without rounding, .072 would become 7.199999999999999.
    return round(100 * cell, 6)


class Column(BaseModel, frozen=True, extra="forbid"):
    """A column of our table: what its cells measure."""

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
    """What a cell is.

    - "score": the mean score of the questions that count for the headline.
    - "category": the mean score of the questions of the category `key`.
    - "part": the mean of the part `key` of the score.
    - "metric": the metric `key` of all answers together.
    - "count": the mean of the count `key` that the recall reports.
    - "tokens": the mean number of tokens of the context.
    - "calls": the mean number of calls that recall and answer.
    - "minutes", "seconds": the time to write one memory.
    - "memory_words": the mean number of words of a memory.
    - "refused": the share of operations on the memories that code refused, in percent.
    """
    key: str = ""
    """The name of the category, part, metric or count."""
    category: str = ""
    """Of a part: the only category whose questions count; all if empty."""
    printed: tuple[str, ...] = ()
    """The printed columns that stand beside it."""
    digits: int = 3
    """Decimals that are shown."""
    unit: Literal["share", "points", "number"] | None = None
    """What its values are: shares from 0 to 1, points from 0 to 100, or a number of something.

    Shares are shown in points, as the paper's cells beside them. By default scores and their parts
    are shares, and so are metrics with decimals. Metrics without decimals count something.
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
    """The label of the variant whose program it begins from; the method as it is if empty."""
    train: int | None = None
    """The largest number of training questions; what the command line says if None."""
    settings: Mapping[str, JsonValue] = {}
    """Settings of the optimizer or of the training."""


class Variant(BaseModel, frozen=True, extra="forbid"):
    """A program with settings: one row of our tables."""

    program: str
    """A method, or somebody else's system: `system:NAME`."""
    settings: Mapping[str, JsonValue] = {}
    options: Mapping[str, JsonValue] = {}
    """Options of the benchmark in this row alone, e.g. {"against": "turn-rag"}."""
    lm: str = ""
    """The only weights that the row is run with, e.g. "Qwen2.5-3B-Instruct"; any if empty.

    With another `--lm` the row is left out.
    """
    answer_lm: str = ""
    """The only weights of the model that answers, which `--answer-lm` names; any if empty."""
    tuned: Tuning | None = None
    rows: tuple[str, ...] = ()
    """Printed rows that stand beside it, besides the one of its label."""
    columns: tuple[str, ...] = ()
    """The printed columns of this variant, where a printed row holds the cells of several."""

    @property
    def program_settings(self) -> dict[str, JsonValue]:
        """The settings that its program is built with, those of all papers among them."""
        return {**AS_IN_PAPERS, **self.settings}


class PaperOnlyRow(BaseModel, frozen=True, extra="forbid"):
    """A row of the paper's table that nothing here can run: it has printed cells at most."""

    label: str
    why: str
    """Why it cannot be run, as tables say it."""
    rows: tuple[str, ...] = ()
    """Printed rows that stand in it, besides the one of its label."""


class Comparison(BaseModel, frozen=True, extra="forbid"):
    """Two variants whose answers a judge compares."""

    label: str
    one: str
    """The label of the variant whose win rate is shown."""
    other: str
    """The label of the variant that it is compared with."""


class Section(BaseModel, frozen=True, extra="forbid"):
    """A table: variants on one benchmark."""

    name: str
    title: str
    benchmark: str
    variants: tuple[str, ...]
    """Their labels."""
    baseline: str
    """The label of the variant that the others are compared with."""
    columns: tuple[Column, ...]
    printed: tuple[str, ...] = ()
    """Keys of the paper's printed tables."""
    not_run: tuple[PaperOnlyRow, ...] = ()
    """Rows of the paper that are shown without numbers of ours."""
    comparisons: tuple[Comparison, ...] = ()
    options: Mapping[str, JsonValue] = {}
    """Options of the benchmark in this section."""
    seeds: int | None = None
    """Repetitions; those of the paper if None."""
    needs: Literal["judge", "training", "answers", ""] = ""
    """What the section cannot be run without; where that is missing it is left out, with a note.

    "answers" is another model that answers. In a paper with such a section that model answers in
    no other one.
    """
    offline: Mapping[str, str] = {}
    """Models and adapter that take the place of the offline engine."""
    all_questions: bool = False
    """Whether the offline engine answers all questions of a bundled sample.

    A few questions may lack what the section shows.
    """
    note: str = ""


class NotReproduced(BaseModel, frozen=True, extra="forbid"):
    """Something in the paper that a table of variants cannot show."""

    what: str
    why: str
    printed: tuple[str, ...] = ()
    """Keys of the paper's printed tables."""


class Paper(BaseModel, frozen=True, extra="forbid"):
    """What is run for a paper, and what it printed."""

    name: str
    summary: str
    presets: Mapping[str, Mapping[str, JsonValue]] = {}
    """By program: settings that all its variants have, unless they name others."""
    variants: Mapping[str, Variant]
    """By label. Their settings include the presets."""
    sections: tuple[Section, ...]
    printed: Mapping[str, tuple[PrintedTable, ...]] = {}
    """By the key that sections name."""
    judged: Mapping[str, Mapping[str, JsonValue]] = {}
    """By benchmark: its options with a judge."""
    unjudged: Mapping[str, Mapping[str, JsonValue]] = {}
    """By benchmark: its options without a judge, e.g. another metric."""
    seeds: int = 1
    """Repetitions, where a section does not say otherwise."""
    offline_test: int | None = None
    """Questions a section that the offline engine answers about a bundled sample.

    `--test` says otherwise.
    """
    not_reproduced: tuple[NotReproduced, ...] = ()

    @field_validator("variants")
    @classmethod
    def _add_presets(
        cls, variants: Mapping[str, Variant], info: ValidationInfo
    ) -> Mapping[str, Variant]:
        """Add the presets to the settings of the variants."""
        presets: Mapping[str, Mapping[str, JsonValue]] = info.data.get("presets", {})
        complete_variants: dict[str, Variant] = {}
        for label, variant in variants.items():
            settings = {**presets.get(variant.program, {}), **variant.settings}
            complete_variants[label] = variant.model_copy(update={"settings": settings})
        return complete_variants

    @property
    def has_separate_answering_model(self) -> bool:
        """Whether in some section another model answers than the one that writes the memories."""
        return any(section.needs == "answers" for section in self.sections)

    def select_sections(self, names: Sequence[str]) -> tuple[Section, ...]:
        """Return the sections of some names, in the paper's order; all if there are no names.

        A name also means the sections that begin with it: "table2" means "table2-restate" too.

        Raises:
            UnknownNameError: There is no section of a name.
        """
        if not names:
            return self.sections
        for name in names:
            if not any(_has_name(section, name) for section in self.sections):
                section_names = [section.name for section in self.sections]
                raise UnknownNameError(f"section of {self.name}", name, section_names)

        selected: list[Section] = []
        for section in self.sections:
            if any(_has_name(section, name) for name in names):
                selected.append(section)
        return tuple(selected)

    def tables(self, section: Section) -> tuple[PrintedTable, ...]:
        """Return the printed tables of a section."""
        tables: list[PrintedTable] = []
        for key in section.printed:
            tables.extend(self.printed[key])
        return tuple(tables)

    def printed_cells(
        self, section: Section, label: str, column: Column
    ) -> tuple[PrintedCell, ...]:
        """Return what the paper prints in place of a cell of ours, in the order of its tables.

        Several tables may have the number. Where a table has a name, it is written behind the
        printed cell, e.g. "72.3 (Table 1)".

        Args:
            section: The section.
            label: The label of a variant of it, or of a row that is not run.
            column: A column of it.
        """
        row_names = self._printed_row_names(section, label)
        column_names = self._printed_column_names(label, column)
        cells: list[PrintedCell] = []
        has_cell_of_layer = False
        for table in self.tables(section):
            # Our shares are shown in points, from 0 to 100. The paper may print them from 0 to 1.
            shown_table = table.in_points(column_names) if column.is_share else table
            table_cells = shown_table.cells(row_names, column_names)

            if table.layer and table_cells:
                # Layers are sources that disagree on the same number. The first one that has the
                # number is shown.
                if has_cell_of_layer:
                    continue
                has_cell_of_layer = True
            source_name = table.layer or table.table
            cells.extend(_cells_with_source(table_cells, source_name))
        return tuple(cells)

    def _printed_row_names(self, section: Section, label: str) -> tuple[str, ...]:
        """Return the names of the printed rows that belong to a row of a section."""
        for row in section.not_run:
            if row.label == label:
                return (label, *row.rows)
        return (label, *self.variants[label].rows)

    def _printed_column_names(self, label: str, column: Column) -> tuple[str, ...]:
        """Return the names of the printed columns that belong to a column in a certain row."""
        variant = self.variants.get(label)
        if variant is None or not variant.columns:
            return column.printed
        return tuple(name for name in column.printed if name in variant.columns)


def _cells_with_source(cells: Iterable[PrintedCell], source: str) -> Iterable[PrintedCell]:
    """Return printed cells with their source, if any, behind them, e.g. "49.7 (figure)"."""
    if not source:
        return cells
    return [f"{cell} ({source})" for cell in cells]


def _has_name(section: Section, name: str) -> bool:
    """Tell whether a section is called by a name, or by one that begins with it and a hyphen."""
    return f"{section.name}-".startswith(f"{name}-")


def read_paper(name: str) -> Paper:
    """Return a paper by its name.

    Raises:
        UnknownNameError: There is no such paper.
    """
    if name not in PAPERS:
        raise UnknownNameError("paper", name, PAPERS)
    file = resources.files(__package__ or "").joinpath(f"{name.replace('-', '_')}.json")
    return Paper.model_validate_json(file.read_bytes())
