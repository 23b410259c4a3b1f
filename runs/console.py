"""Print tables and lines: what a terminal would take for a command in a text is spelled out.

Example:
    print(as_text(["scores", table(("category", "n"), [("temporal", "12")])]))
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Controls, and what turns the direction of writing."""


def harmless(text: str) -> str:
    """A text, or JSON, in which nothing steers a terminal: such characters are spelled out."""
    return _STEERING.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


class Output(Console):
    """Prints text as it is: answers and paths may hold brackets and colons that rich would take for markup.

    Characters that would steer a terminal are spelled out. It goes to standard output, or to standard error.
    """

    def __init__(self, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> None:
        super().__init__(
            stderr=stderr, file=file, width=width, markup=False, emoji=False, highlight=False, soft_wrap=True
        )
        if width is None and not self.is_terminal and "COLUMNS" not in os.environ:
            # A file or a pipe has no width of its own; the usual 80 cut tables short.
            self.width = 120

    def render_str(self, text: str, **about: Any) -> Text:
        return super().render_str(harmless(text), **about)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError


_LONGEST_WORD = 30
"""A longer word in a column of words is folded."""
_GAP = 2
"""Blanks that each column takes beside its cells."""


@dataclass(frozen=True)
class _Column:
    head: str
    cells: tuple[str, ...]
    is_text: bool
    """Whether its cells may be broken between words: names, not numbers."""

    @property
    def full_width(self) -> int:
        """The width at which no line of it is broken."""
        return max(cell_len(line) for cell in (self.head, *self.cells) for line in cell.split("\n"))

    @property
    def least_width(self) -> int:
        """The width below which a number, or a word that is not very long, would be broken."""
        words = [cell_len(word) for word in self.head.split()]
        for cell in self.cells:
            words += [cell_len(part) for part in (cell.split() if self.is_text else cell.split("\n"))]
        longest = max(words, default=0)
        return min(longest, _LONGEST_WORD) if self.is_text else longest

    def with_low_cells(self) -> _Column:
        """Return the column with intervals and remarks below the numbers that they belong to, not beside them."""
        if self.is_text:
            return self
        return replace(self, cells=tuple(re.sub(r" (?=[\[(])", "\n", cell) for cell in self.cells))


class WideTable:
    """A table of names, to the left, and of numbers, that loses nothing where it is narrow.

    Columns that do not fit beside the others follow in further blocks below, each with the names to the left.
    """

    def __init__(
        self, heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, section: int = -1
    ) -> None:
        self._title, self._section = title, section
        self._columns: list[_Column] = []
        rows = [tuple(map(harmless, row)) for row in rows]
        for n, head in enumerate(heads):
            cells = tuple(row[n] for row in rows)
            is_text = n == 0 or any(cell.lstrip("-")[:1].isalpha() for cell in cells)
            self._columns.append(_Column(head, cells, is_text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width, columns = options.max_width, self._columns
        if sum(column.full_width + _GAP for column in columns) > width:
            columns = [column.with_low_cells() for column in columns]
        if self._title:
            yield Text(self._title, style="table.title")
        for block in _blocks(columns, width):
            yield _drawn(block, width, self._section)


def _blocks(columns: Sequence[_Column], width: int) -> list[list[_Column]]:
    """Distribute the columns to as many blocks as it takes; the first column begins every block."""
    names, *others = columns
    blocks = [[names]]
    used = names.least_width + _GAP
    for column in others:
        needed = column.least_width + _GAP
        if len(blocks[-1]) > 1 and used + needed > width:
            blocks.append([names])
            used = names.least_width + _GAP
        blocks[-1].append(column)
        used += needed
    return blocks


def _drawn(columns: Sequence[_Column], width: int, section: int) -> Table:
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    spare = width - sum(column.least_width + _GAP for column in columns)
    for column in columns:
        extra = max(0, min(spare, column.full_width - column.least_width))
        spare -= extra
        drawn.add_column(
            column.head,
            justify="left" if column.is_text else "right",
            width=column.least_width + extra,
            overflow="fold",
        )
    rows = list(zip(*(column.cells for column in columns), strict=True))
    for n, row in enumerate(rows):
        if n == section:
            drawn.add_section()
        drawn.add_row(*map(Text, row))
    return drawn


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, section: int = -1
) -> WideTable:
    """Return a table that fits the width it is printed at. Before the row `section` a line is drawn."""
    return WideTable(heads, rows, title, section)


def spanned(value: float | None, span: Any = None, form: str = "{:.3f}") -> str:
    """A number with its interval, of which both may be missing; a number of things as it is."""
    if value is None or isinstance(value, int):
        return "-" if value is None else str(value)
    ends = "" if span is None or span.low is None else f" [{form.format(span.low)}, {form.format(span.high)}]"
    return f"{form.format(value)}{ends}"


def as_text(lines: Iterable[RenderableType], width: int = 100) -> str:
    """Return lines and tables as plain text."""
    written = io.StringIO()
    console = Output(file=written, width=width)
    for line in lines:
        console.print(line)
    return written.getvalue().rstrip("\n")
