"""`mempiler evaluate --benchmark judge-check`: measure how lenient a judge is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BudgetError, UserError
from ..runs.console import format_estimate, table
from .printing import print_result

if TYPE_CHECKING:
    from ..data.judge_check import Accepted, JudgeReport
    from ..runs.console import WideTable
    from ..runs.inputs import RunInputs

JUDGE_CHECK = "judge-check"
"""The benchmark of labelled answers, which judges judge."""
_OUR_JUDGE = "judge"
"""The name of our own judge, which belongs to no benchmark."""


def check_judge(name: str, inputs: RunInputs, is_plan: bool) -> None:
    """Let a judge judge answers that are known to be right, vague or wrong; print what it accepts.

    Args:
        name: The benchmark whose judge is checked, or "judge" for ours.
        inputs: The model of the judge, limits and perhaps a file of labelled answers.
        is_plan: Whether `--plan` was given.

    Raises:
        UserError: An option is for runs only, or a limit ended the check.
        EndpointError: The model cannot be reached.
    """
    from ..data import judge_check
    from ..engines.limits import BudgetGuard
    from ..engines.lm import language_model
    from ..engines.model_checks import endpoint_errors
    from ..engines.model_config import ModelConfig
    from ..engines.prices import needed_prices
    from ..programs.adapter import adapter
    from ..runs.role_models import role_models

    config = inputs.config
    if is_plan or config.execution.resume or config.execution.replay:
        raise UserError("a judge is checked at once: --plan, --resume and --replay are for runs")
    answers = judge_check.read_labelled(config.data.file)

    lm_name = config.models.judge.name or "offline"
    model_config = ModelConfig(
        api_base=role_models(config)["judge"].address,
        prices=needed_prices(lm_name, config.limits.max_usd),
    )
    guard = BudgetGuard(config.limits)
    lm = language_model(lm_name, model_config, role="judge", guard=guard)
    judge_class = judge_check.judge_of(None if name == _OUR_JUDGE else name)
    judge = judge_class(lm, adapter(config.method.adapter or "chat"))

    try:
        with endpoint_errors():
            report = judge_check.check_judge(judge, answers, config.execution.threads)
    except BudgetError as error:
        raise UserError(f"{error}; {len(answers)} answers are to be judged") from error

    lm_title = lm_name
    if lm_name == "offline":
        lm_title = "offline engine (extractive, no language model: a smoke test)"
    heading = f"judge: {lm_title}, prompt {report.judge_hash[:12]}"
    print_result({"judge_lm": lm_name, **report.model_dump()}, [heading, _report_table(report)])


def _report_table(report: JudgeReport) -> WideTable:
    """Return a table of how many answers the judge accepted: of each kind, and of all."""
    rows: list[tuple[str, ...]] = []
    for kind, accepted in report.kinds.items():
        # Kinds are e.g. "paraphrased-right" and "vague-wrong".
        rows.append(_table_row(kind, accepted, is_right=kind.endswith("right")))
    rows.append(_table_row("all right", report.right, is_right=True))
    rows.append(_table_row("all wrong", report.wrong, is_right=False))
    heads = ("answers", "n", "accepted", "rate", "should be", "unreadable")
    return table(heads, rows)


def _table_row(name: str, counts: Accepted, is_right: bool) -> tuple[str, ...]:
    """Return the rate at which answers were accepted, beside the rate of a perfect judge."""
    rate_of_perfect_judge = "1" if is_right else "0"
    return (
        name,
        str(counts.n),
        str(counts.accepted),
        format_estimate(counts.rate),
        rate_of_perfect_judge,
        str(counts.unreadable),
    )
