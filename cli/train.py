"""`mempiler train`: train the language model behind a method by reinforcement learning."""

from __future__ import annotations

from typing import Any

import click

from .options import make_setup, parse_settings, said, setup_options
from .printing import first_line, report, show_plan
from .progress import progress
from .show import run_lines

_OBJECTIVES = "logo-grpo, grpo, grpo-session, grpo-cumulative or local"
_SETTINGS = (
    "of the training: steps, tokens, horizons=[8,16,32], lora=16, answer_lm, num_rollouts, ..., of its reward: "
    "compression, or of the trainer: learning_rate=2e-4"
)


@click.command("train")
@click.argument("method")
@setup_options
@click.option("--with", "objective", default="logo-grpo", help=_OBJECTIVES)
@click.option("--train-set", "settings", multiple=True, metavar="NAME=VALUE", help=_SETTINGS)
@click.option("--out", help="folder for the program [default: in the run's folder under runs/local]")
def command(method: str, planned: bool, objective: str, out: str | None, **values: Any) -> None:
    """Train the model behind METHOD on its memory operations, and save model and program.

    With `--lm local:tiny` a model of half a million weights is made and warmed up first.
    """
    from ..runs.planning import plan_train
    from ..runs.train import run_train
    from ..runs.training_config import TrainingConfig

    given = {"objective": objective, **parse_settings(values.pop("settings"))}
    if said("threads"):
        given["threads"] = values["threads"]
    course, setup = TrainingConfig.for_model(values["lm"]).changed(given), make_setup(values)
    first_line(setup, method)
    if planned:
        show_plan(plan_train(method, setup, course))
        return
    with progress(setup.limits) as (note, meter):
        done = run_train(method, setup, course, out, note, meter)
    report(done.summary(), run_lines(done.run, f"model: {done.model}", f"program: {done.program}"))
