"""`mempiler evaluate`: score a method or a saved program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..errors import UserError
from .check import JUDGES, check_data, check_judge
from .options import PART, REPLAY, WORKERS, make_setup, setup_options
from .overview import print_page
from .printing import first_line, output, page_line, print_json, show_plan
from .progress import progress


@click.command("evaluate")
@click.argument("program")
@setup_options
@REPLAY
@WORKERS
@click.option("--model", help="which of an endpoint's models answers, where PROGRAM is its URL")
@click.option(
    "--check", is_flag=True, help="say what is in the file of --data and what is wrong with it; score nothing"
)
@PART
def command(
    program: str,
    as_json: bool,
    planned: bool,
    part: Any,
    model: str | None,
    check: bool,
    **values: Any,
) -> None:
    """Score PROGRAM on a benchmark.

    PROGRAM is a method name, module:Class, or a saved program: its folder, or models:/NAME@ALIAS. Or what else answers:
    module:thing, the URL of a chat endpoint, a file of answers (*.jsonl), system:NAME; see docs/own_systems.md. With
    --on judge-check it is a benchmark, whose judge (--judge-lm) is given answers that are known to be right or wrong,
    or `judge` for ours.
    """
    from ..engines.meter import Meter
    from ..runs.experiment import compiled_on, run_evaluate
    from ..runs.folder import RunFolder
    from ..runs.pages.page import open_page
    from ..runs.planning import plan_evaluate
    from ..runs.registry import pinned, program_folder
    from ..runs.results import refuse_broken

    setup, errors = make_setup(values), output(errors=True)
    setup = setup if model is None else replace(setup, config={**setup.config, "model": model})
    if planned and setup.benchmark == JUDGES:
        raise UserError("checking a judge has no --plan: it is asked once for each labelled answer")
    if check or setup.benchmark == JUDGES:
        check_data(setup, as_json) if check else check_judge(program, setup, as_json)
        return
    console = errors if as_json else output()
    program = pinned(program)
    first_line(console, setup, program, part)
    if planned:
        show_plan(console, plan_evaluate(program, setup, part), as_json)
        return
    folder = program_folder(program) if part == "all" else None
    if folder is not None and compiled_on(folder, setup.load()):
        hint = "note: this program was compiled on this file; --part test leaves its training questions out"
        errors.print(hint, soft_wrap=True)
    meter = Meter()
    with progress(errors, meter, setup.limits) as note:
        found = run_evaluate(program, setup, part, note, meter)
    if as_json:
        print_json(found.summary())
    else:
        run = RunFolder.open(str(found.run_id)).path
        print_page(console, open_page(str(run)))
        console.print(f"MLflow run: {found.run_id} (mempiler ui)\n{page_line(run)}", soft_wrap=True)
    refuse_broken(found, found.run_id)
