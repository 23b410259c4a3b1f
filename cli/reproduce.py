"""`recollect reproduce`: a paper's tables and ours, one after the other and never mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from .options import first_line, make_setup, output, print_json, progress, setup_options

if TYPE_CHECKING:
    from ..runs.recipes.recipe import PaperTable, Reproduced


COUNTS = {"calls": "LM calls", "first": "facts, phase 1", "facts": "facts", "rounds": "rounds"}
"""Counts of the recall and what the table calls them; `--json` has all."""


@click.command("reproduce")
@click.argument("name")
@setup_options
def command(name: str, as_json: bool, planned: bool, config: tuple[str, ...], allow_code: bool, **values: Any) -> None:
    """Run the variants of the paper NAME on its benchmark, and print its tables and ours.

    Without --judge-lm an LM-free metric stands in where the benchmark has one, and there are no win rates.
    """
    from ..data.preference import PreferenceJudge
    from ..engines.meter import Meter
    from ..engines.models import language_model
    from ..errors import UserError
    from ..programs.adapter import adapter
    from ..runs.recipes.catalog import recipe
    from ..runs.recipes.recipe import run_recipe

    found = recipe(name)
    if config or planned or values.get("resume"):
        raise UserError("reproduce runs its own settings: --set, --plan and --resume do not go with it")
    setup, errors = make_setup({**values, "benchmark": values.get("benchmark") or found.benchmark}), output(errors=True)
    console, meter = errors if as_json else output(), Meter()
    first_line(console, setup)
    judge = None
    if setup.judge_lm:
        lm = language_model(setup.judge_lm, meter, "judge", setup.judge_api_base)
        judge = PreferenceJudge(lm, adapter())
    with progress(errors, meter) as note:
        made = run_recipe(found, setup, judge, note)
    if as_json:
        print_json(made.summary())
        return
    console.print("\nAs the paper prints it (other models, other data than below)\n", style="bold")
    for table in found.paper:
        console.print(_paper(table))
    _ours(console, made)


for _option in command.params:
    # The recipe has one of its own; --on names another of its paper.
    if _option.name == "benchmark":
        _option.required = False


def _paper(table: PaperTable) -> Table:
    shown = Table(title=f"{table.title}; {table.model}", title_justify="left")
    for column in table.columns:
        shown.add_column(column)
    for row in table.rows:
        shown.add_row(*("-" if cell is None else str(cell) for cell in row))
    return shown


def _ours(console: Console, made: Reproduced) -> None:
    from ..runs.report import heading

    first = made.rows[0].evaluation
    metrics = list(first.metrics())
    scores = _table(f"ours: {heading(first).partition(' on ')[2]}", ["n", "score", "95 % interval", *metrics])
    for row in made.rows:
        summary = row.evaluation.summary()
        interval = "-" if summary["interval"] is None else "[{:.3f}, {:.3f}]".format(*summary["interval"])
        score = "-" if summary["score"] is None else f"{summary['score']:.3f}"
        parts = [f"{summary['metrics'].get(name, 0.0):.3f}" for name in metrics]
        scores.add_row(row.label, str(summary["n"]), score, interval, *parts)
    taken = _table("ours: means a query; calls are those of the recall, without the answer", list(COUNTS.values()))
    for row in made.rows:
        taken.add_row(row.label, *(f"{row.per_query(name):.2f}" for name in COUNTS))
    console.print("\nOurs\n", style="bold")
    console.print(scores)
    console.print(taken)
    for label, rate in made.win_rates.items():
        console.print(f"win rate, {label}: {100 * rate:.1f} %")


def _table(title: str, columns: list[str]) -> Table:
    table = Table("variant", title=title, title_justify="left")
    for column in columns:
        # Names of metrics may wrap at their words; numbers may not be cut.
        table.add_column(column.replace("_", " "), justify="right", min_width=16 if "interval" in column else 5)
    return table
