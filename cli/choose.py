"""`mempiler choose`: find out which of several methods suits the data best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..runs.config import UNAVAILABLE_OPTIONS
from .config import FileOption
from .options import JSON, PLAN, parse_run_options, run_options
from .printing import print_plan, print_result
from .progress import quiet_output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..runs.choice import Choice
    from ..runs.evaluate import Part


@click.command("choose")
@click.argument("programs", nargs=-1, required=True, metavar="PROGRAM PROGRAM...")
@run_options(without=UNAVAILABLE_OPTIONS["choose"])
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    help="how much to ask at most: 1 would be every question to every PROGRAM, 0.3 is 30% of that",
)
@click.option(
    "--split",
    cls=FileOption,
    file_key="evaluation.split",
    type=click.Choice(["all", "train", "dev", "test"]),
    default="all",
    help="which questions: all, or the train, dev or test part that compile makes of them",
)
@PLAN
@JSON
def command(
    programs: tuple[str, ...], share: float, split: Part, planned: bool, **values: Any
) -> None:
    """Choose between PROGRAMs: methods, saved programs, or systems of your own.

    All are asked the same few questions. Then the worse half drops out, and so do those that are
    clearly behind the best one. Those that remain are asked further questions, until two are left.
    If the last two cannot be told apart, there is no winner. See docs/choose.md.
    """
    from ..runs import api

    metric: str | None = values["metric"]
    options = parse_run_options(values)
    if planned:
        print_plan(api.plan_choice(programs, metric=metric, share=share, split=split, **options))
        return

    with quiet_output():
        choice = api.choose(programs, metric=metric, share=share, split=split, **options)

    # The table is printed first, so that a user sees the scores of a broken run, too.
    print_result(choice.to_dict(), _choice_lines(choice))
    choice.refuse_broken()


def _choice_lines(choice: Choice) -> Iterator[RenderableType]:
    """Yield what the command prints: the result, and then the commands that show more of it."""
    from ..runs.console import table

    result_table = choice.table()
    yield result_table.title
    yield table(result_table.column_names, result_table.rows)
    yield from result_table.notes

    yield f"the best two, question by question: mempiler show {choice.run.name}"
    for row in choice.rows:
        yield f"{row.program}: mempiler show {row.run.name}"
