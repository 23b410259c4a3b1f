"""What code can check of a generated MemoryQuest: numbers, dates, speakers, and that facts are mentioned.

Every problem is a sentence for the model that has to do better.

Limits: a fact counts as told when half of its longer words and numbers are in the user's turns, whatever is said
about them. Whether events fit the person, or contradict one another, is left to the model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from itertools import pairwise

from ...signatures.synthesis_memoryquest import DraftEvent, DraftQuery, DraftTurn
from ..cells import day

REFERENCES = (3, 5)
EVENTS = (5, 10)
TURNS = (5, 30)
SHORTLY = timedelta(days=31)
"""Most days from the first event to the earliest reference: the paper says "shortly before", the number is ours."""
TOLD = 0.5
"""Share of a fact's words that the user has to say in its dialogue; ours."""


def query_problems(draft: DraftQuery, earlier: Iterable[str]) -> list[str]:
    """What is wrong with a request: its text, its date, and its 3 to 5 references, each older than it."""
    found = []
    if not draft.query.strip():
        found.append("a request is empty")
    if _same(draft.query) in map(_same, earlier):
        found.append("this request exists already; write another")
    if not REFERENCES[0] <= len(draft.references) <= REFERENCES[1]:
        found.append(f"{len(draft.references)} references; give 3 to 5")
    if len({_same(one.text) for one in draft.references}) < len(draft.references):
        found.append("two references say the same")
    if not all(one.text.strip() for one in draft.references):
        found.append("a reference is empty")
    when = day(draft.date)
    if when is None:
        found.append(_no_date(draft.date))
    for reference in draft.references:
        told = day(reference.date)
        if told is None:
            found.append(_no_date(reference.date))
        elif when is not None and told >= when:
            found.append(f"the reference of {reference.date} is not older than its request of {draft.date}")
    return found


def timeline_problems(events: Sequence[DraftEvent], query: DraftQuery, domains: Iterable[str]) -> list[str]:
    """What is wrong with the timeline of a request that has passed `query_problems`.

    Args:
        events: The plan; references are called r1, r2, ... in the request's order.
        query: The request.
        domains: The domains of the user's profile.
    """
    found = [] if EVENTS[0] <= len(events) <= EVENTS[1] else [f"{len(events)} events; plan 5 to 10"]
    days = [day(event.date) for event in events]
    bad = [_no_date(event.date) for event, on in zip(events, days, strict=True) if on is None]
    known = [on for on in days if on is not None]
    found += bad or _order_problems(known, query)
    found += _reference_problems(events, query)
    names = {_same(domain) for domain in domains}
    for event in events:
        strange = [domain for domain in event.domains if _same(domain) not in names]
        if strange or not event.domains:
            found.append(f"event of {event.date}: domains {strange}; use names of domain_summaries, at least one")
        if not event.summary.strip():
            found.append(f"event of {event.date}: no summary")
    return found


def dialogue_problems(turns: Sequence[DraftTurn], facts: Sequence[str]) -> list[str]:
    """What is wrong with a chat in which the user has to state these facts."""
    found = [] if TURNS[0] <= len(turns) <= TURNS[1] else [f"{len(turns)} turns; write 5 to 30"]
    if turns and turns[0].speaker != "user":
        found.append("the user has to begin")
    if any(one.speaker == other.speaker for one, other in pairwise(turns)):
        found.append("user and assistant have to alternate")
    if not all(turn.text.strip() for turn in turns):
        found.append("a turn is empty")
    said = _words(" ".join(turn.text for turn in turns if turn.speaker == "user"))
    for fact in facts:
        words = _words(fact)
        if words and len(words & said) < TOLD * len(words):
            found.append(f"the user does not tell this: {fact}")
    return found


def _order_problems(days: Sequence[date], query: DraftQuery) -> list[str]:
    found = []
    if any(one >= other for one, other in pairwise(days)):
        found.append("events are not in ascending order, one a day")
    asked, first = date.fromisoformat(query.date), min(date.fromisoformat(one.date) for one in query.references)
    if days and max(days) >= asked:
        found.append(f"an event is not before the request of {query.date}")
    if days and not first - SHORTLY <= min(days) < first:
        found.append(f"the first event is not shortly (at most {SHORTLY.days} days) before {first}")
    return found


def _reference_problems(events: Sequence[DraftEvent], query: DraftQuery) -> list[str]:
    dates = {f"r{n}": reference.date for n, reference in enumerate(query.references, start=1)}
    told = Counter(id for event in events for id in event.references)
    found = [f"reference {id} is told in {told[id]} events; tell it in exactly one" for id in dates if told[id] != 1]
    found += [f"there is no reference {id!r}" for id in told if id not in dates]
    return found + [
        f"reference {id} belongs to {dates[id]}, not to the event of {event.date}"
        for event in events
        for id in event.references
        if dates.get(id, event.date) != event.date
    ]


def _no_date(text: str) -> str:
    return f"{text!r} is no day; write YYYY-MM-DD"


def _same(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str) -> set[str]:
    """Beginnings of the longer words, and all numbers: "moved" and "moving" share them."""
    return {word[:4] for word in re.findall(r"\w+", text.casefold()) if len(word) > 3 or word.isdigit()}
