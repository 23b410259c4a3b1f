"""`mempiler evaluate`: score a program or a system, check a data file, or measure a judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..runs.config import UNAVAILABLE_OPTIONS
from .check_data import check_data_file
from .check_judge import JUDGE_CHECK, check_judge
from .config import FileOption
from .options import JSON, PLAN, make_inputs, parse_run_options, run_options
from .printing import print_notes, print_plan, print_result
from .progress import quiet_output
from .show import run_lines

if TYPE_CHECKING:
    from ..runs.evaluate import Part
    from ..runs.options import RunOptions


@click.command("evaluate")
@click.argument("program")
@run_options(without=UNAVAILABLE_OPTIONS["evaluate"])
@PLAN
@JSON
@click.option(
    "--check",
    is_flag=True,
    help="score nothing: print what the file of --data holds, what is wrong with it, and its split",
)
@click.option(
    "--split",
    cls=FileOption,
    file_key="evaluation.split",
    type=click.Choice(["all", "train", "dev", "test"]),
    default="all",
    help="which part of compile's questions",
)
def command(program: str, planned: bool, split: Part, check: bool, **values: Any) -> None:
    """Score PROGRAM on a benchmark. With --check or a judge's benchmark, check these instead.

    PROGRAM is the name of a method, module:Class, or a saved program: its folder, or
    models:/NAME@ALIAS.

    PROGRAM can also be a system beside Mempiler: module:thing for your own, the URL of a chat
    endpoint, a file of answers (*.jsonl, or a harness's *.json), or system:NAME for a shipped one;
    see docs/own_systems.md.

    --benchmark judge-check scores no program, but a judge (--judge-lm): it judges answers that are
    known to be right or wrong. PROGRAM then names a benchmark, whose judge is measured, or is
    `judge` for Mempiler's own judge.
    """
    from ..runs.program_address import pin_address

    # The functions for the first two modes take the metric out of `values` themselves.
    if check:
        check_data_file(make_inputs(values))
        return
    if values["benchmark"] == JUDGE_CHECK:
        check_judge(program, make_inputs(values), is_plan=planned)
        return

    # An alias may move to another version of the program while the run works.
    program = pin_address(program)
    metric: str | None = values["metric"]
    options = parse_run_options(values)
    if planned:
        _print_plan(program, split, options, metric)
    else:
        _score(program, split, options, metric)


def _print_plan(program: str, split: Part, options: RunOptions, metric: str | None) -> None:
    """Print what scoring a program would take, without asking a model."""
    from ..runs import api

    plan = api.plan(program, metric=metric, optimizer=None, split=split, **options)
    print_plan(plan)


def _score(program: str, split: Part, options: RunOptions, metric: str | None) -> None:
    """Score a program and print the evaluation.

    Raises:
        BrokenRunError: Too many questions failed, or a limit was reached before the first answer.
    """
    from ..runs import api
    from ..runs.program_address import program_folder
    from ..runs.results import raise_if_unanswered, refuse_broken

    # A part of the questions is the one that `compile` made, which keeps training questions apart.
    saved_program = program_folder(program) if split == "all" else None
    if saved_program is not None and _is_compiled_on(saved_program, options, metric):
        note = "it was compiled on this file; --split test leaves its training questions out"
        print_notes([note])

    with quiet_output():
        evaluation = api.evaluate(program, metric=metric, split=split, **options)

    # The scores are printed first, so that a user sees those of a broken run, too.
    run_id = evaluation.run_id
    print_result(evaluation.to_dict(), run_lines(str(run_id)))
    refuse_broken(evaluation, run_id)
    raise_if_unanswered([evaluation], evaluation.stopped, run_id)


def _is_compiled_on(saved_program: Path, options: RunOptions, metric: str | None) -> bool:
    """Return whether a saved program was compiled on the very file that the options name."""
    from ..runs.evaluate import compiled_on
    from ..runs.options import Questions, make_inputs

    inputs = make_inputs(options, Questions(metric=metric))
    return compiled_on(saved_program, inputs.benchmark)
