"""Print tables and lines: what a terminal would take for a command in a text is spelled out.

print(as_text(["scores", table(("category", "n"), [("temporal", "12")])]))
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
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


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, section: int = -1) -> Table:
    """A table of names, to the left, and of numbers, never cut: where it is narrow, intervals have lines of their own.

    Before the row `section` a line is drawn.
    """
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    rows = [list(row) for row in rows]
    columns = [[head, *(row[n] for row in rows)] for n, head in enumerate(heads)]
    if sum(2 + max(map(len, cells)) for cells in columns) > Output().width:
        rows = [[each if each.lstrip("-")[:1].isalpha() else each.replace(" [", "\n[") for each in row] for row in rows]
    for n, (head, *cells) in enumerate(columns):
        words = n == 0 or any(cell.lstrip("-")[:1].isalpha() for cell in cells)
        least = max(map(len, "\n".join((head, *cells)).split()), default=0) if words else None
        drawn.add_column(
            head,
            justify="left" if words else "right",
            no_wrap=not words,
            overflow="fold",
            min_width=least and min(least, 30),
        )
    for n, row in enumerate(rows):
        if n == section:
            drawn.add_section()
        drawn.add_row(*(Text(harmless(cell)) for cell in row))
    return drawn


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
