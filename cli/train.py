"""`mempiler train`: train the language model behind a method by reinforcement learning."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .options import make_setup, parse_settings, setup_options
from .printing import first_line, report, show_plan
from .progress import progress
from .show import run_lines

if TYPE_CHECKING:
    from ..runs.course import Course

_OBJECTIVES = "logo-grpo, grpo, grpo-session, grpo-cumulative or local"
_SETTINGS = (
    "of the training: seeds, steps, tokens, horizons=[8,16,32], lora=16, answer_lm, num_rollouts, ..., of its reward: "
    "compression, or of the trainer: learning_rate=2e-4"
)
USERS = {False: 400, True: 100}
"""Users of memory-env where objectives are compared, three of ten to score: a whole comparison, or a quick one."""


@click.command("train")
@click.argument("method")
@setup_options
@click.option("--with", "objective", default="logo-grpo", help=_OBJECTIVES)
@click.option("--only", is_flag=True, help="train just that; on memory-env logo-grpo is compared with the others")
@click.option("--quick", is_flag=True, help="the comparison on memory-env in a few minutes, too short to tell")
@click.option("--train-set", "settings", multiple=True, metavar="NAME=VALUE", help=_SETTINGS)
@click.option("--out", help="folder for the program [default: in the run's folder under runs/local]")
def command(
    method: str,
    planned: bool,
    objective: str,
    only: bool,
    quick: bool,
    settings: tuple[str, ...],
    out: str | None,
    **values: Any,
) -> None:
    """Train the model behind METHOD on its memory operations, and save model and program.

    With `--lm local:tiny` a model of half a million weights is made and warmed up first.
    """
    from ..runs.planning import plan_train
    from ..runs.train import run_train

    compared = objective == "logo-grpo" and not only and values["benchmark"] == "memory-env"
    given = {"objective": objective, **parse_settings(settings)}
    if click.get_current_context().get_parameter_source("threads") is not ParameterSource.DEFAULT:
        given["threads"] = values["threads"]
    course = _course(values["lm"], compared, quick).changed(given)
    setup = make_setup(values)
    if compared:
        setup = replace(setup, options={"users": USERS[quick], **setup.options})
    first_line(setup, method)
    if planned:
        show_plan(plan_train(method, setup, course))
        return
    with progress(setup.limits) as (note, meter):
        done = run_train(method, setup, course, out, note, meter)
    kept = f"kept: {done.kept.label}; model: local:{done.kept.model}"
    report(done.summary(), run_lines(done.run, kept, f"program: {done.program}"))


def _course(lm: str, compared: bool, quick: bool) -> Course:
    from ..runs.course import Course

    course = Course.for_model(lm)
    course = course.comparing() if compared else course
    return course.shortened() if quick else course
