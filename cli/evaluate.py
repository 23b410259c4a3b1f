"""`mempiler evaluate`: score a method or a saved program."""

from __future__ import annotations

from typing import Any

import click

from ..errors import UserError
from .check import JUDGES, check_data, check_judge
from .options import REPLAY, WORKERS, make_setup, setup_options
from .printing import first_line, output, report, show_plan
from .progress import progress
from .show import run_lines


@click.command("evaluate")
@click.argument("program")
@setup_options
@REPLAY
@WORKERS
@click.option(
    "--check", is_flag=True, help="say what is in the file of --data and what is wrong with it; score nothing"
)
@click.option(
    "--part", type=click.Choice(["all", "train", "dev", "test"]), default="all", help="of the split of compile"
)
def command(program: str, planned: bool, part: Any, check: bool, **values: Any) -> None:
    """Score PROGRAM on a benchmark.

    PROGRAM is a method name, module:Class, or a saved program: its folder, or models:/NAME@ALIAS. Or what else answers:
    module:thing, the URL of a chat endpoint, a file of answers (*.jsonl), system:NAME; see docs/own_systems.md. With
    --on judge-check it is a benchmark, whose judge (--judge-lm) is given answers that are known to be right or wrong,
    or `judge` for ours.
    """
    from ..runs.experiment import compiled_on, run_evaluate
    from ..runs.planning import plan_evaluate
    from ..runs.registry import pinned, program_folder
    from ..runs.results import refuse_broken

    setup = make_setup(values)
    if planned and setup.benchmark == JUDGES:
        raise UserError("checking a judge has no --plan: it is asked once for each labelled answer")
    if check or setup.benchmark == JUDGES:
        check_data(setup) if check else check_judge(program, setup)
        return
    program = pinned(program)
    first_line(setup, program, part)
    if planned:
        show_plan(plan_evaluate(program, setup, part))
        return
    folder = program_folder(program) if part == "all" else None
    if folder is not None and compiled_on(folder, setup.load()):
        output(errors=True).print("note: it was compiled on this file; --part test leaves its training questions out")
    with progress(setup.limits) as (note, meter):
        found = run_evaluate(program, setup, part, note, meter)
    report(found.summary(), run_lines(str(found.run_id)))
    refuse_broken(found, found.run_id)
