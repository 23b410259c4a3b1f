"""What `mempiler evaluate` can look at before any score: a data file (`--check`), and a judge (`--on judge-check`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..errors import BudgetError, UserError
from .printing import report, table

if TYPE_CHECKING:
    from ..runs.setup import Setup

JUDGES = "judge-check"
"""The benchmark of labelled answers, which judges judge."""


def check_data(setup: Setup) -> None:
    """Says what is in a data file, and row by row what is wrong with it; ends with code 1 if it cannot be used.

    Raises:
        UserError: There is no file to look into.
    """
    from ..data.check import check

    if setup.data is None:
        raise UserError(f"--check looks into a file of {setup.benchmark}; give it with --data")
    found = check(setup.benchmark, setup.data, **setup.options)
    lines: list[Any] = [table((setup.data, ""), [(name, str(value)) for name, value in found.counts.items()])]
    lines += [f"{'ERROR: ' if row.fatal else ''}{row.where}: {row.kind}: {row.message}" for row in found.rows]
    fatal = sum(row.fatal for row in found.rows)
    lines.append(f"{fatal} errors, {len(found.rows) - fatal} remarks" if found.rows else "nothing wrong found")
    lines += [] if found.ok else [f"{setup.data}: cannot be used as it is; mend the lines marked ERROR"]
    report(found.to_dict(), lines)
    sys.exit(0 if found.ok else 1)


def check_judge(name: str, setup: Setup) -> None:
    """Lets a judge (of the benchmark `name`, or ours) judge answers that are known to be right, vague or wrong."""
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
            found = judge_check.check_judge(judge, labelled, setup.threads)
    except BudgetError as error:
        raise UserError(f"{error}; {len(labelled)} answers are to be judged") from error
    shown = "offline engine (extractive, no language model: a wiring check)" if lm == "offline" else lm
    kinds: dict[str, Any] = {**found.kinds, "all right": found.right, "all wrong": found.wrong}
    rows = [
        (
            kind,
            str(each.n),
            str(each.accepted),
            "-" if each.rate is None else f"{each.rate:.3f}",
            "1" if kind.endswith("right") else "0",
            str(each.unreadable),
        )
        for kind, each in kinds.items()
    ]
    counts = table(("answers", "n", "accepted", "rate", "should be", "unreadable"), rows)
    report({"judge_lm": lm, **found.model_dump()}, [f"judge: {shown}, prompt {found.judge_hash[:12]}", counts])
