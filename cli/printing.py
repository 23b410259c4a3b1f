"""Prints results: JSON, tables, plans, and the line on data and models; terminal codes in texts are escaped."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..runs.planning import Plan
    from ..runs.setup import Setup
    from ..runs.split_plan import SplitPlan


_JSON = f"{__name__}.json"


def choose_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Remembers whether a command is to print JSON."""
    ctx.meta[_JSON] = value


def as_json() -> bool:
    """Whether the command prints one JSON object."""
    return click.get_current_context().meta.get(_JSON, False)


def report(found: Any, lines: Iterable[RenderableType] | None = None) -> None:
    """Prints a result: as one JSON object; or as lines and tables, counts on one line where none are given."""
    if as_json():
        from pydantic_core import to_jsonable_python

        click.echo(harmless(json.dumps(found, indent=2, ensure_ascii=False, default=to_jsonable_python)))
        return
    console = Output()
    for line in [", ".join(f"{value} {name}" for name, value in found.items())] if lines is None else lines:
        console.print(line)


_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Controls, and what turns the direction of writing."""


def harmless(text: str) -> str:
    """A text, or JSON, in which nothing steers a terminal: such characters are spelled out."""
    return _STEERING.sub(lambda char: f"\\u{ord(char[0]):04x}", text)


class Output(Console):
    """Prints text as it is: answers and paths may hold brackets and colons that rich would take for markup.

    Characters that would steer a terminal are spelled out. It goes to standard output, or to standard error.
    """

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)
        if not self.is_terminal and "COLUMNS" not in os.environ:
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


def show_plan(plan: Plan, notes: Iterable[str] = (), split: SplitPlan | None = None) -> None:
    """Prints the ranges of a plan, notes on what it leaves out, and what the split of the questions allows."""
    ranges = [(name, found, "{:,.0f}") for name, found in (*plan.phases.items(), ("calls", plan.calls))]
    ranges += [("tokens", plan.tokens, "{:,.0f}")]
    ranges += [] if plan.usd is None else [("cost", plan.usd, "${:.2f}")]
    ranges += [] if plan.minutes is None else [("minutes", plan.minutes, "{:,.1f}")]
    rows = [(name, form.format(found.low), form.format(found.high)) for name, found, form in ranges]
    rows += [("cost", "price not known", "")] if plan.usd is None else []
    notes, title = list(notes), "planned LM calls (those a cache answers are free)"
    lines: list[Any] = [table(("phase", "low", "high"), rows, title, len(plan.phases))]
    lines += [f"note: {note}" for note in notes]
    summary = plan.summary()
    if notes:
        summary["notes"] = notes
    if split is not None:
        lines += split.lines()
        summary["split"] = split.summary()
    report(summary, lines)


def print_notes(lines: Iterable[str]) -> None:
    """Print notes on standard error, a line each."""
    for line in lines:
        Output(stderr=True).print(f"note: {line}")


def first_line(setup: Setup, program: str = "", part: Any = None, counts: bool = True) -> None:
    """Says what the numbers will rest on, before anything else; a saved program has its own adapter and embedder."""
    from ..engines.models import is_offline
    from ..runs.experiment import chosen_examples
    from ..runs.manifest import read_manifest
    from ..runs.registry import program_folder

    data, asked = setup.data or "bundled sample", ""
    if counts:
        loaded = setup.load()
        data = "generated" if setup.data is None and loaded.generated else data
        if part is None:
            split = setup.split(loaded)
            asked = f" ({len(split.train)} train, {len(split.dev)} dev, {len(split.test)} test questions)"
        else:
            asked = f" ({len(chosen_examples(setup, loaded, part))} questions)"
    folder = program_folder(program) if program else None
    made = None if folder is None else read_manifest(folder)
    embedder = setup.embedder if made is None else made.embedder or "none"
    if embedder == "minilm" and not setup.load().english:
        embedder += " (knows English alone; --embedder e5 knows the language of these texts)"
    adapter = setup.adapter or (setup.default_adapter if made is None else made.adapter)
    lm = "offline engine (extractive, no language model)" if setup.lm == "offline" else setup.lm
    note = "" if setup.data and not is_offline(setup.lm) else " - a smoke test, not comparable with published numbers"
    answers = f", answers by {setup.answer_lm}" if setup.answer_lm else ""
    replayed = f", replayed from {setup.replay}" if setup.replay else ""
    models = f"LM: {lm}{answers}{replayed}; embedder: {embedder}; adapter: {adapter}"
    Output(stderr=as_json()).print(f"data: {data}{asked}; {models}{note}")
