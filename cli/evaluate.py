"""`recollect evaluate`: score a method or a saved program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import first_line, make_setup, output, parse_settings, print_json, progress, setup_options, show_plan


@click.command("evaluate")
@click.argument("program")
@setup_options
@click.option(
    "--part",
    type=click.Choice(["all", "train", "dev", "test"]),
    default="all",
    show_default=True,
    help="all questions, or a part of the split that compile uses",
)
def command(
    program: str,
    as_json: bool,
    planned: bool,
    config: tuple[str, ...],
    part: Any,
    allow_code: bool,
    **values: Any,
) -> None:
    """Score PROGRAM (a method name, module:Class, or the folder of a saved program) on a benchmark."""
    from ..engines.meter import Meter
    from ..runs.experiment import compiled_on, run_evaluate
    from ..runs.planning import plan_evaluate
    from ..runs.report import print_evaluation

    setup, errors = make_setup(values), output(errors=True)
    console = errors if as_json else output()
    first_line(console, setup)
    if planned:
        show_plan(console, plan_evaluate(program, setup, part, parse_settings(config), allow_code), as_json)
        return
    if part == "all" and Path(program).is_dir() and compiled_on(program, setup.load()):
        hint = "note: this program was compiled on this file; --part test leaves its training questions out"
        errors.print(hint, soft_wrap=True)
    meter = Meter()
    with progress(errors, meter) as note:
        found = run_evaluate(program, setup, part, parse_settings(config), note, allow_code, meter)
    if as_json:
        print_json(found.summary())
        return
    print_evaluation(console, found)
    console.print(f"MLflow run: {found.run_id} (recollect ui)")
