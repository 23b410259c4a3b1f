"""The calls that writing a data set takes, known from its size before anything is asked.

Attempts after the first are not counted: how often an answer is refused, only the model decides.
"""

from __future__ import annotations

from ..data.synthesis.memoryquest.queries import MAX_QUERIES, ROUNDS
from ..data.synthesis.memoryquest.timeline import MAX_EVENTS, MIN_EVENTS
from ..data.synthesis.palset.dates import MAX_MONTHS, MAX_WITHOUT_DIALOGUE, MIN_MONTHS
from ..data.synthesis.palset.people import ASPECTS, BATCH
from ..data.synthesis.palset.situations import (
    MAX_REQUIREMENTS,
    MAX_SITUATIONS,
    MIN_REQUIREMENTS,
    MIN_SITUATIONS,
)
from ..optimizers.call_bounds import Range

_REVIEW_CALLS = 2
"""Calls that look for faults: of the kind of record, and against the persona."""


def plan_palset(users: int, months: int | None, reviews: int) -> dict[str, Range]:
    """Return the calls by step that a PAL-Set takes.

    Args:
        users: How many.
        months: Months of every user; None draws them.
        reviews: Rounds of review.
    """
    num_months = Range(MIN_MONTHS, MAX_MONTHS) if months is None else Range(months, months)
    num_months = num_months.times(users)
    situations = Range(num_months.low * MIN_SITUATIONS, num_months.high * MAX_SITUATIONS)
    # Of so many situations in a row, one gets a dialogue in any case.
    dialogues = Range(situations.low // (MAX_WITHOUT_DIALOGUE + 1), situations.high)
    num_batches = -(-users // BATCH)

    plan = {
        "people": Range(num_batches, num_batches),
        "timeline": Range(users, users),
        "requirement types": Range(users, users),
        "preferences": Range(users, users).times(len(ASPECTS)),
        "situations": num_months,
        "experience": situations,
        "logs": situations,
        "requirements": dialogues,
        "candidates": dialogues,
        "liked and disliked": Range(
            dialogues.low * MIN_REQUIREMENTS, dialogues.high * MAX_REQUIREMENTS
        ),
        "dialogue": dialogues,
    }
    if reviews:
        # At least, nothing is found. At most, each round corrects something and looks again.
        most_per_record = _REVIEW_CALLS + reviews * (1 + _REVIEW_CALLS)
        records = situations + dialogues
        plan["reviews"] = Range(records.low * _REVIEW_CALLS, records.high * most_per_record)
    return plan


def plan_memoryquest(users: int) -> dict[str, Range]:
    """Return the calls by step that MemoryQuest takes for so many users."""
    rounds = users * ROUNDS
    # At least, no request passes the gate.
    timelines = Range(0, users * MAX_QUERIES)
    dialogues = Range(timelines.low * MIN_EVENTS, timelines.high * MAX_EVENTS)
    return {
        "queries": Range(rounds, rounds),
        "timeline": timelines,
        "dialogue": dialogues,
    }
