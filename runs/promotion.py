"""Whether a compiled program takes the place of its start, by the questions that decide, and why it does not.

A mean above zero is not enough: on nine questions chance alone gives one half of the time. The paired interval of the
difference must not reach below zero either. The gate of the registry asks the same of two registered programs.

Limits: the interval is that of `statistics.paired`, too narrow where there are few conversations; a handful of dev
questions shows no gain unless it is large.
"""

from __future__ import annotations

from dataclasses import dataclass

from .results import Evaluation, difference
from .statistics import Difference


@dataclass(frozen=True)
class Promotion:
    """What the dev questions say of a compiled program."""

    gain: Difference | None
    """Compiled program minus start; None where nothing was compiled, or not every question was answered."""
    refused: str | None
    """Why the start is kept, in one line; None where the compiled program is better."""


def promotion(start: Evaluation, compiled: Evaluation | None, stopped: str | None = None) -> Promotion:
    """Decides by the dev questions.

    Args:
        start: The start on them.
        compiled: The compiled program on them; None where it could not be scored.
        stopped: The limit that struck, if any.
    """
    if compiled is None:
        return Promotion(None, f"nothing was compiled and scored on the dev questions ({stopped or 'stopped'})")
    if not (_whole(start) and _whole(compiled)):
        return Promotion(None, f"not all dev questions were answered ({stopped or 'the endpoint failed on some'})")
    if compiled.broken:
        told = f"{compiled.lost:.0%} of its answers were lost, more than {compiled.max_lost:.0%}"
        return Promotion(None, f"the compiled program's score is of a broken run: {told}")
    found = difference(start, compiled)
    if found.is_gain:
        return Promotion(found, None)
    what = "no sure gain" if found.mean > 0 else "no gain"
    return Promotion(found, f"{what} on the dev questions: {in_words(found)}")


def in_words(found: Difference) -> str:
    """A difference with its interval and what they rest on."""
    n = found.wins + found.losses + found.ties
    if found.interval is None:
        return f"too few to tell (n = {n})"
    low, high = found.interval.low, found.interval.high
    span = f"95 % interval [{low:+.3f}, {high:+.3f}]"
    return f"{found.mean:+.3f}, {span} (n = {n}, resampled by {found.interval.unit})"


def _whole(found: Evaluation) -> bool:
    """Whether every question was asked and answered: unreachable ones would count as zeros against one side."""
    lost = any(row.failure is not None and row.failure.kind == "endpoint" for row in found.rows)
    return not found.stopped and not lost
