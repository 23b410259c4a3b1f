"""The calls that writing a data set takes, known from its size before anything is asked.

Attempts after the first are not counted: how often an answer is refused, only the model decides.
"""

from __future__ import annotations

import math

from ..data.synthesis.memoryquest.queries import MAX_QUERIES, ROUNDS
from ..data.synthesis.memoryquest.timeline import MAX_EVENTS, MIN_EVENTS
from ..data.synthesis.palset.dates import (
    FEWEST_DRAWN_MONTHS,
    MAX_WITHOUT_DIALOGUE,
    MOST_DRAWN_MONTHS,
)
from ..data.synthesis.palset.people import ASPECTS, BATCH
from ..data.synthesis.palset.situations import (
    MAX_REQUIREMENTS,
    MAX_SITUATIONS,
    MIN_REQUIREMENTS,
    MIN_SITUATIONS,
)
from ..optimizers.call_bounds import Range

_REVIEW_CALLS = 2
"""Calls of one review of a log or a dialogue.

One asks for faults of its kind, wrong types or wrong actions, and one for contradictions to the
persona.
"""
_MENDING_CALLS = 1
"""Calls that correct the faults of a log or a dialogue."""


def plan_palset(users: int, months: int | None, reviews: int) -> dict[str, Range]:
    """Return how many calls each step of a PAL-Set takes, at least and at most.

    Args:
        users: The number of users.
        months: Months of every user; None draws them.
        reviews: Rounds of review and correction.
    """
    months_per_user = Range(FEWEST_DRAWN_MONTHS, MOST_DRAWN_MONTHS)
    if months is not None:
        months_per_user = Range(months, months)
    months_in_all = months_per_user.times(users)
    situations = Range(months_in_all.low * MIN_SITUATIONS, months_in_all.high * MAX_SITUATIONS)
    # After MAX_WITHOUT_DIALOGUE situations without a dialogue, the next one gets one in any case.
    # At most, every situation gets one.
    dialogues = Range(situations.low // (MAX_WITHOUT_DIALOGUE + 1), situations.high)
    num_batches = math.ceil(users / BATCH)

    plan = {
        "people": Range(num_batches, num_batches),
        "timeline": Range(users, users),
        "requirement types": Range(users, users),
        "preferences": Range(users, users).times(len(ASPECTS)),
        "situations": months_in_all,
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
        plan["reviews"] = _plan_reviews(situations + dialogues, reviews)
    return plan


def _plan_reviews(records: Range, rounds: int) -> Range:
    """Return how many calls the review of all logs and dialogues takes.

    Args:
        records: How many logs and dialogues there are. Every situation has a log.
        rounds: Rounds of correction, 1 or more.
    """
    # A record without faults is reviewed once. One with faults is corrected, and reviewed again, in
    # each of the rounds.
    fewest_calls = _REVIEW_CALLS
    most_calls = _REVIEW_CALLS + rounds * (_MENDING_CALLS + _REVIEW_CALLS)
    return Range(records.low * fewest_calls, records.high * most_calls)


def plan_memoryquest(users: int) -> dict[str, Range]:
    """Return how many calls each step of MemoryQuest takes, at least and at most."""
    # A call writes the requests of a round.
    query_calls = users * ROUNDS
    # A request that passes the gate gets a timeline. Possibly none of a user's requests passes.
    timelines = Range(0, users * MAX_QUERIES)
    # Every event of a timeline gets a dialogue.
    dialogues = Range(timelines.low * MIN_EVENTS, timelines.high * MAX_EVENTS)
    return {
        "queries": Range(query_calls, query_calls),
        "timeline": timelines,
        "dialogue": dialogues,
    }
