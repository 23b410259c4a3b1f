"""Step 2 of MemoryQuest: the chats before a request, in outline.

A request has 5 to 10 chats. Each of its references is told in one of them; the rest are filler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

import dspy

from ....signatures.synthesis_memoryquest import (
    DraftEvent,
    DraftQuery,
    DraftReference,
    PlanTimeline,
)
from ..runner import CheckResult, Runner, Step, accept_if_valid
from .profiles import Profile
from .texts import day_problems, normalized

MIN_EVENTS = 5
MAX_EVENTS = 10
MAX_LEAD_DAYS = timedelta(days=31)
"""Most days from the first event to the earliest reference.

The paper says "shortly before"; the number is ours.
"""

TIMELINE = Step("timeline", PlanTimeline)


@dataclass(frozen=True)
class Timeline:
    """A request with the outlines of the chats before it."""

    id: str
    """How reports call the request, e.g. "user2/q1"."""
    query: DraftQuery
    events: Sequence[DraftEvent]

    def facts_of(self, event: DraftEvent) -> list[str]:
        """Return the texts of the references that the user tells in an event."""
        references = references_by_id(self.query)
        return [references[reference_id].text for reference_id in event.references]


def plan_timelines(
    profile: Profile, queries: Sequence[DraftQuery], runner: Runner
) -> list[Timeline]:
    """Plan the chats before each request of a user; requests that were given up are missing."""

    def plan(number: int) -> Timeline | None:
        return _plan_timeline(profile, f"{profile.user_id}/q{number + 1}", queries[number], runner)

    timelines = runner.map(plan, range(len(queries)))
    return [timeline for timeline in timelines if timeline is not None]


def _plan_timeline(
    profile: Profile, query_id: str, query: DraftQuery, runner: Runner
) -> Timeline | None:
    """Ask for the events before a request."""
    facts: list[str] = []
    for reference_id, reference in references_by_id(query).items():
        facts.append(f"{reference_id} ({reference.date}): {reference.text}")
    inputs = {
        **profile.inputs,
        "query": query.query,
        "query_date": query.date,
        "references": facts,
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftEvent]]:
        problems = timeline_problems(answer.events, query, profile.domain_summaries)
        return accept_if_valid(answer.events, problems)

    events = runner.ask(TIMELINE, query_id, inputs, check)
    if events is None:
        return None
    return Timeline(query_id, query, events)


def references_by_id(query: DraftQuery) -> dict[str, DraftReference]:
    """Return the references of a request by the ids that timelines use for them: r1, r2, ..."""
    return {f"r{number}": reference for number, reference in enumerate(query.references, 1)}


def timeline_problems(
    events: Sequence[DraftEvent], query: DraftQuery, domains: Iterable[str]
) -> list[str]:
    """Return what is wrong with the timeline of a request.

    Args:
        events: The timeline.
        query: A request that has passed `query_problems`; its references are r1, r2, ...
        domains: The names of the user's domains.
    """
    problems: list[str] = []
    if not MIN_EVENTS <= len(events) <= MAX_EVENTS:
        problems.append(f"{len(events)} events; plan {MIN_EVENTS} to {MAX_EVENTS}")

    wrong_dates = day_problems([event.date for event in events])
    if wrong_dates:
        problems += wrong_dates
    else:
        # The order is checked only if every date can be parsed.
        problems += _order_problems(events, query)
    problems += _reference_problems(events, query)

    domain_names = {normalized(domain) for domain in domains}
    for event in events:
        unknown = [name for name in event.domains if normalized(name) not in domain_names]
        if unknown or not event.domains:
            # The list of unknown domains is empty if the event has no domains at all.
            problems.append(
                f"event of {event.date}: domains {unknown}; "
                "use names of domain_summaries, at least one"
            )
        if not event.summary.strip():
            problems.append(f"event of {event.date}: no summary")
    return problems


def _order_problems(events: Sequence[DraftEvent], query: DraftQuery) -> list[str]:
    """Return what is wrong with the days of a timeline.

    Events follow one another, one a day. They begin shortly before the earliest reference of the
    request, and end before the request.

    Args:
        events: The timeline, whose dates are all of the form YYYY-MM-DD.
        query: A request that has passed `query_problems`: it has references, with dates.
    """
    if not events:
        return []

    problems: list[str] = []
    days = [date.fromisoformat(event.date) for event in events]
    if any(day >= next_day for day, next_day in pairwise(days)):
        problems.append("events are not in ascending order, one a day")

    query_day = date.fromisoformat(query.date)
    if max(days) >= query_day:
        problems.append(f"an event is not before the request of {query.date}")

    # Days may be in disorder, so the first day need not be that of the first event.
    first_day = min(days)
    first_reference_day = min(date.fromisoformat(reference.date) for reference in query.references)
    earliest_start = first_reference_day - MAX_LEAD_DAYS
    if not earliest_start <= first_day < first_reference_day:
        problems.append(
            f"the first event is not shortly (at most {MAX_LEAD_DAYS.days} days) "
            f"before {first_reference_day}"
        )
    return problems


def _reference_problems(events: Sequence[DraftEvent], query: DraftQuery) -> list[str]:
    """Return which references are not told exactly once, on their own days."""
    references = references_by_id(query)
    times_told: Counter[str] = Counter()
    for event in events:
        times_told.update(event.references)

    problems: list[str] = []
    for reference_id in references:
        count = times_told[reference_id]
        if count != 1:
            problems.append(
                f"reference {reference_id} is told in {count} events; tell it in exactly one"
            )
    for reference_id in times_told:
        if reference_id not in references:
            problems.append(f"there is no reference {reference_id!r}")

    for event in events:
        for reference_id in event.references:
            reference = references.get(reference_id)
            if reference is not None and reference.date != event.date:
                problems.append(
                    f"reference {reference_id} belongs to {reference.date}, "
                    f"not to the event of {event.date}"
                )
    return problems
