"""The calendar of PAL-Set, as the released code draws it: months, hours and dialogues.

All users end in December 2024 and have 7 to 12 months. A situation begins between 7 and 12 o'clock
and ends between 12 and 21. It gets a dialogue with probability .6, and in any case after three that
got none. The dialogues of the last month are the query set, which is drawn again until it has one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from ....errors import UserError
from .records import Part

TODAY = "2025-01-01"
"""The day after the last month of every user."""
FEWEST_DRAWN_MONTHS = 7
MOST_DRAWN_MONTHS = 12
"""Fewest and most months of a user, where their number is drawn."""
MIN_SET_MONTHS = 2
"""Fewest months of a user that the caller of `synthesize_palset` may set.

The dialogues of the last month are the query set, so the history needs a month before it.
"""
BEGIN_HOURS = (7, 12)
END_HOURS = (12, 21)
DIALOGUE_PROBABILITY = 0.6
"""Probability that a situation gets a dialogue."""
MAX_WITHOUT_DIALOGUE = 3
"""Most situations in a row without a dialogue."""


class Hours(NamedTuple):
    """When a situation begins and ends, each as YYYY-MM-DD HH:MM:SS."""

    begins: str
    ends: str


def random_by(seed: int, *names: str) -> random.Random:
    """Return a generator of random numbers that the run's seed and some names determine."""
    return random.Random(" ".join([str(seed), *names]))


def months_of(user: str, count: int | None, seed: int) -> list[str]:
    """Return a user's months before `TODAY`, oldest first, as YYYY-MM.

    Args:
        user: The user's id.
        count: The number of months; None draws it.
        seed: The run's seed.

    Raises:
        UserError: There would be no month.
    """
    if count is None:
        count = random_by(seed, user, "months").randint(FEWEST_DRAWN_MONTHS, MOST_DRAWN_MONTHS)
    if count < 1:
        raise UserError(
            f"months = {count}: every user has one month or more; "
            f"None draws {FEWEST_DRAWN_MONTHS} to {MOST_DRAWN_MONTHS}"
        )

    # Months are counted from January of the year 0.
    this_month = int(TODAY[:4]) * 12 + int(TODAY[5:7]) - 1
    months: list[str] = []
    for number in range(this_month - count, this_month):
        year, month_of_year = divmod(number, 12)
        months.append(f"{year:04d}-{month_of_year + 1:02d}")
    return months


def draw_hours(user: str, start: str, end: str, seed: int) -> Hours:
    """Draw when a situation begins and ends, on the full hour.

    Args:
        user: The user's id.
        start: The first day of the situation.
        end: The last day of the situation.
        seed: The run's seed.
    """
    rng = random_by(seed, user, "hours", end)
    begin_hour = rng.randint(*BEGIN_HOURS)
    end_hour = rng.randint(*END_HOURS)
    return Hours(f"{start} {begin_hour:02d}:00:00", f"{end} {end_hour:02d}:00:00")


def draw_dialogues(user: str, ends: Sequence[str], last_month: str, seed: int) -> dict[str, Part]:
    """Draw which situations get a dialogue, and in which part of the data.

    A user without a dialogue in the query set could not be asked anything. So the draw is repeated
    until there is one, which needs a situation that ends in the last month.

    Args:
        user: The user's id.
        ends: The last days of all situations of the user, in order. They name the situations.
        last_month: The user's last month, whose dialogues are the query set.
        seed: The run's seed.

    Returns:
        The part of each dialogue, by the last day of its situation.
    """
    rng = random_by(seed, user, "dialogues")
    parts: dict[str, Part] = {}
    while "query" not in parts.values():
        parts = _draw_parts(rng, ends, last_month)
    return parts


def _draw_parts(rng: random.Random, ends: Sequence[str], last_month: str) -> dict[str, Part]:
    """Draw the dialogues once; the query set may stay empty."""
    parts: dict[str, Part] = {}
    num_without = 0
    for end in ends:
        if rng.random() < DIALOGUE_PROBABILITY or num_without >= MAX_WITHOUT_DIALOGUE:
            parts[end] = "query" if end.startswith(last_month) else "history"
            num_without = 0
        else:
            num_without += 1
    return parts
