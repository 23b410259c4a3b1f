"""`mempiler train`: train the language model behind a method by reinforcement learning."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..errors import UserError
from .options import make_setup, parse_settings, setup_options
from .overview import print_page
from .printing import first_line, output, page_line, print_json, show_plan
from .progress import progress

if TYPE_CHECKING:
    from ..runs.course import Course

_SETTINGS = "of the training: num_rollouts, local_n, histories, ..., or of the trainer: learning_rate=2e-4"
_OBJECTIVES = "logo-grpo, grpo, grpo-session, grpo-cumulative or local"
_COURSE = ("objective", "seeds", "lora", "answer_lm", "answer_api_base", "steps")
"""Options that are settings of a training by their own names."""
USERS = {False: 400, True: 100}
"""Users of memory-env where objectives are compared, three of ten to score: a whole comparison, or a quick one."""


@click.command("train")
@click.argument("method")
@setup_options
@click.option("--with", "objective", default="logo-grpo", show_default=True, help=_OBJECTIVES)
@click.option("--only", is_flag=True, help="train just that; on memory-env logo-grpo is compared with the others")
@click.option("--quick", is_flag=True, help="the comparison on memory-env in a few minutes, too short to tell")
@click.option("--horizons", help="sessions per stage, e.g. 8,16,32")
@click.option("--steps", type=int, help="most steps of a stage")
@click.option("--budget", type=int, help="generated tokens of a training, the same for all objectives")
@click.option("--seeds", type=click.IntRange(1), help="trainings per objective [default: 3 in a comparison, or 1]")
@click.option("--lora", type=click.IntRange(1), help="rank of an adapter; all weights are trained without")
@click.option("--answer-lm", help="answers the questions rewards come from [default: the model itself]")
@click.option("--answer-api-base", help="address of its server")
@click.option("--reward-set", "rewards", multiple=True, metavar="NAME=VALUE", help="e.g. compression=0.2")
@click.option("--train-set", "settings", multiple=True, metavar="NAME=VALUE", help=_SETTINGS)
@click.option("--out", help="folder for the program [default: in the run's folder under runs/local]")
def command(method: str, as_json: bool, planned: bool, out: str | None, **values: Any) -> None:
    """Train the model behind METHOD on its memory operations, and save model and program.

    With `--lm local:tiny` a model of half a million weights is made and warmed up first.
    """
    from ..engines.meter import Meter
    from ..runs.pages.page import read_page
    from ..runs.planning import plan_train
    from ..runs.train import run_train

    given = {name: values.pop(name) for name in list(values) if name in _OWN}
    if click.get_current_context().get_parameter_source("threads") is not ParameterSource.DEFAULT:
        given["threads"] = values["threads"]
    course, setup, errors = _course(given, values["lm"], values["benchmark"]), make_setup(values), output(errors=True)
    if course.compared:
        setup = replace(setup, options={"users": USERS[course.quick], **setup.options})
    first_line(errors if as_json else output(), setup, method)
    if planned:
        show_plan(output(), plan_train(method, setup, course), as_json)
        return
    meter = Meter()
    with progress(errors, meter, setup.limits) as note:
        outcome = run_train(method, setup, course, out, note, meter)
    if as_json:
        print_json(outcome.summary())
    else:
        console, page, kept = output(), read_page(outcome.run), outcome.kept
        if page is not None:
            print_page(console, page)
        console.print(f"kept: {kept.label}; model: local:{kept.model}\nprogram: {outcome.program}", soft_wrap=True)
        console.print(f"MLflow run: {outcome.run_id} (mempiler ui)\n{page_line(outcome.run)}", soft_wrap=True)


_OWN = {*_COURSE, "only", "quick", "horizons", "budget", "rewards", "settings"}


def _course(given: dict[str, Any], lm: str, benchmark: str) -> Course:
    """The course for a model with what the options change."""
    from ..runs.course import Course

    course = Course.for_model(lm)
    if given["objective"] == course.objective and not given["only"] and benchmark == "memory-env":
        course = course.comparing()
    if given["quick"]:
        course = course.shortened()
    changes = {name: value for name in (*_COURSE, "threads") if (value := given.get(name)) is not None}
    if given["horizons"]:
        changes["horizons"] = _horizons(given["horizons"])
    if given["budget"] is not None or given["steps"] is not None:
        changes["tokens"] = given["budget"]
    if given["rewards"]:
        changes["reward"] = _reward(course, parse_settings(given["rewards"]))
    return course.changed(changes | parse_settings(given["settings"]))


def _reward(course: Course, changes: dict[str, Any]) -> Any:
    reward = course.settings.reward
    try:
        return replace(reward, **changes)
    except TypeError as error:
        raise UserError(f"--reward-set: {error}; it has: {', '.join(vars(reward))}") from error


def _horizons(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--horizons {text!r}: numbers of sessions with commas between, e.g. 8,16,32") from None
