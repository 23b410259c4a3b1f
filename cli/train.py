"""`mempiler train`: train the language model behind a method by reinforcement learning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..errors import UserError
from .options import (
    SIGN_KEY,
    Finite,
    first_line,
    make_setup,
    output,
    parse_settings,
    print_json,
    progress,
    setup_options,
)

_SETTINGS = {
    "rollouts": "num_rollouts",
    "local_n": "local_n",
    "local_fraction": "local_fraction",
    "session_reward": "session_reward",
    "weights": "weights",
    "histories": "histories",
    "validate_every": "validate_every",
}
"""Options that are settings of the training, by their names there."""


@click.command("train")
@click.argument("method")
@setup_options
@click.option("--with", "objective", default="logo-grpo", show_default=True, help="logo-grpo, grpo or local")
@click.option("--only", is_flag=True, help="train just that; on memory-env logo-grpo is compared with the others")
@click.option("--horizons", help="sessions per stage, e.g. 8,16,32")
@click.option("--steps", type=int, help="most steps of a stage")
@click.option("--budget", type=int, help="generated tokens of a training, the same for all objectives")
@click.option("--rollouts", type=int, help="trajectories per conversation and step")
@click.option("--local-n", type=int, help="reruns per local group")
@click.option("--local-fraction", type=Finite(0, 1), help="chance of a session to get a local group")
@click.option("--session-reward", help="session, cumulative or trajectory")
@click.option("--weights", help="shared by all roles, or separate: a model for each [default: shared]")
@click.option("--histories", type=int, help="training conversations per step")
@click.option("--validate-every", type=int, help="steps between two validations and checkpoints")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="trainings per objective")
@click.option("--lora", type=click.IntRange(1), help="rank of an adapter; all weights are trained without")
@click.option("--dtype", help="of the weights: float32 or bfloat16 [default: float32 on the CPU, bfloat16 on a GPU]")
@click.option("--answer-tokens", type=click.IntRange(1), help="most tokens of one completion")
@click.option("--answer-lm", help="answers the questions rewards come from [default: the model itself]")
@click.option("--reward-set", "rewards", multiple=True, metavar="NAME=VALUE", help="e.g. compression=0.2")
@click.option("--train-set", "kwargs", multiple=True, metavar="NAME=VALUE", help="e.g. learning_rate=2e-4")
@SIGN_KEY
@click.option("--out", help="folder for the program [default: in the run's folder under runs/local]")
def command(method: str, as_json: bool, planned: bool, config: tuple[str, ...], out: str | None, **values: Any) -> None:
    """Train the model behind METHOD on its memory operations, and save model and program.

    With `--lm local:tiny` a model of half a million weights is made and warmed up first.
    """
    from ..engines.meter import Meter
    from ..runs.train import run_train
    from ..runs.trained import print_trained

    if planned:
        raise UserError("train has no --plan: what a rollout takes depends on what the model writes; use --budget")
    allow_code = values.pop("allow_code")
    course = _course({name: values.pop(name) for name in list(values) if name in _OWN}, values["lm"], values)
    setup, errors = make_setup(values), output(errors=True)
    first_line(errors if as_json else output(), setup)
    meter = Meter()
    with progress(errors, meter) as note:
        outcome = run_train(method, setup, course, out, parse_settings(config), note, allow_code, meter)
    if as_json:
        print_json(outcome.summary())
    else:
        print_trained(output(), outcome)


_OWN = {
    *_SETTINGS,
    "objective",
    "only",
    "horizons",
    "steps",
    "budget",
    "seeds",
    "lora",
    "dtype",
    "answer_tokens",
    "answer_lm",
    "rewards",
    "kwargs",
}


def _course(given: dict[str, Any], lm: str, setup: dict[str, Any]) -> Any:
    """The course for a model with what the options change."""
    from ..runs.course import Course

    course = Course.for_model(lm)
    settings, curriculum = course.settings, course.settings.curriculum
    changes = {to: given[name] for name, to in _SETTINGS.items() if given[name] is not None}
    stages: dict[str, Any] = {"horizons": _horizons(given["horizons"])} if given["horizons"] else {}
    stages |= {to: given[name] for name, to in (("steps", "steps"), ("budget", "tokens")) if given[name] is not None}
    if given["steps"] is not None and given["budget"] is None:
        stages["tokens"] = None
    try:
        reward = replace(settings.reward, **parse_settings(given["rewards"]))
    except TypeError as error:
        known = ", ".join(vars(settings.reward))
        raise UserError(f"--reward-set: {error}; it has: {known}") from error
    compared = given["objective"] == "logo-grpo" and not given["only"] and setup["benchmark"] == "memory-env"
    changed = {name: given[name] for name in ("lora", "dtype", "answer_tokens", "answer_lm") if given[name] is not None}
    return replace(
        course,
        objective=given["objective"],
        compared=("grpo", "local") if compared else (),
        seeds=given["seeds"],
        settings=replace(settings, reward=reward, curriculum=replace(curriculum, **stages), **changes),
        train_kwargs={**course.train_kwargs, **parse_settings(given["kwargs"])},
        **changed,
    )


def _horizons(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--horizons {text!r}: numbers of sessions with commas between, e.g. 8,16,32") from None
