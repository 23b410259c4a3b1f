"""Step 3 of PAL-Set: the months of a user become situations, some of which end in a dialogue.

    month ──> 4 to 6 situations (they know those of the month before)

A situation is some days of the user's life that lead to requirements.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

import dspy

from ....signatures.synthesis_palset import DraftMonth, DraftSituation, PlanSituations
from ...field_types import parse_day
from ..runner import CheckResult, Step, accept_if_valid
from .dates import draw_dialogues, draw_hours
from .records import Persona, Session
from .setting import Setting
from .texts import text_problems

MIN_SITUATIONS = 4
MAX_SITUATIONS = 6
"""Situations of a month."""
MIN_REQUIREMENTS = 1
MAX_REQUIREMENTS = 3
"""Requirement types of a situation."""
GAP = timedelta(days=3)
"""Most days from the end of a situation to the beginning of the next.

The paper says "closely"; the number is ours.
"""
LAST_DAYS = 3
"""The last situation of a month ends on one of so many last days."""

SITUATIONS = Step("situations", PlanSituations)


def plan_situations(persona: Persona, setting: Setting) -> list[Session]:
    """Plan a user's situations, month by month, and draw which of them get a dialogue.

    Returns:
        A session for each situation, in order; none if a month was given up.
    """
    sessions: list[Session] = []
    previous_month: list[Session] = []
    for month in persona.timeline:
        drafts = _plan_month(persona, month, previous_month, setting)
        if drafts is None:
            return []

        sessions_of_month: list[Session] = []
        for draft in drafts:
            previous = sessions[-1] if sessions else None
            session = _session(persona, draft, previous, setting.seed)
            sessions.append(session)
            sessions_of_month.append(session)
        previous_month = sessions_of_month

    # Dialogues are drawn for all months together: the draw is repeated until the final month has
    # one.
    ends = [session.end for session in sessions]
    final_month = persona.timeline[-1].month
    parts = draw_dialogues(persona.id, ends, final_month, setting.seed)
    for session in sessions:
        if session.end in parts:
            session.part = parts[session.end]
    return sessions


def _plan_month(
    persona: Persona, month: DraftMonth, previous_month: Sequence[Session], setting: Setting
) -> list[DraftSituation] | None:
    """Ask for the situations of a month.

    Args:
        persona: The user.
        month: The month.
        previous_month: The sessions of the month before; none for the user's first month.
        setting: Asks the model.
    """
    # The prompt says that this is empty for the user's first month.
    begin_after = previous_month[-1].end if previous_month else ""
    inputs = {
        "profile": persona.profile,
        "requirement_types": [f"{type_id}: {text}" for type_id, text in persona.types.items()],
        "earlier_situations": [
            f"{session.start} ~ {session.end}: {session.situation}" for session in previous_month
        ],
        "begin_after": begin_after,
        "month": month.month,
        "events": month.events,
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftSituation]]:
        problems = situation_problems(
            answer.situations, month.month, begin_after, persona.types, persona.draft.name
        )
        return accept_if_valid(answer.situations, problems)

    return setting.ask(SITUATIONS, f"{persona.id}/{month.month}", inputs, check)


def _session(
    persona: Persona, draft: DraftSituation, previous: Session | None, seed: int
) -> Session:
    """Return the session of a situation, with its hours drawn."""
    hours = draw_hours(persona.id, draft.start, draft.end, seed)
    return Session(
        persona=persona,
        start=draft.start,
        end=draft.end,
        begins=hours.begins,
        ends=hours.ends,
        requirement_ids=draft.requirement_ids,
        situation=draft.situation.strip(),
        previous_situation=f"{previous.span}: {previous.situation}" if previous else "",
    )


def situation_problems(
    situations: Sequence[DraftSituation],
    month: str,
    begin_after: str,
    types: Mapping[str, str],
    user_name: str,
) -> list[str]:
    """Return what is wrong with the situations of a month.

    Args:
        situations: The situations, in order.
        month: YYYY-MM.
        begin_after: The last day of the situation before the first of these; "" for the user's
            first month, where there is none.
        types: The requirement types by id.
        user_name: The user's name, which texts must not give.
    """
    problems: list[str] = []
    if not MIN_SITUATIONS <= len(situations) <= MAX_SITUATIONS:
        wanted = f"plan {MIN_SITUATIONS} to {MAX_SITUATIONS}"
        problems.append(f"{len(situations)} situations; {wanted}")

    previous_end = parse_day(begin_after)
    for number, situation in enumerate(situations, 1):
        where = f"situation {number}"
        problems += _requirement_problems(where, situation.requirement_ids, types)
        problems += text_problems(f"{where}: situation", situation.situation, 5, user_name)
        # The very first situation of a user has none before it, and begins in its month.
        must_begin_in_month = number == 1 and previous_end is None
        problems += _day_problems(where, situation, month, previous_end, must_begin_in_month)
        previous_end = _end_if_dated(situation)

    if situations:
        last_end = _end_if_dated(situations[-1])
        if last_end is not None:
            problems += _last_day_problems(last_end, month)
    return problems


def _requirement_problems(where: str, ids: Sequence[str], types: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the requirement types of a situation."""
    problems: list[str] = []
    unknown_ids = [type_id for type_id in ids if type_id not in types]
    if unknown_ids:
        problems.append(f"{where}: there is no requirement type {', '.join(unknown_ids)}")
    if len(set(ids)) < len(ids):
        problems.append(f"{where}: a requirement id is there twice")
    if not MIN_REQUIREMENTS <= len(ids) <= MAX_REQUIREMENTS:
        problems.append(f"{where}: {len(ids)} requirement ids; give 1 to 3")
    return problems


def _day_problems(
    where: str,
    situation: DraftSituation,
    month: str,
    previous_end: date | None,
    must_begin_in_month: bool,
) -> list[str]:
    """Return what is wrong with the days of a situation.

    Args:
        where: How problems call the situation.
        situation: The situation.
        month: YYYY-MM.
        previous_end: The last day of the situation before. It is None if there is no such
            situation, or if its days cannot be parsed; nothing is compared with it then.
        must_begin_in_month: Whether its first day has to be in the month. The first situation of a
            later month may begin in the month before.
    """
    start = parse_day(situation.start)
    end = parse_day(situation.end)
    if start is None or end is None:
        days = f"{situation.start!r} and {situation.end!r}"
        return [f"{where}: {days} have to be days as YYYY-MM-DD"]

    problems: list[str] = []
    if start >= end:
        problems.append(f"{where}: its first day is not before its last")
    if not situation.end.startswith(month):
        problems.append(f"{where}: ends on {end}, not in {month}")
    if must_begin_in_month and not situation.start.startswith(month):
        problems.append(f"{where}: begins on {start}, not in {month}")
    if previous_end is not None and not previous_end < start <= previous_end + GAP:
        problems.append(
            f"{where}: begins on {start}; "
            f"it has to follow the end of the one before, {previous_end}, closely"
        )
    return problems


def _end_if_dated(situation: DraftSituation) -> date | None:
    """Return the last day of a situation; None if one of its days is no day."""
    if parse_day(situation.start) is None:
        return None
    return parse_day(situation.end)


def _last_day_problems(last_end: date, month: str) -> list[str]:
    """Return what is wrong with the last day of a month's last situation."""
    days_in_month = monthrange(last_end.year, last_end.month)[1]
    days_left = days_in_month - last_end.day
    if not last_end.isoformat().startswith(month) or days_left < LAST_DAYS:
        return []
    return [f"the last situation ends on {last_end}; end it on one of the last 3 days of the month"]
