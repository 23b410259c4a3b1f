"""`mempiler evaluate`: score a program or a system, check a data file, or measure a judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .check_data import check_data_file
from .check_judge import JUDGE_CHECK, check_judge
from .options import (
    MIN_N,
    REPLAY,
    WORKERS,
    answer_options,
    make_setup,
    setup_options,
    take_run_options,
)
from .printing import print_notes, print_plan, print_result
from .progress import quiet_output
from .show import run_lines

if TYPE_CHECKING:
    from ..runs.experiment import Part


@click.command("evaluate")
@click.argument("program")
@setup_options
@answer_options
@REPLAY
@WORKERS
@MIN_N
@click.option(
    "--check",
    is_flag=True,
    help="score nothing: say what is in the file of --data, wrong with it, and how it is split",
)
@click.option(
    "--split",
    type=click.Choice(["all", "train", "dev", "test"]),
    default="all",
    help="of compile's questions",
)
def command(program: str, planned: bool, split: Part, check: bool, **values: Any) -> None:
    """Score PROGRAM on a benchmark.

    PROGRAM is a method name, module:Class, or a saved program: its folder, or models:/NAME@ALIAS.
    Or what else answers: module:thing, the URL of a chat endpoint, a file of answers (*.jsonl, or a
    harness's *.json), system:NAME; see docs/own_systems.md. With --benchmark judge-check it is a
    benchmark, whose judge (--judge-lm) is given answers that are known to be right or wrong, or
    `judge` for ours.
    """
    from ..runs import api
    from ..runs.experiment import compiled_on
    from ..runs.registry import pinned, program_folder
    from ..runs.results import raise_if_unanswered, refuse_broken

    if check:
        check_data_file(make_setup(values))
        return
    if values["benchmark"] == JUDGE_CHECK:
        check_judge(program, make_setup(values), is_plan=planned)
        return

    program = pinned(program)
    metric: str | None = values.pop("metric")
    run_options = take_run_options(values)
    if planned:
        plan = api.plan(program, metric=metric, optimizer=None, split=split, **run_options)
        print_plan(plan)
        return

    saved_program = program_folder(program) if split == "all" else None
    if saved_program is not None:
        setup = api.make_setup(run_options, api.Questions(metric=metric))
        if compiled_on(saved_program, setup.load()):
            note = "it was compiled on this file; --split test leaves its training questions out"
            print_notes([note])

    with quiet_output():
        evaluation = api.evaluate(program, metric=metric, split=split, **run_options)
    run_id = evaluation.run_id
    print_result(evaluation.to_dict(), run_lines(str(run_id)))
    refuse_broken(evaluation, run_id)
    raise_if_unanswered([evaluation], evaluation.stopped, run_id)
