"""`mempiler train`: train the language model behind a method by reinforcement learning."""

from __future__ import annotations

import os
from typing import Any

import click

from .options import make_setup, parse_settings, said, setup_options
from .printing import first_line, print_notes, report, show_plan
from .progress import progress
from .show import run_lines

_SETTINGS = "steps, tokens, horizons=[8,16,32], lora=16, answer_lm, ..., of its reward or trainer: learning_rate=2e-4"


@click.command("train")
@click.argument("method")
@setup_options
@click.option("--with", "objective", default="logo-grpo", help="logo-grpo, grpo, grpo-session, grpo-cumulative, local")
@click.option("--train-set", "settings", multiple=True, metavar="NAME=VALUE", help=_SETTINGS)
@click.option("--trainer", type=click.Choice(("local", "trl")), help="our own, or TRL's: weights in shards, vLLM")
@click.option("--out", help="folder for the program [default: in the run's folder under runs/local]")
def command(method: str, planned: bool, objective: str, trainer: str | None, out: str | None, **values: Any) -> None:
    """Train the model behind METHOD on its memory operations, and save model and program.

    With `--lm local:tiny` a model is made and warmed up first. Several processes: `torchrun -m mempiler train ...`.
    """
    from ..engines.local.engine import follow
    from ..optimizers.logo_grpo.training_config import TrainingConfig
    from ..runs.planning import plan_train
    from ..runs.split_plan import plan_split
    from ..runs.train import run_train

    if not planned and follow():
        # At once: threads of torch's that wind down abort a process now and then, and torchrun then ends the first one.
        os._exit(0)
    given = {"objective": objective, **parse_settings(values.pop("settings"))}
    given |= {"trainer": trainer} if trainer else {}
    if said("threads"):
        given["threads"] = values["threads"]
    course, setup = TrainingConfig.for_model(values["lm"]).changed(given), make_setup(values)
    first_line(setup, method)
    split = plan_split(setup)
    if planned:
        return show_plan(plan_train(method, setup, course), split=split)
    print_notes(split.shortages())
    with progress(setup.limits) as (note, meter):
        done = run_train(method, setup, course, out, note, meter)
    report(done.summary(), run_lines(done.run, f"model: {done.model}", f"program: {done.program}"))
