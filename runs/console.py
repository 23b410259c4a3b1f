"""Print tables and lines safely: no text that a model wrote can steer the terminal.

Example:
    print(as_text(["scores", table(("category", "n"), [("temporal", "12")])]))
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Controls, and what turns the direction of writing; tabs and line breaks are allowed."""

_WIDTH_WITHOUT_TERMINAL = 120
"""Width of tables in files and pipes: the 80 columns that rich assumes are few for tables."""

_LONGEST_WORD = 30
"""A longer word in a column of words is folded."""

_GAP = 2
"""Blanks that each column takes beside its cells."""


def escape_control_characters(text: str) -> str:
    r"""Return a text, or JSON, with control characters spelled out, e.g. as \u001b."""
    return _CONTROL_CHARACTERS.sub(_spell_out, text)


def _spell_out(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


class Output(Console):
    """Prints texts as they are, to standard output or standard error.

    Answers and paths may hold brackets and colons, which rich would take for markup. Control
    characters are spelled out.
    """

    def __init__(
        self, stderr: bool = False, file: IO[str] | None = None, width: int | None = None
    ) -> None:
        super().__init__(
            stderr=stderr,
            file=file,
            width=width,
            markup=False,
            emoji=False,
            highlight=False,
            soft_wrap=True,
        )
        has_own_width = self.is_terminal or "COLUMNS" in os.environ
        if width is None and not has_own_width:
            self.width = _WIDTH_WITHOUT_TERMINAL

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text for rich, with control characters spelled out."""
        return super().render_str(escape_control_characters(text), **options)

    def on_broken_pipe(self) -> None:
        """Stop printing, and let the caller end the command."""
        self.quiet = True
        raise BrokenPipeError


@dataclass(frozen=True)
class _Column:
    name: str
    cells: tuple[str, ...]
    is_text: bool
    """Whether its cells may be broken between words: names, not numbers."""

    @property
    def full_width(self) -> int:
        """The width at which no line of it is broken."""
        return max(cell_len(line) for cell in (self.name, *self.cells) for line in cell.split("\n"))

    @property
    def least_width(self) -> int:
        """The width below which a number, or a word that is not very long, would be broken."""
        parts = self.name.split()
        for cell in self.cells:
            parts.extend(cell.split() if self.is_text else cell.split("\n"))
        longest = max((cell_len(part) for part in parts), default=0)
        return min(longest, _LONGEST_WORD) if self.is_text else longest

    def with_low_cells(self) -> _Column:
        """Return the column with intervals and remarks below their numbers, not beside them."""
        if self.is_text:
            return self
        cells = [re.sub(r" (?=[\[(])", "\n", cell) for cell in self.cells]
        return replace(self, cells=tuple(cells))


class WideTable:
    """A table of names, to the left, and of numbers, that loses nothing where it is narrow.

    Columns that do not fit beside the others follow in further blocks below, each with the names to
    the left.

    Args:
        column_names: The names of the columns.
        rows: One cell for each column.
        title: A line above the table.
        ruled_row: The row above which a line is drawn, counted from 0, e.g. that of the sums; None
            for no line.
    """

    def __init__(
        self,
        column_names: Sequence[str],
        rows: Iterable[Sequence[str]],
        title: str | None = None,
        ruled_row: int | None = None,
    ) -> None:
        self._title = title
        self._ruled_row = ruled_row

        safe_rows: list[list[str]] = []
        for row in rows:
            safe_rows.append([escape_control_characters(cell) for cell in row])

        self._columns: list[_Column] = []
        for position, name in enumerate(column_names):
            cells = tuple(row[position] for row in safe_rows)
            is_text = position == 0 or any(_begins_with_letter(cell) for cell in cells)
            self._columns.append(_Column(name, cells, is_text))

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the title and the blocks of the table; rich calls this to print it."""
        width = options.max_width
        columns = self._columns
        if sum(column.full_width + _GAP for column in columns) > width:
            columns = [column.with_low_cells() for column in columns]

        if self._title:
            yield Text(self._title, style="table.title")
        for block in _split_into_blocks(columns, width):
            yield _rich_table(block, width, self._ruled_row)


def _begins_with_letter(cell: str) -> bool:
    """Tell whether a cell is a text; a number may have a minus sign."""
    return cell.lstrip("-")[:1].isalpha()


def _split_into_blocks(columns: Sequence[_Column], width: int) -> list[list[_Column]]:
    """Distribute the columns to as few blocks as fit; the first column begins every block.

    A column that is too wide for any block still gets one, beside the first column.
    """
    names, *others = columns
    blocks = [[names]]
    used = names.least_width + _GAP
    for column in others:
        needed = column.least_width + _GAP
        has_other_columns = len(blocks[-1]) > 1
        if has_other_columns and used + needed > width:
            blocks.append([names])
            used = names.least_width + _GAP
        blocks[-1].append(column)
        used += needed
    return blocks


def _rich_table(columns: Sequence[_Column], width: int, ruled_row: int | None) -> Table:
    """Return one block as a table of rich.

    Args:
        columns: The columns of the block.
        width: The width of the whole table, in characters.
        ruled_row: The row above which a line is drawn, counted from 0; None for no line.
    """
    rich_table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)

    # Every column gets its least width. The rest of the width goes to the columns from the left,
    # to each as much as it needs for lines that are not broken.
    rest = max(0, width - sum(column.least_width + _GAP for column in columns))
    for column in columns:
        added_width = min(rest, column.full_width - column.least_width)
        rest -= added_width
        rich_table.add_column(
            column.name,
            justify="left" if column.is_text else "right",
            width=column.least_width + added_width,
            overflow="fold",
        )

    rows = zip(*(column.cells for column in columns), strict=True)
    for number, row in enumerate(rows):
        if number == ruled_row:
            # Rich draws a line between two sections.
            rich_table.add_section()
        rich_table.add_row(*(Text(cell) for cell in row))
    return rich_table


def table(
    column_names: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    ruled_row: int | None = None,
) -> WideTable:
    """Return a `WideTable`: the short name by which commands and pages make their tables.

    Args:
        column_names: The names of the columns.
        rows: One cell for each column.
        title: A line above the table.
        ruled_row: The row above which a line is drawn, counted from 0; None for no line.
    """
    return WideTable(column_names, rows, title, ruled_row)


class Bounds(Protocol):
    """The ends of an interval."""

    @property
    def low(self) -> float | None:
        """The lower end; None if there is no interval."""
        ...

    @property
    def high(self) -> float | None:
        """The upper end."""
        ...


def format_estimate(
    value: float | None, interval: Bounds | None = None, form: str = "{:.3f}"
) -> str:
    """Return a number with its interval, e.g. "0.512 [0.430, 0.600]".

    Args:
        value: The number; None gives "-", and an integer is printed as it is.
        interval: Left out if it is None, or has no ends.
        form: How the number and the ends are formatted.
    """
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    number = form.format(value)
    if interval is None or interval.low is None:
        return number
    return f"{number} [{form.format(interval.low)}, {form.format(interval.high)}]"


def as_text(lines: Iterable[RenderableType], width: int = 100) -> str:
    """Return lines and tables as plain text."""
    file = io.StringIO()
    console = Output(file=file, width=width)
    for line in lines:
        console.print(line)
    return file.getvalue().rstrip("\n")
