"""`mempiler reproduce`: a paper's tables and ours, one after the other and never mixed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .options import SIGN_KEY, first_line, make_setup, output, parse_settings, print_json, setup_options
from .progress import progress

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from ..runs.recipes.recipe import Recipe, Reproduced
    from ..runs.recipes.section import Section
    from ..runs.recipes.tables import Cell, OurTable, PaperTable
    from ..runs.setup import Setup


@click.command("reproduce")
@click.argument("name")
@setup_options
@click.option("--sections", "listed", is_flag=True, help="list the sections and what each runs, and spend nothing")
@click.option("--only", multiple=True, metavar="SECTION", help="run one section of the recipe; may be repeated")
@click.option(
    "--rung-set", "changes", multiple=True, metavar="RUNG.NAME=VALUE", help="of memory-r2, e.g. sft.learning_rate=1e-4"
)
@click.option(
    "--program", "programs", multiple=True, metavar="METHOD=PROGRAM", help="a saved program in the place of a method"
)
@SIGN_KEY
@click.option("--seeds", type=click.IntRange(1), help="repetitions; tables show mean and spread [default: the paper's]")
def command(
    name: str,
    as_json: bool,
    planned: bool,
    config: tuple[str, ...],
    allow_code: bool,
    only: tuple[str, ...],
    seeds: int | None,
    data: tuple[str, ...],
    changes: tuple[str, ...],
    programs: tuple[str, ...],
    listed: bool,
    **values: Any,
) -> None:
    """Run the sections of the paper NAME on its benchmarks, and print its tables and ours.

    Without --judge-lm an LM-free metric stands in where the benchmark has one, and there are no win rates.
    """
    from ..engines.meter import Meter
    from ..runs.recipes.adaptation import Adaptation
    from ..runs.recipes.catalog import recipe
    from ..runs.recipes.forecast import plan_recipe, print_forecast
    from ..runs.recipes.recipe import run_recipe

    found = recipe(name)
    plain, files = _files(found, data)
    setup = found.suited(make_setup({**values, "benchmark": values.get("benchmark") or "", "data": plain}))
    if listed:
        _list(found, found.chosen(only, setup.benchmark), setup, as_json)
        return
    adaptation = Adaptation(parse_settings(config), _programs(programs))
    console, errors, meter = output(errors=True) if as_json else output(), output(errors=True), Meter()
    named = {section.benchmark for section in found.chosen(only, setup.benchmark)}
    benchmark = named.pop() if len(named) == 1 else setup.benchmark
    first_line(console, replace(setup, data=", ".join(data) or None, benchmark=benchmark), counts=False)
    if planned:
        forecast = plan_recipe(found, setup, only, seeds, files, adaptation, parse_settings(changes))
        if as_json:
            print_json(forecast.summary())
        else:
            print_forecast(console, forecast)
        return
    with progress(errors, meter, setup.limits) as note:
        chosen = only, seeds, files, meter, parse_settings(changes), adaptation
        made = run_recipe(found, setup, None, note, *chosen)
    if as_json:
        print_json(made.summary())
        return
    _print(console, made)


for _option in command.params:
    # The recipe has its own benchmarks; --on chooses one of them. With several, each may have a file.
    if _option.name == "benchmark":
        _option.required = False
    if _option.name == "config" and isinstance(_option, click.Option):
        _option.help, _option.metavar = "a setting in every variant that has it", "[METHOD.]NAME=VALUE"
    if _option.name == "data" and isinstance(_option, click.Option):
        _option.multiple, _option.default, _option.type = True, (), click.STRING
        _option.metavar = "[BENCHMARK=]FILE"


def _files(found: Recipe, data: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The file without a benchmark's name before it, and the others by benchmark.

    Raises:
        UserError: There are several without a name.
    """
    from ..errors import UserError

    named = {}
    plain = []
    for value in data:
        benchmark, equals, path = value.partition("=")
        if equals and found.takes(benchmark):
            named[benchmark] = path
        else:
            plain.append(value)
    if len(plain) > 1:
        raise UserError(f"--data {plain[1]}: say which benchmark it is of, e.g. --data {found.benchmarks[0]}=FILE")
    return (plain[0] if plain else None), named


def _programs(pairs: tuple[str, ...]) -> dict[str, str]:
    """Saved programs by the method they stand for; folders by their whole path.

    Raises:
        UserError: A pair has no "=".
    """
    from ..errors import UserError
    from ..runs.addresses import is_address, pinned

    found = {}
    for pair in pairs:
        method, equals, program = pair.partition("=")
        if not equals:
            raise UserError(f"--program {pair}: is not METHOD=PROGRAM")
        found[method] = pinned(program) if is_address(program) else str(Path(program).absolute())
    return found


def _list(found: Recipe, sections: tuple[Section, ...], setup: Setup, as_json: bool) -> None:
    """Prints the sections that a command would run, and which of their systems it would leave out."""
    from ..runs.recipes.rivals import missed

    rows = [
        {
            "section": each.name,
            "title": each.title,
            "on": [each.benchmark, *each.others],
            "variants": [variant.label for variant in each.all_variants()],
            "systems": [
                {"label": rival.label, "system": rival.method, "left_out": missed(rival, setup)}
                for rival in each.rivals
            ],
            "seeds": each.seeds or found.seeds,
        }
        for each in sections
    ]
    if as_json:
        print_json({"recipe": found.name, "sections": rows})
        return
    table = Table("section", "on", "variants", "systems", "seeds", "title")
    for row in rows:
        systems = sum(not each["left_out"] for each in row["systems"])
        counts = str(len(row["variants"])), f"{systems} of {len(row['systems'])}", str(row["seeds"])
        table.add_row(row["section"], ", ".join(row["on"]), *counts, row["title"])
    output().print(table)


def _print(console: Console, made: Reproduced) -> None:
    for done in made.sections:
        console.print(f"\n== {done.section.name}: {done.section.title}", style="bold", soft_wrap=True)
        if done.section.paper:
            console.print("\nAs the paper prints it (other models, other data than below)\n", style="bold")
        for table in done.section.paper:
            _paper(console, table)
        console.print("\nOurs\n", style="bold")
        if done.heading:
            console.print(Text(done.heading), soft_wrap=True)
        for found in (*done.tables, *done.beside):
            _ours(console, found)
        for path in done.pictures:
            console.print(f"picture: {path}", soft_wrap=True)
    console.print()
    for note in made.notes:
        console.print(f"note: {note}", soft_wrap=True)
    if made.stopped:
        again = f"what is missing above was not run; --resume {made.run.name} goes on"
        console.print(f"stopped by a limit: {made.stopped}; {again}", soft_wrap=True)
    console.print(f"run: {made.run}\nMLflow run: {made.run_id} (mempiler ui)", soft_wrap=True)


def _paper(console: Console, table: PaperTable) -> None:
    # Outside the table, which would break the line at its own width.
    console.print(f"{table.title}; {table.model}", style="italic", soft_wrap=True)
    shown = Table()
    for column in table.columns:
        shown.add_column(column)
    for row in table.rows:
        shown.add_row(*("-" if cell is None else str(cell) for cell in row))
    console.print(shown)
    if table.note:
        console.print(table.note, soft_wrap=True)


def _ours(console: Console, table: OurTable) -> None:
    console.print(f"ours: {table.title}", style="italic", soft_wrap=True)
    shown = Table()
    for n, column in enumerate(table.columns):
        # Names of columns may wrap at their words; numbers may not be cut.
        wide = 16 if "interval" in column else 5
        first = 18 if len(table.columns) > 6 else None
        side: JustifyMethod = "right" if n else "left"
        # Names of questions are looked up: they may break, and are not cut.
        shown.add_column(column.replace("_", " "), justify=side, min_width=wide if n else first, overflow="fold")
    apart = any("interval" in column for column in table.columns)
    for row in table.rows:
        shown.add_row(*(_cell(cell, apart) for cell in row))
    console.print(shown)
    if table.note:
        console.print(table.note, soft_wrap=True)


def _cell(cell: Cell, apart: bool = False) -> str:
    """A cell's text, its interval on a line of its own unless it stands apart."""
    from ..runs.recipes.tables import Measured

    if isinstance(cell, Measured):
        value = str(cell)
        interval = "" if apart else cell.shown().removeprefix(value).strip()
        return f"{value}\n{interval}" if interval else value
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:.3f}"
