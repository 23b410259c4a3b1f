"""What commands print: JSON, tables, text that cannot steer the terminal, plans, and what a run rests on."""

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
    from ..optimizers.effort import Range
    from ..runs.planning import Plan
    from ..runs.setup import Setup


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
        plain = json.dumps(found, indent=2, ensure_ascii=False)
        click.echo(_STEERING.sub(lambda char: f"\\u{ord(char[0]):04x}", plain))
        return
    console = output()
    for line in [", ".join(f"{value} {name}" for name, value in found.items())] if lines is None else lines:
        console.print(line)


_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Output(Console):
    """Prints text as it is: answers and paths may hold brackets and colons that rich would take for markup.

    Characters that would steer a terminal are spelled out.
    """

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            # A file or a pipe has no width of its own; the usual 80 cut tables short.
            self.width = 120

    def render_str(self, text: str, **about: Any) -> Text:
        return super().render_str(_STEERING.sub(lambda char: f"\\x{ord(char[0]):02x}", text), **about)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, section: int = -1) -> Table:
    """A table of names, to the left, and of numbers, which are never cut.

    Args:
        heads: Of the columns.
        rows: Their cells, printed as they are.
        title: Above it.
        section: The row before which a line is drawn.
    """
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    rows = list(rows)
    for n, head in enumerate(heads):
        words = n == 0 or any(row[n][:1].isalpha() for row in rows)
        drawn.add_column(head, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for n, row in enumerate(rows):
        if n == section:
            drawn.add_section()
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def output(errors: bool = False) -> Console:
    """A console on standard output, or on standard error."""
    return _Output(errors)


def show_plan(plan: Plan, notes: Iterable[str] = ()) -> None:
    """Prints the ranges of a plan, and notes on what it leaves out."""

    def row(name: str, found: Range, form: str = "{:,.0f}") -> tuple[str, str, str]:
        return name, form.format(found.low), form.format(found.high)

    rows = [row(*phase) for phase in plan.phases.items()]
    phases, usd = len(rows), plan.usd
    rows += [row("calls", plan.calls), row("tokens", plan.tokens)]
    rows.append(("cost", "price not known", "") if usd is None else row("cost", usd, "${:.2f}"))
    rows += [] if plan.minutes is None else [row("minutes", plan.minutes, "{:,.1f}")]
    title = "planned LM calls (those a cache answers are free)"
    found = plan.summary() | ({"notes": list(notes)} if notes else {})
    lines = (f"note: {note}" for note in notes)
    report(found, [table(("phase", "low", "high"), rows, title, phases), *lines])


def first_line(setup: Setup, program: str = "", part: str | None = None, counts: bool = True) -> None:
    """Says what the numbers will rest on, before anything else; a saved program has its own adapter and embedder."""
    from ..engines.models import is_offline
    from ..runs.manifest import read_manifest
    from ..runs.registry import program_folder

    data = setup.data or ("generated" if _generated(setup.benchmark) else "bundled sample")
    engines = {"offline": "offline engine (extractive, no language model)"}
    lm = engines.get(setup.lm, setup.lm)
    folder = program_folder(program) if program else None
    made = None if folder is None else read_manifest(folder)
    embedder = setup.embedder if made is None else made.embedder or "none"
    adapter = setup.adapter or (setup.default_adapter if made is None else made.adapter)
    asked = f" ({_questions(setup, part)} questions)" if counts else ""
    known = bool(setup.data) and not is_offline(setup.lm)
    warning = "" if known else " - a wiring check, not comparable with published numbers"
    replayed = f", replayed from {setup.replay}" if setup.replay else ""
    models = f"LM: {lm}{replayed}; embedder: {embedder}; adapter: {adapter}"
    output(errors=as_json()).print(f"data: {data}{asked}; {models}{warning}")


def _questions(setup: Setup, part: Any) -> str:
    from ..runs.experiment import chosen_examples

    if part is not None:
        return str(len(chosen_examples(setup, setup.load(), part)))
    split = setup.split(setup.load())
    return f"{len(split.train)} train, {len(split.dev)} dev, {len(split.test)} test"


def _generated(benchmark: str) -> bool:
    from ..data.catalog import BENCHMARKS, benchmark_class

    return benchmark in BENCHMARKS and benchmark_class(benchmark).generated
