"""`mempiler reproduce`: a paper's tables, and ours with its cells beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from ..errors import UserError
from .options import make_setup, setup_options
from .printing import first_line, output, print_json, show_plan, table
from .progress import progress

if TYPE_CHECKING:
    from rich.console import Console

    from ..runs.papers.cells import Cell
    from ..runs.papers.paper import Paper, Printed
    from ..runs.papers.reproduction import Reproduced, SectionResult
    from ..runs.statistics import Difference

_NOT_HERE = ("benchmark", "data", "metric", "categories", "config", "allow_code")
"""Options that are what a paper itself says, or of which it has one for each benchmark."""


@click.command("reproduce")
@click.argument("paper")
@click.option("--section", "sections", multiple=True, metavar="NAME", help="run this section alone; may be repeated")
@click.option(
    "--data",
    "named",
    multiple=True,
    metavar="[BENCHMARK=]FILE",
    help="a benchmark's file [default: a bundled sample]",
)
@click.option("--seeds", type=click.IntRange(1), help="repetitions; cells show mean and spread [default: the paper's]")
@setup_options
def command(
    paper: str,
    sections: tuple[str, ...],
    named: tuple[str, ...],
    seeds: int | None,
    as_json: bool,
    planned: bool,
    **values: Any,
) -> None:
    """Run the sections of PAPER on its benchmarks, and print its tables and ours.

    Without --judge-lm a metric without a judge stands in where the benchmark has one, and there are no win rates.
    """
    from ..engines.meter import Meter
    from ..runs.papers.arrangement import plan_paper
    from ..runs.papers.paper import read_paper
    from ..runs.papers.reproduction import reproduce
    from ..runs.results import refuse_broken

    found = read_paper(paper)
    plain, files = _files(found, named)
    setup = make_setup({**dict.fromkeys(_NOT_HERE), **values, "benchmark": "", "data": plain})
    chosen = found.chosen(sections)
    console, errors = output(errors=as_json), output(errors=True)
    first_line(console, replace(setup, benchmark=chosen[0].benchmark, data=", ".join(named) or None), counts=False)
    if planned:
        plan, notes = plan_paper(found, setup, sections, files, seeds)
        if as_json:
            print_json({**plan.summary(), "notes": list(notes)})
            return
        show_plan(console, plan, as_json)
        for note in notes:
            console.print(f"note: {note}", soft_wrap=True)
        return
    meter = Meter()
    with progress(errors, meter, setup.limits) as note:
        made = reproduce(found, setup, sections, files, seeds, note, meter)
    if as_json:
        print_json(made.summary())
    else:
        _print(console, made, whole=not sections)
    for row in (row for found in made.sections for row in found.rows):
        for each, run in zip(row.evaluations, row.runs, strict=True):
            refuse_broken(each, run.name)
    if made.failed:
        sys.exit(1)


command.params = [option for option in command.params if option.name not in _NOT_HERE]


def _files(paper: Paper, data: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The file without a benchmark's name before it, and the others by benchmark.

    Raises:
        UserError: There are several without a name.
    """
    names = {part for each in paper.sections for part in (each.benchmark, each.benchmark.partition(".")[0])}
    named = {name: path for name, equals, path in (value.partition("=") for value in data) if equals and name in names}
    plain = [value for value in data if value.partition("=")[0] not in named]
    if len(plain) > 1:
        raise UserError(f"--data {plain[1]}: say which benchmark it is of, e.g. --data {min(names)}=FILE")
    return (plain[0] if plain else None), named


def _print(console: Console, made: Reproduced, whole: bool) -> None:
    """Prints each section, the paper's tables and ours; of a whole paper what is not drawn, too."""
    for found in made.sections:
        console.print(f"\n== {found.section.name}: {found.section.title}", style="bold", soft_wrap=True)
        for printed in made.paper.tables(found.section):
            _print_printed(console, printed)
        _print_ours(console, found)
    for each in made.paper.not_drawn if whole else ():
        console.print(f"\nnot drawn: {each.what}: {each.why}", soft_wrap=True)
        for printed in (one for key in each.printed for one in made.paper.printed[key]):
            _print_printed(console, printed)
    console.print()
    for note in made.notes:
        console.print(f"note: {note}", soft_wrap=True)
    if made.stopped:
        again = f"what is missing above was not run; --resume {made.run.name} goes on"
        console.print(f"stopped by a limit: {made.stopped}; {again}", soft_wrap=True)
    console.print(f"run: {made.run}\nMLflow run: {made.run_id} (mempiler ui)", soft_wrap=True)


def _print_printed(console: Console, printed: Printed) -> None:
    rows = [tuple("-" if cell is None else str(cell) for cell in row) for row in printed.rows]
    # The title is outside the table, which would break the line at its own width.
    console.print(f"\nAs the paper prints it: {printed.title}; {printed.model}", style="italic", soft_wrap=True)
    console.print(table(printed.columns, rows))
    if printed.note:
        console.print(printed.note, soft_wrap=True)


def _print_ours(console: Console, found: SectionResult) -> None:
    names = [column.name for column in found.section.columns]
    console.print(f"\nOurs: {found.heading or 'nothing was run'}", style="italic", soft_wrap=True)
    if found.rows:
        shown = Table("variant", "n")
        for name in (*names, f"difference to {found.section.own}"):
            # Numbers may not be cut.
            shown.add_column(name.replace("_", " "), justify="right", min_width=7, overflow="fold")
        for row in found.rows:
            cells = [_cell(cell) for cell in found.cells(row)]
            shown.add_row(row.label, str(row.evaluation.n), *cells, _difference(found.difference(row)))
        console.print(shown)
        console.print(_takes(found))
    for line in _remarks(found):
        console.print(line, soft_wrap=True)


def _cell(cell: Cell) -> str:
    """The number, its interval, and the paper's cells, a line each."""

    def text(value: float) -> str:
        return f"{value:,.{cell.digits}f}"

    lines = ["-"] if cell.value is None else [text(cell.value) + (f" ± {text(cell.spread)}" if cell.spread else "")]
    lines += [] if cell.interval is None else [f"[{text(cell.interval[0])}, {text(cell.interval[1])}]"]
    return "\n".join([*lines, *([f"paper {'; '.join(map(str, cell.printed))}"] if cell.printed else [])])


def _difference(found: Difference | None) -> str:
    if found is None or not found.n:
        return "-"
    span = "" if found.interval is None else f"\n[{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
    return f"{found.mean:+.3f}{span}\n{found.verdict}"


def _takes(found: SectionResult) -> Table:
    """What each variant takes by itself, whoever paid for it first."""
    rows = list[Sequence[str]]()
    for row in found.rows:
        each = row.evaluation
        taken = each.taken
        cost = "-" if taken.unpriced else f"{taken.cost:,.4f}"
        failed = f"{sum(one.failures for one in row.evaluations):,}"
        rows.append(
            (
                row.label,
                f"{taken.calls:,.0f}",
                f"{taken.tokens:,.0f}",
                f"{taken.seconds:,.1f}",
                cost,
                failed,
                f"{each.lost:.1%}",
            )
        )
    heads = ("variant", "calls", "tokens", "seconds", "US$", "failed", "lost calls")
    return table(heads, rows, "what it takes by itself, writing and answering together")


def _remarks(found: SectionResult) -> Iterator[str]:
    for label, rate in found.win_rates.items():
        span = "" if rate.interval is None else f" [{rate.interval.low:.3f}, {rate.interval.high:.3f}]"
        value = "-" if rate.rate is None else f"{rate.rate:.3f}{span}"
        yield f"win rate, {label}: {value} over {rate.n} questions, judged in both orders"
    for label, error in found.failed.items():
        yield f"failed: {label}: {error}"
    for label in found.broken:
        yield f"broken: {label}: so many of its questions failed, or of its calls were lost, that its score says little"
    if found.section.note:
        yield found.section.note
