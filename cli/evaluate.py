"""`mempiler evaluate`: scores a program or a system, checks a data file, or measures a judge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BudgetError, DataError, UserError
from ..runs.console import format_estimate, table
from .config import FileOption
from .options import JSON, PLAN, make_inputs, run_options, take_run_options
from .printing import print_notes, report, show_plan
from .progress import quiet_output
from .show import run_lines

if TYPE_CHECKING:
    from ..runs.inputs import RunInputs
    from ..runs.options import RunOptions

JUDGES = "judge-check"
"""The benchmark of labelled answers, which judges judge."""


@click.command("evaluate")
@click.argument("program")
@run_options()
@PLAN
@JSON
@click.option(
    "--check",
    is_flag=True,
    help="score nothing: say what is in the file of --data, wrong with it, and how it is split",
)
@click.option(
    "--split",
    cls=FileOption,
    file_key="evaluation.split",
    type=click.Choice(["all", "train", "dev", "test"]),
    default="all",
    help="which part of compile's questions",
)
def command(program: str, planned: bool, split: Any, check: bool, **values: Any) -> None:
    """Score PROGRAM on a benchmark.

    PROGRAM is a method name, module:Class, or a saved program: its folder, or models:/NAME@ALIAS. Or what else answers:
    module:thing, the URL of a chat endpoint, a file of answers (*.jsonl, or a harness's *.json), system:NAME; see
    docs/own_systems.md. With --benchmark judge-check it is a benchmark, whose judge (--judge-lm) is given answers
    that are known to be right or wrong, or `judge` for ours.
    """
    from ..runs import api
    from ..runs.program_address import pin_address, program_folder
    from ..runs.results import raise_if_unanswered, refuse_broken

    if check:
        _check_data(make_inputs(values))
        return
    if values["benchmark"] == JUDGES:
        _check_judge(program, make_inputs(values), planned)
        return
    program = pin_address(program)
    metric = values.pop("metric")
    options = take_run_options(values)
    if planned:
        return show_plan(api.plan(program, metric=metric, optimizer=None, split=split, **options))
    folder = program_folder(program) if split == "all" else None
    if folder is not None and _is_compiled_on(folder, options, metric):
        print_notes(["it was compiled on this file; --split test leaves its training questions out"])
    with quiet_output():
        evaluation = api.evaluate(program, metric=metric, split=split, **options)
    report(evaluation.to_dict(), run_lines(str(evaluation.run_id)))
    refuse_broken(evaluation, evaluation.run_id)
    raise_if_unanswered([evaluation], evaluation.stopped, evaluation.run_id)


def _is_compiled_on(folder: Path, options: RunOptions, metric: str | None) -> bool:
    """Return whether a saved program was compiled on the very file that the options name."""
    from ..runs.evaluate import compiled_on
    from ..runs.options import Questions, make_inputs

    inputs = make_inputs(options, Questions(metric=metric))
    return compiled_on(folder, inputs.benchmark)


def _check_data(inputs: RunInputs) -> None:
    """Say what is in a data file, what is wrong with it, and how it is split; end with code 1 if it cannot be used."""
    from ..data.check import check
    from ..runs.split_plan import plan_split

    config = inputs.config
    if config.data.file is None:
        raise UserError(f"--check looks into a file of {config.data.benchmark}; give it with --data")
    found = check(config.data.benchmark, config.data.file, **config.data.benchmark_settings)
    lines: list[Any] = [table((config.data.file, ""), [(name, str(value)) for name, value in found.counts.items()])]
    lines += [f"{'ERROR: ' if row.fatal else ''}{row.where}: {row.kind}: {row.message}" for row in found.findings]
    if found.languages:
        counts = ", ".join(f"{language} {count}" for language, count in found.languages.items())
        lines.append(f"languages of the questions: {counts}")
    lines.append(
        f"metric: {found.metric}{f'; compares {found.splitter_description}' if found.splitter_description else ''}"
    )
    if found.advice:
        lines.append(f"advice: {found.advice}")
    fatal = sum(row.fatal for row in found.findings)
    lines.append(f"{fatal} errors, {len(found.findings) - fatal} remarks" if found.findings else "nothing wrong found")
    result = found.model_dump()
    if not found.ok:
        lines.append(f"{config.data.file}: cannot be used as it is; mend the lines marked ERROR")
    else:
        try:
            split = plan_split(inputs)
        except DataError as error:
            # So few questions can still be evaluated, all at once.
            lines.append(f"split: {error}")
            result["split"] = {"error": str(error)}
        else:
            lines += split.lines()
            result["split"] = split.summary()
    report(result, lines)
    sys.exit(0 if found.ok else 1)


def _check_judge(name: str, inputs: RunInputs, planned: bool) -> None:
    """Lets a judge (of the benchmark `name`, or ours) judge answers that are known to be right, vague or wrong."""
    from ..data import judge_check
    from ..engines.limits import BudgetGuard
    from ..engines.lm import language_model
    from ..engines.model_checks import endpoint_errors
    from ..engines.model_config import ModelConfig
    from ..engines.prices import needed_prices
    from ..programs.adapter import adapter
    from ..runs.role_models import role_models

    config = inputs.config
    if planned or config.execution.resume or config.execution.replay:
        raise UserError("a judge is checked at once: --plan, --resume and --replay are for runs")
    labelled, lm = judge_check.read_labelled(config.data.file), config.models.judge.name or "offline"
    guard, prices = BudgetGuard(config.limits), needed_prices(lm, config.limits.max_usd)
    model_config = ModelConfig(api_base=role_models(config)["judge"].address, prices=prices)
    model = language_model(lm, model_config, role="judge", guard=guard)
    judge = judge_check.judge_of(None if name == "judge" else name)(model, adapter(config.method.adapter or "chat"))
    try:
        with endpoint_errors():
            found = judge_check.check_judge(judge, labelled, config.execution.threads)
    except BudgetError as error:
        raise UserError(f"{error}; {len(labelled)} answers are to be judged") from error
    shown = "offline engine (extractive, no language model: a smoke test)" if lm == "offline" else lm
    kinds = {**found.kinds, "all right": found.right, "all wrong": found.wrong}
    rows = [
        (
            kind,
            str(each.n),
            str(each.accepted),
            format_estimate(each.rate),
            str(int("right" in kind)),
            str(each.unreadable),
        )
        for kind, each in kinds.items()
    ]
    counts = table(("answers", "n", "accepted", "rate", "should be", "unreadable"), rows)
    report({"judge_lm": lm, **found.model_dump()}, [f"judge: {shown}, prompt {found.judge_hash[:12]}", counts])
