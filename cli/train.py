"""`mempiler train`: train the language model behind a method by reinforcement learning."""

from __future__ import annotations

from typing import Any

import click

from ..runs.config import UNAVAILABLE_OPTIONS
from ..runs.setting_pairs import parse_settings
from .config import FileOption
from .options import JSON, PLAN, parse_run_options, run_options, was_given
from .printing import print_plan, print_result
from .progress import quiet_output
from .show import run_lines
from .training import follow_first_process, training_options

_OBJECTIVES = "logo-grpo, grpo, grpo-session, grpo-cumulative, local"


@click.command("train")
@click.argument("program")
@run_options(without=UNAVAILABLE_OPTIONS["train"])
@click.option(
    "--optimizer",
    cls=FileOption,
    file_key="training.optimizer",
    default="logo-grpo",
    help=_OBJECTIVES,
)
@PLAN
@JSON
@training_options
@click.option(
    "--out", help="folder for the program [default: in the run's folder under runs/local]"
)
def command(
    program: str,
    planned: bool,
    metric: str | None,
    optimizer: str,
    train_set: tuple[str, ...],
    trainer: str | None,
    out: str | None,
    **values: Any,
) -> None:
    """Train the model behind PROGRAM on its memory operations, and save model and program.

    With `--lm local:tiny` a model is made and warmed up first. Several processes: `torchrun -m
    mempiler train ...`.
    """
    from ..runs import api

    follow_first_process(planned)
    options = parse_run_options(values)
    if not was_given("threads"):
        # A training has a default of its own.
        options.pop("threads", None)
    training_settings = parse_settings(train_set)

    if planned:
        plan = api.plan_training(
            program,
            metric=metric,
            optimizer=optimizer,
            train_set=training_settings,
            trainer=trainer,
            **options,
        )
        print_plan(plan)
        return

    with quiet_output():
        result = api.train(
            program,
            metric=metric,
            optimizer=optimizer,
            train_set=training_settings,
            trainer=trainer,
            out=out,
            **options,
        )
    lines = run_lines(result.run, f"model: {result.model}", f"program: {result.folder}")
    print_result(result.to_dict(), lines)
