"""`mempiler compile`: tune a method's prompts against a benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from ..runs.config import UNAVAILABLE_OPTIONS
from ..runs.setting_pairs import parse_settings
from .config import FileOption
from .options import JSON, PLAN, parse_run_options, run_options
from .printing import print_plan, print_result
from .progress import quiet_output
from .show import run_lines

if TYPE_CHECKING:
    from ..programs.staging import Stage
    from ..runs.compile import CompileResult


def _check_number(value: object) -> None:
    """Raise a UserError if a value of a `--config` file is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{value!r} is not a number")


@click.command("compile")
@click.argument("program")
@run_options(without=UNAVAILABLE_OPTIONS["compile"])
@click.option(
    "--optimizer",
    cls=FileOption,
    file_key="optimizer.name",
    default="bootstrap",
    help="see `mempiler list optimizers`",
)
@click.option(
    "--stage",
    cls=FileOption,
    file_key="optimizer.stage",
    type=click.Choice(["read", "write", "all"]),
    default="all",
    hidden=True,
    help="which prompts are tuned: those that read memories, those that write them, or all",
)
@click.option(
    "--optimizer-set",
    cls=FileOption,
    file_key="optimizer.settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="a setting of the optimizer",
)
@click.option(
    "--max-prompt-growth",
    cls=FileOption,
    file_key="optimizer.max_prompt_growth",
    check=_check_number,
    type=click.FloatRange(1),
    metavar="X",
    hidden=True,
    help="refuse candidates whose prompts are more than X times as long as those of the start",
)
@click.option(
    "--max-context-tokens",
    cls=FileOption,
    file_key="optimizer.max_context_tokens",
    check=_check_number,
    type=click.IntRange(1),
    metavar="N",
    hidden=True,
    help="with --optimizer settings: most tokens that may be recalled for a question, on average",
)
@PLAN
@JSON
@click.option(
    "--out",
    type=click.Path(),
    help="folder for the program; one that is there is replaced only if the compiled program is"
    " kept [default: a new one under runs/local]",
)
@click.option(
    "--force",
    is_flag=True,
    help="keep the compiled program even if dev shows no significant gain;"
    " with --resume, one that was refused",
)
def command(
    program: str,
    planned: bool,
    metric: str | None,
    optimizer: str,
    stage: Stage,
    optimizer_set: tuple[str, ...],
    max_prompt_growth: float | None,
    max_context_tokens: int | None,
    out: str | None,
    force: bool,
    **values: Any,
) -> None:
    """Tune PROGRAM and save the result.

    PROGRAM is a method's name, module:Class, or a saved program to start from: its folder, or
    models:/NAME@ALIAS. The result is scored on held-out test questions before and after, and kept
    only for a significant gain on the dev questions, or, with --margin, if it is significantly
    cheaper there and not worse by more than that. A result that is kept replaces an older
    program where it is saved; otherwise the older one stays, and the original is saved in the run's
    folder.
    """
    from ..runs import api

    optimizer_settings = parse_settings(optimizer_set)
    options = parse_run_options(values)
    if planned:
        plan = api.plan(
            program,
            metric=metric,
            optimizer=optimizer,
            stage=stage,
            optimizer_set=optimizer_settings,
            max_prompt_growth=max_prompt_growth,
            max_context_tokens=max_context_tokens,
            **options,
        )
        print_plan(plan)
        return

    with quiet_output():
        result = api.compile(
            program,
            metric=metric,
            optimizer=optimizer,
            stage=stage,
            optimizer_set=optimizer_settings,
            max_prompt_growth=max_prompt_growth,
            max_context_tokens=max_context_tokens,
            out=out,
            force=force,
            **options,
        )
    print_result(result.to_dict(), run_lines(result.run, *_outcome_lines(result)))
    result.refuse_broken()


def _outcome_lines(result: CompileResult) -> list[str]:
    """Return lines on the trained model, the limit that stopped the run, and the saved program."""
    lines: list[str] = []
    if result.model:
        lines.append(f"trained model: {result.model}")
    if result.stopped:
        lines.append(f"stopped by a limit: {result.stopped}; --resume {result.run.name} goes on")

    if result.untouched_out is None:
        lines.append(f"program: {result.folder}")
    else:
        # The compiled program was no better, so the original program was saved. The folder of --out
        # holds an older program, which only a better one may replace. So the original is in the
        # run's folder instead.
        lines.append(
            f"program: {result.folder} (the original);"
            f" {result.untouched_out} holds another program, which was left as it is"
        )
    return lines
