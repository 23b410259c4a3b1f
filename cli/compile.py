"""`mempiler compile`: tune a method's prompts against a benchmark."""

from __future__ import annotations

from typing import Any

import click

from .options import MIN_N, REPLAY, WORKERS, make_setup, parse_settings, setup_options
from .printing import first_line, report, show_plan
from .progress import progress
from .show import run_lines


@click.command("compile")
@click.argument("method")
@setup_options
@REPLAY
@WORKERS
@click.option("--with", "optimizer", default="bootstrap", help="see `mempiler list`")
@click.option("--stage", type=click.Choice(["read", "write", "all"]), default="all")
@click.option("--optimizer-set", "settings", multiple=True, metavar="NAME=VALUE", help="a setting of the optimizer")
@click.option("--out", type=click.Path(), help="folder for the program [default: a new one under runs/local]")
@MIN_N
@click.option("--force", is_flag=True, help="keep the compiled program even without a significant gain on dev")
def command(method: str, planned: bool, settings: tuple[str, ...], **values: Any) -> None:
    """Tune METHOD and save the program.

    METHOD is a name, module:Class, or a saved program to start from: its folder, or models:/NAME@ALIAS. The result is
    scored on held-out test questions before and after, and kept only for a significant gain on the dev questions.
    """
    from ..optimizers.compile import Compilation
    from ..runs.compile import run_compile

    setup = make_setup(values)
    first_line(setup, method)
    how = Compilation(values.pop("optimizer"), values.pop("stage"), settings=parse_settings(settings))
    if planned:
        from ..runs.planning import plan_compile

        return show_plan(plan_compile(method, setup, how))
    with progress(setup.limits) as (note, meter):
        done = run_compile(method, setup, how, note=note, meter=meter, **values)
    more = [f"trained model: {done.model}"] if done.model else []
    if done.stopped:
        more.append(f"stopped by a limit: {done.stopped}; --resume {done.run.name} goes on")
    report(done.summary(), run_lines(done.run, *more, f"program: {done.program}"))
    done.refuse_broken()
