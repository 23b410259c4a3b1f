"""`mempiler compile`: tune a method's prompts against a benchmark."""

from __future__ import annotations

from typing import Any

import click

from .options import MIN_N, REPLAY, WORKERS, make_setup, parse_settings, setup_options
from .printing import first_line, print_notes, report, show_plan
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
@click.option(
    "--out",
    type=click.Path(),
    help="folder for the program; one that is there is replaced only if the compiled program is kept "
    "[default: a new one under runs/local]",
)
@MIN_N
@click.option(
    "--force",
    is_flag=True,
    help="keep the compiled program even without a significant gain on dev; with --resume, one that was refused",
)
def command(method: str, planned: bool, settings: tuple[str, ...], **values: Any) -> None:
    """Tune METHOD and save the program.

    METHOD is a name, module:Class, or a saved program to start from: its folder, or models:/NAME@ALIAS. The result is
    scored on held-out test questions before and after, and kept only for a significant gain on the dev questions. A
    result that is kept replaces an older program in the folder of --out; otherwise the older program stays, and the
    original is saved in the run's folder.
    """
    from ..optimizers.compile import Compilation
    from ..runs.compile import run_compile
    from ..runs.split_plan import plan_split

    setup = make_setup(values)
    first_line(setup, method)
    split = plan_split(setup)
    how = Compilation(values.pop("optimizer"), values.pop("stage"), settings=parse_settings(settings))
    if planned:
        from ..runs.planning import plan_compile

        return show_plan(plan_compile(method, setup, how), split=split)
    print_notes(split.shortages())
    if not split.dev.allows_verdict:
        print_notes([split.dev.line()])
    with progress(setup.limits) as (note, meter):
        done = run_compile(method, setup, how, note=note, meter=meter, **values)
    more = [f"trained model: {done.model}"] if done.model else []
    if done.stopped:
        more.append(f"stopped by a limit: {done.stopped}; --resume {done.run.name} goes on")
    program = f"program: {done.program}"
    if done.untouched_out is not None:
        program += f" (the original); {done.untouched_out} holds another program, which was left as it is"
    report(done.summary(), run_lines(done.run, *more, program))
    done.refuse_broken()
