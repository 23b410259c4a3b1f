"""`mempiler compile`: tune a method's prompts against a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import MIN_N, REPLAY, WORKERS, make_setup, parse_settings, setup_options
from .overview import print_page
from .printing import first_line, output, page_line, print_json, show_plan
from .progress import progress

if TYPE_CHECKING:
    from rich.console import Console

    from ..runs.compile import Compiled


@click.command("compile")
@click.argument("method")
@setup_options
@REPLAY
@WORKERS
@click.option("--with", "optimizer", default="bootstrap", show_default=True, help="see `mempiler list`")
@click.option("--stage", type=click.Choice(["read", "write", "all"]), default="all", show_default=True)
@click.option("--optimizer-set", "settings", multiple=True, metavar="NAME=VALUE", help="a setting of the optimizer")
@click.option("--out", type=click.Path(), help="folder for the program [default: a new one under runs/local]")
@MIN_N
@click.option("--force", is_flag=True, help="keep the compiled program even without a significant gain on dev")
def command(method: str, as_json: bool, planned: bool, settings: tuple[str, ...], **values: Any) -> None:
    """Tune METHOD and save the program.

    METHOD is a name, module:Class, or a saved program to start from: its folder, or models:/NAME@ALIAS. The result is
    scored on held-out test questions before and after, and kept only for a significant gain on the dev questions.
    """
    from ..engines.meter import Meter
    from ..optimizers.compile import Compilation
    from ..runs.compile import run_compile
    from ..runs.planning import plan_compile
    from ..runs.results import refuse_broken

    setup, errors = make_setup(values), output(errors=True)
    console = errors if as_json else output()
    first_line(console, setup, method)
    seeded = {"seed": setup.seed, "threads": setup.threads, "settings": parse_settings(settings)}
    how = Compilation(values.pop("optimizer"), values.pop("stage"), **seeded)
    if planned:
        show_plan(console, plan_compile(method, setup, how), as_json)
        return
    meter = Meter()
    with progress(errors, meter, setup.limits) as note:
        outcome = run_compile(method, setup, how, note=note, meter=meter, **values)
    if as_json:
        print_json(outcome.summary())
    else:
        _print(console, outcome)
    for found in (outcome.dev[0], outcome.start, outcome.result):
        refuse_broken(found, outcome.run.name)


def _print(console: Console, outcome: Compiled) -> None:
    from ..runs.pages.page import open_page

    print_page(console, open_page(str(outcome.run)))
    if outcome.model:
        console.print(f"trained model: {outcome.model}", soft_wrap=True)
    if outcome.stopped:
        console.print(f"stopped by a limit: {outcome.stopped}; --resume {outcome.run.name} goes on", soft_wrap=True)
    console.print(f"program: {outcome.program}\nMLflow run: {outcome.run_id} (mempiler ui)", soft_wrap=True)
    console.print(page_line(outcome.run), soft_wrap=True)
