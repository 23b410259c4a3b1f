"""What code can check of situations, experiences, requirements and solutions.

The rules of the released code, and those of the paper's prompts that can be counted: sentences, the end of the month,
two needs. Ours are two: situations follow one another within three days, and no two candidates are the same.

Example:
    >>> from mempiler.data.synthesis.palset.framework_checks import candidate_problems
    >>> candidate_problems([], ["topic-1"])
    ['topics are []; give solutions for topic-1']

Limits: whether a situation fits its month, or a solution its requirement, is left to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from ....signatures.synthesis_palset_situations import DraftCandidates, DraftChoice, DraftSituation, DraftTopic
from ...cells import day
from .calendar import days_left
from .persona_checks import blank, text_problems
from .wording import length_problems

SITUATIONS = (4, 6)
IDS = (1, 3)
NEEDS, EVIDENCES, CANDIDATES, CHOSEN = 2, (1, 5), 8, 2
GAP = timedelta(days=3)
"""Most days from the end of a situation to the begin of the next: the paper says "closely", the number is ours."""
LAST_DAYS = 3
"""A month's last situation ends on one of so many last days."""
LETTERS = 100
"""Fewest characters of an experience, as in the released code."""


def situation_problems(
    situations: Sequence[DraftSituation], month: str, begin_after: str, types: Mapping[str, str], name: str
) -> list[str]:
    """What is wrong with the situations of a month.

    Args:
        situations: The draft.
        month: YYYY-MM.
        begin_after: Last day of the last situation of the month before; "" for the first month.
        types: The user's requirement types.
        name: The user's name, which must not occur.
    """
    fewest, most = SITUATIONS
    found = [] if fewest <= len(situations) <= most else [f"{len(situations)} situations; plan {fewest} to {most}"]
    last = day(begin_after)
    for n, one in enumerate(situations, 1):
        where = f"situation {n}"
        ids = one.requirement_ids
        unknown = [id for id in ids if id not in types]
        found += [f"{where}: there is no requirement type {', '.join(unknown)}"] if unknown else []
        found += [f"{where}: a requirement id is there twice"] if len(set(ids)) < len(ids) else []
        found += [] if IDS[0] <= len(ids) <= IDS[1] else [f"{where}: {len(ids)} requirement ids; give 1 to 3"]
        found += text_problems(f"{where}: situation", one.situation, 5, name)
        start, end = day(one.start), day(one.end)
        if start is None or end is None:
            found.append(f"{where}: {one.start!r} and {one.end!r} have to be days as YYYY-MM-DD")
            last = None
            continue
        found += [f"{where}: its first day is not before its last"] if start >= end else []
        found += [] if one.end.startswith(month) else [f"{where}: ends on {end}, not in {month}"]
        if last is None:
            found += [] if n > 1 or one.start.startswith(month) else [f"{where}: begins on {start}, not in {month}"]
        elif not last < start <= last + GAP:
            found.append(f"{where}: begins on {start}; it has to follow the end of the one before, {last}, closely")
        last = end
    if situations and last and f"{last}".startswith(month) and days_left(last) >= LAST_DAYS:
        found.append(f"the last situation ends on {last}; end it on one of the last 3 days of the month")
    return found


def experience_problems(text: str, name: str) -> list[str]:
    """What is wrong with a detailed account."""
    found = text_problems("the experience", text, 1, name)
    return found + ([f"the experience has only {len(text)} characters"] if len(text.strip()) < LETTERS else [])


def topic_problems(topics: Sequence[DraftTopic], types: Sequence[str], name: str) -> list[str]:
    """What is wrong with the requirements of a dialogue, one topic for each type."""
    asked = [one.requirement_type.strip() for one in topics]
    found = [] if asked == list(types) else [f"requirement types are {asked}; write topics for {list(types)}"]
    for n, one in enumerate(topics, 1):
        where = f"topic-{n}"
        what = f"{where}: the user_query"
        found += [f"{what} is empty"] if blank(one.user_query) else length_problems(what, one.user_query, 1, 2)
        found += text_problems(f"{where}: requirement", one.requirement, 1, name)
        if len(one.implicit_needs) != NEEDS:
            found.append(f"{where}: {len(one.implicit_needs)} implicit needs; give 2")
        for need in one.implicit_needs:
            found += text_problems(f"{where}: need", need.need, 1, name, 1)
            if not EVIDENCES[0] <= len(need.evidences) <= EVIDENCES[1] or any(map(blank, need.evidences)):
                found.append(f"{where}: a need has to have 1 to 5 evidences, none empty")
    return found


def candidate_problems(candidates: Sequence[DraftCandidates], topics: Sequence[str]) -> list[str]:
    """What is wrong with the candidate solutions of a dialogue's topics."""
    given = [one.topic.strip() for one in candidates]
    found = [] if given == list(topics) else [f"topics are {given}; give solutions for {', '.join(topics)}"]
    for one in candidates:
        texts = [text.strip() for text in one.solutions]
        found += [] if len(texts) == CANDIDATES else [f"{one.topic}: {len(texts)} solutions; give 8"]
        for n, text in enumerate(texts, 1):
            what = f"{one.topic}: solution {n}"
            found += [f"{what} is empty"] if blank(text) else length_problems(what, text, 1, 1)
        found += [f"{one.topic}: two solutions are the same"] if len(set(texts)) < len(texts) else []
    return found


def choice_problems(
    liked: Sequence[DraftChoice], disliked: Sequence[DraftChoice], candidates: Sequence[str], name: str
) -> list[str]:
    """What is wrong with the solutions that a user is said to like and dislike."""
    found = []
    for side, chosen in (("liked", liked), ("disliked", disliked)):
        found += [] if len(chosen) == CHOSEN else [f"{len(chosen)} {side} solutions; give 2"]
        for one in chosen:
            if one.solution.strip() not in candidates:
                found.append(f"{side}: {one.solution!r} is none of the candidates, word for word")
            found += text_problems(f"{side}: feedback_reason", one.feedback_reason, 1, name, 1)
    named = [one.solution.strip() for one in (*liked, *disliked)]
    return found + (["a solution is chosen twice"] if len(set(named)) < len(named) else [])
