"""The calendar of a PAL-Set: its months, the hours of situations, and which situations get a dialogue.

The rules are those of the released code: all users end in December 2024 and have 7 to 12 months; a situation begins
between 7 and 12 o'clock and ends between 12 and 21; it gets a dialogue with probability .6, and in any case after three
that got none; the dialogues of the last month are the query set, which is drawn again until it has one.

Example:
    >>> from mempiler.data.synthesis.palset.calendar import months_back
    >>> months_back(3)
    ['2024-10', '2024-11', '2024-12']
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date

TODAY = "2025-01-01"
KEEP = 0.6
"""Probability that a situation gets a dialogue."""
DROPS = 3
"""Most situations in a row without one."""
SPAN = (7, 12)
"""Fewest and most months of a user, where their number is drawn."""


def months_back(count: int) -> list[str]:
    """The months before `TODAY`, oldest first, as YYYY-MM."""
    last = int(TODAY[:4]) * 12 + int(TODAY[5:7]) - 2
    return [f"{n // 12:04d}-{n % 12 + 1:02d}" for n in range(last - count + 1, last + 1)]


def months_of(user: str, count: int | None, seed: int) -> list[str]:
    """A user's months; their number is drawn if None."""
    return months_back(count or _rng(seed, user, "months").randint(*SPAN))


def moments(user: str, start: str, end: str, seed: int) -> tuple[str, str]:
    """When a situation begins and ends, as YYYY-MM-DD HH:MM:SS, on the full hour."""
    rng = _rng(seed, user, "hours", end)
    return f"{start} {rng.randint(7, 12):02d}:00:00", f"{end} {rng.randint(12, 21):02d}:00:00"


def draw(user: str, ends: Sequence[str], last_month: str, seed: int) -> tuple[list[str], list[str]]:
    """Which situations get a dialogue.

    Args:
        user: Id of the user.
        ends: Last days of the situations, in order; one at least in the last month.
        last_month: YYYY-MM, the month of the query set.
        seed: Decides together with the user's id.

    Returns:
        The days of the history set, and of the query set, which has one at least.
    """
    rng = _rng(seed, user, "dialogues")
    query: list[str] = []
    history: list[str] = []
    while not query:
        dropped, kept = 0, []
        for end in ends:
            if rng.random() < KEEP or dropped >= DROPS:
                kept.append(end)
                dropped = 0
            else:
                dropped += 1
        history = [end for end in kept if not end.startswith(last_month)]
        query = [end for end in kept if end.startswith(last_month)]
    return history, query


def days_left(of: date) -> int:
    """Days of the month after a day."""
    following = date(of.year + of.month // 12, of.month % 12 + 1, 1)
    return (following - of).days - 1


def _rng(seed: int, *names: str) -> random.Random:
    return random.Random(" ".join([str(seed), *names]))
