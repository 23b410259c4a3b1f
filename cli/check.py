"""What `mempiler evaluate` can look at before any score: a data file (`--check`), and a judge (`--on judge-check`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..errors import BudgetError, UserError
from .printing import output, print_json, table

if TYPE_CHECKING:
    from ..runs.setup import Setup

JUDGES = "judge-check"
"""The benchmark of labelled answers, which judges judge."""


def check_data(setup: Setup, as_json: bool) -> None:
    """Says what is in a data file, and row by row what is wrong with it; ends with code 1 if it cannot be used.

    Raises:
        UserError: There is no file to look into.
    """
    from ..data.check import check

    if setup.data is None:
        raise UserError(f"--check looks into a file of {setup.benchmark}; give it with --data")
    report = check(setup.benchmark, setup.data, **setup.options)
    if as_json:
        print_json(report.to_dict())
        sys.exit(0 if report.ok else 1)
    console = output()
    console.print(table((setup.data, ""), [(name, str(value)) for name, value in report.counts.items()]))
    for row in report.rows:
        console.print(f"{'ERROR: ' if row.fatal else ''}{row.where}: {row.kind}: {row.message}", soft_wrap=True)
    fatal = sum(row.fatal for row in report.rows)
    console.print(f"{fatal} errors, {len(report.rows) - fatal} remarks" if report.rows else "nothing wrong found")
    if not report.ok:
        console.print(f"{setup.data}: cannot be used as it is; mend the lines marked ERROR", soft_wrap=True)
        sys.exit(1)


def check_judge(name: str, setup: Setup, as_json: bool) -> None:
    """Lets a judge judge answers that are known to be right, vague or wrong, and counts what it accepts.

    The share of bundled wrong answers that it accepts is from then on told beside the scores that it gives.

    Args:
        name: The benchmark whose judge it is, or `judge` for ours.
        setup: Names the judge's model, its adapter, and a file of labelled answers.
        as_json: Whether to print JSON.
    """
    from ..data import judge_check
    from ..engines.guard import Guard
    from ..engines.meter import Meter
    from ..engines.models import endpoint_errors, language_model
    from ..engines.spending import needed_prices
    from ..programs.adapter import adapter

    if setup.resume or setup.replay:
        raise UserError("a judge is checked at once: --resume and --replay are for runs")
    labelled, lm = judge_check.read_labelled(setup.data), setup.judge_lm or "offline"
    guard, prices = Guard(setup.limits), needed_prices(lm, setup.limits.max_usd)
    model = language_model(lm, Meter(), "judge", setup.judge_api_base, guard=guard, prices=prices)
    judge = judge_check.judge_of(None if name == "judge" else name)(model, adapter(setup.adapter or "chat"))
    try:
        with endpoint_errors():
            report = judge_check.check_judge(judge, labelled, setup.threads)
    except BudgetError as error:
        raise UserError(f"{error}; {len(labelled)} answers are to be judged") from error
    if as_json:
        print_json({"judge_lm": lm, **report.model_dump()})
        return
    console = output()
    shown = "offline engine (extractive, no language model: a wiring check)" if lm == "offline" else lm
    console.print(f"judge: {shown}, prompt {report.judge_hash[:12]}", soft_wrap=True)
    rows: dict[str, Any] = {**report.kinds, "all right": report.right, "all wrong": report.wrong}
    told = [
        (
            kind,
            str(found.n),
            str(found.accepted),
            "-" if found.rate is None else f"{found.rate:.3f}",
            "1" if kind.endswith("right") else "0",
            str(found.unreadable),
        )
        for kind, found in rows.items()
    ]
    console.print(table(("answers", "n", "accepted", "rate", "should be", "unreadable"), told))
