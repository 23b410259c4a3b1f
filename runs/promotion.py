"""Decides whether a compiled program replaces the original, and what budget is set aside for that.

The difference must be "better" by `Difference.verdict`. The gate of the registry asks the same of two programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dspy

from ..data.dataset import Split
from ..engines.usage import Usage
from .results import Evaluation, difference
from .statistics import MIN_N, Difference

LONGER = 2.0
"""How many times the tokens of its start a compiled program's prompts may need: what is set aside for scoring it."""


@dataclass(frozen=True)
class Promotion:
    """What the dev questions say of a compiled program."""

    gain: Difference | None
    """Compiled program minus start; None where nothing was compiled, or not every question was answered."""
    rejection_reason: str | None
    """Why the start is kept, in one sentence; None where the compiled program is better."""


def promotion(
    start: Evaluation, compiled: Evaluation | None, stopped: str | None = None, min_n: int = MIN_N
) -> Promotion:
    """Decides by the dev questions.

    Args:
        start: The start on them.
        compiled: The compiled program on them; None where it could not be scored.
        stopped: The limit that struck, if any.
        min_n: Below so many questions nothing is promoted.
    """
    if compiled is None:
        return Promotion(None, f"Nothing was compiled and scored on dev ({stopped or 'stopped'})")
    if not (_whole(start) and _whole(compiled)):
        return Promotion(None, f"Not all dev questions were answered ({stopped or 'the endpoint failed on some'})")
    if compiled.broken:
        return Promotion(None, f"The compiled program's score is of a broken run ({compiled.breakage})")
    found = difference(start.headline_rows, compiled.headline_rows, min_n)
    return Promotion(found, rejection_reason(found))


def rejection_reason(difference: Difference, baseline: str = "") -> str | None:
    """Say why a difference on the dev questions is no gain; return None if it is one.

    Args:
        difference: The candidate minus the program that it would replace.
        baseline: What to call that program; nothing if it is clear.
    """
    if difference.verdict == "better":
        return None

    over = f" over {baseline}" if baseline else ""
    numbers = f"{difference}; scope: {difference.scope}"
    if difference.verdict == "too few to tell":
        return f"Too few dev questions to tell a gain{over} ({numbers}; --min-n is {difference.min_n})"
    return f"No significant gain{over} on dev ({numbers})"


def _whole(found: Evaluation) -> bool:
    """Whether every question was asked and answered: unreachable ones would count as zeros against one side."""
    lost = any(row.failure is not None and row.failure.kind == "endpoint" for row in found.rows)
    return not found.stopped and not lost


def estimate_remaining_usage(first: Evaluation, spent: Usage, split: Split, rewrites: bool) -> Usage:
    """What is still to be scored after an optimizer will take, going by the first scoring of the run.

    Answering goes by questions, writing by the memories that are still to be written.

    Args:
        first: The start on the dev questions.
        spent: What that took of the limits.
        split: Whose dev questions are asked once more, and whose test questions twice.
        rewrites: Whether the result may write other memories than the start.
    """
    questions = (len(split.dev) + 2 * len(split.test)) / max(1, len(first.rows))
    dev, test = _histories(split.dev), _histories(split.test)
    memories = (test + (dev + test) * rewrites) / max(1, dev)
    answering, writing = first.answering_usage, first.construction

    def needed(limit: float, part: str, longer: float = LONGER) -> float:
        read, write = (0.0 if each is None else float(getattr(each, part)) for each in (answering, writing))
        share = write / (read + write) if write else 0.0
        return limit * longer * (share * memories + (1 - share) * questions)

    return Usage(
        needed(spent.calls, "calls", longer=1.0),
        needed(spent.tokens, "tokens"),
        cost=needed(spent.cost, "tokens"),
        seconds=needed(spent.seconds, "seconds"),
    )


def _histories(part: Sequence[dspy.Example]) -> int:
    return len({example.history.id for example in part})
