"""Whether a compiled program takes the place of its start, by the questions that decide, and why it does not.

The difference must be "better" by `Difference.verdict`. The gate of the registry asks the same of two programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from .results import Evaluation, difference
from .statistics import MIN_N, Difference


@dataclass(frozen=True)
class Promotion:
    """What the dev questions say of a compiled program."""

    gain: Difference | None
    """Compiled program minus start; None where nothing was compiled, or not every question was answered."""
    refused: str | None
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
    found = difference(start.counted, compiled.counted, min_n)
    return Promotion(found, refusal(found))


def refusal(found: Difference, over: str = "") -> str | None:
    """Why a difference on the dev questions is no gain `over` another program; None where it is one."""
    if found.verdict == "better":
        return None
    if found.verdict == "too few to tell":
        return f"Too few dev questions to tell a gain{over} ({found}; --min-n is {found.min_n})"
    return f"No significant gain{over} on dev ({found})"


def _whole(found: Evaluation) -> bool:
    """Whether every question was asked and answered: unreachable ones would count as zeros against one side."""
    lost = any(row.failure is not None and row.failure.kind == "endpoint" for row in found.rows)
    return not found.stopped and not lost
