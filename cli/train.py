"""`mempiler train`: train the language model behind a method by reinforcement learning."""

from __future__ import annotations

import os
from typing import Any

import click

from .options import parse_settings, said, setup_options, take_run_options
from .printing import report, show_plan
from .progress import quiet_output
from .show import run_lines

_SETTINGS = "steps, tokens, horizons=[8,16,32], lora=16, answer_lm, ..., of its reward or trainer: learning_rate=2e-4"
_OBJECTIVES = "logo-grpo, grpo, grpo-session, grpo-cumulative, local"


@click.command("train")
@click.argument("program")
@setup_options
@click.option("--optimizer", default="logo-grpo", help=_OBJECTIVES)
@click.option("--train-set", multiple=True, metavar="NAME=VALUE", help=_SETTINGS)
@click.option("--trainer", type=click.Choice(("local", "trl")), help="our own, or TRL's: weights in shards, vLLM")
@click.option("--out", help="folder for the program [default: in the run's folder under runs/local]")
def command(
    program: str,
    planned: bool,
    optimizer: str,
    train_set: tuple[str, ...],
    trainer: str | None,
    out: str | None,
    **values: Any,
) -> None:
    """Train the model behind PROGRAM on its memory operations, and save model and program.

    With `--lm local:tiny` a model is made and warmed up first. Several processes: `torchrun -m mempiler train ...`.
    """
    from ..engines.local.engine import follow
    from ..runs import api

    if not planned and follow():
        # At once: threads of torch's that wind down abort a process now and then, and torchrun then ends the first one.
        os._exit(0)
    metric = values.pop("metric")
    options = take_run_options(values)
    if not said("threads"):
        # A training has a default of its own.
        options.pop("threads", None)
    training: dict[str, Any] = {"optimizer": optimizer, "train_set": parse_settings(train_set), "trainer": trainer}
    if planned:
        return show_plan(api.plan_training(program, metric=metric, **training, **options))
    with quiet_output():
        result = api.train(program, metric=metric, out=out, **training, **options)
    report(result.to_dict(), run_lines(result.run, f"model: {result.model}", f"program: {result.folder}"))
