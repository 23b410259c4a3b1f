"""Steps 3, 4 and 6-1 of PAL-Set: a user's months become situations, these experiences, and these logs.

    month ──> 4 to 6 situations (they know those of the month before)
    situation ──> experience (it knows the situation before) ──> logs

The calendar is that of the released code: all users end in December 2024 and have 7 to 12 months; a situation begins
between 7 and 12 o'clock and ends between 12 and 21; it gets a dialogue with probability .6, and in any case after three
that got none; the dialogues of the last month are the query set, which is drawn again until it has one. Contents of log
entries have the formats of the paper's Table 5. Twenty are asked for and fifteen accepted, as in the released code; the
last attempt may have entries outside the span, out of order or of another form, which are then left out or put in
order, as there.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from ....signatures.synthesis_palset import DescribeExperience, DraftSituation, PlanSituations
from ....signatures.synthesis_palset_records import DraftLog, WriteLogs
from ...field_types import parse_day, read_date
from ..runner import CheckResult, Step, accept_if_valid
from .people import Part, Persona, Session, Setting, blank, drawn_by, length_problems, text_problems

SITUATIONS = Step("situations", PlanSituations)
EXPERIENCE = Step("experience", DescribeExperience)
LOGS = Step("logs", WriteLogs)
FEWEST_LOGS = 15
_SAYS = re.compile("[\"“”'‘’「」『』《》]")
_WHEN = re.compile(r"\d.*\d", re.DOTALL)
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "message sending": (_SAYS, "the message in quotation marks"),
    "message receiving": (_SAYS, "the message in quotation marks"),
    "schedule management": (_WHEN, "when the appointment begins and ends"),
}
"""What contents of a type have to hold, beside that the user did something (Table 5)."""

SITUATION_COUNT, ID_COUNT = (4, 6), (1, 3)
GAP = timedelta(days=3)
"""Most days from the end of a situation to the begin of the next: the paper says "closely", the number is ours."""
LAST_DAYS = 3
"""A month's last situation ends on one of so many last days."""
LETTERS = 100
"""Fewest characters of an experience, as in the released code."""


def situations(persona: Persona, setting: Setting) -> list[Session]:
    """A user's situations in order, month after month, with what is drawn for each; none if a month was given up."""
    found: list[Session] = []
    last: list[Session] = []
    for month in persona.timeline:
        begin_after = last[-1].end if last else ""
        inputs = {
            "profile": persona.profile,
            "requirement_types": [f"{id}: {text}" for id, text in persona.types.items()],
            "earlier_situations": [f"{one.start} ~ {one.end}: {one.situation}" for one in last],
            "begin_after": begin_after,
            "month": month.month,
            "events": month.events,
        }
        check = accept_if_valid(
            "situations", situation_problems, month.month, begin_after, persona.types, persona.draft.name
        )
        drafts = setting.ask(SITUATIONS, f"{persona.id}/{month.month}", inputs, check)
        if drafts is None:
            return []
        last = [_session(persona, draft, setting.seed) for draft in drafts]
        found += last
    parts = draw(persona.id, [one.end for one in found], persona.timeline[-1].month, setting.seed)
    for one in found:
        one.part = parts.get(one.end, "")
    return found


def _session(persona: Persona, draft: DraftSituation, seed: int) -> Session:
    begins, ends = moments(persona.id, draft.start, draft.end, seed)
    return Session(persona, draft.start, draft.end, begins, ends, draft.requirement_ids, draft.situation.strip())


def experience(own: Sequence[Session], n: int, setting: Setting) -> str | None:
    """The detailed account of a user's n-th situation."""
    session = own[n]
    inputs = {
        "profile": session.persona.profile,
        "previous_situation": f"{own[n - 1].span}: {own[n - 1].situation}" if n else "",
        "span": session.span,
        "situation": session.situation,
    }
    told = setting.ask(
        EXPERIENCE, session.id, inputs, accept_if_valid("experience", experience_problems, session.persona.draft.name)
    )
    return told and told.strip()


def logs(session: Session, told: str, setting: Setting) -> list[DraftLog] | None:
    """The log entries of an experience."""
    begin, end = session.begins[:16], session.ends[:16]
    inputs = {"profile": session.persona.profile, "experience": told, "begin": begin, "end": end}

    def last(answer: Any) -> CheckResult:
        kept = in_time(answer.logs, begin, end)
        problems = log_problems(kept, begin, end)
        return CheckResult(None if problems else kept, problems or log_problems(answer.logs, begin, end))

    return setting.ask(LOGS, session.id, inputs, accept_if_valid("logs", log_problems, begin, end), last=last)


def situation_problems(
    situations: Sequence[DraftSituation], month: str, begin_after: str, types: Mapping[str, str], name: str
) -> list[str]:
    """What is wrong with a month's situations, which follow the last day of those before ("" for the first month)."""
    fewest, most = SITUATION_COUNT
    found = [] if fewest <= len(situations) <= most else [f"{len(situations)} situations; plan {fewest} to {most}"]
    last = parse_day(begin_after)
    for n, one in enumerate(situations, 1):
        where = f"situation {n}"
        ids = one.requirement_ids
        unknown = [id for id in ids if id not in types]
        found += [f"{where}: there is no requirement type {', '.join(unknown)}"] if unknown else []
        found += [f"{where}: a requirement id is there twice"] if len(set(ids)) < len(ids) else []
        found += [] if ID_COUNT[0] <= len(ids) <= ID_COUNT[1] else [f"{where}: {len(ids)} requirement ids; give 1 to 3"]
        found += text_problems(f"{where}: situation", one.situation, 5, name)
        start, end = parse_day(one.start), parse_day(one.end)
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
    left = monthrange(last.year, last.month)[1] - last.day if last else 0
    if situations and last and f"{last}".startswith(month) and left >= LAST_DAYS:
        found.append(f"the last situation ends on {last}; end it on one of the last 3 days of the month")
    return found


def experience_problems(text: str, name: str) -> list[str]:
    """What is wrong with a detailed account."""
    found = text_problems("the experience", text, 1, name)
    return found + ([f"the experience has only {len(text)} characters"] if len(text.strip()) < LETTERS else [])


def log_problems(entries: Sequence[DraftLog], begin: str, end: str) -> list[str]:
    """What is wrong with the log entries of a situation, which begins and ends in these minutes."""
    found = [] if len(entries) >= FEWEST_LOGS else [f"{len(entries)} entries; write 20 or more"]
    before = ""
    for n, one in enumerate(entries, 1):
        problem = form_problem(one)
        found += [f"entry {n}: {problem}"] if problem else length_problems(f"entry {n}: the event", one.event, 1, 1)
        if not is_minute(one.timestamp):
            found.append(f"entry {n}: {one.timestamp!r} is no time; write YYYY-MM-DD HH:MM")
            continue
        if not begin <= one.timestamp <= end:
            found.append(f"entry {n}: {one.timestamp} is not within {begin} ~ {end}")
        if one.timestamp <= before:
            found.append(f"entry {n}: {one.timestamp} is not later than the entry before, {before}")
        before = one.timestamp
    return found


def form_problem(entry: DraftLog) -> str | None:
    """What of an entry's content is not of the format of its type (Table 5); None where code finds nothing."""
    if blank(entry.content):
        return "the content is empty"
    if not re.match(r"the user\b|用户", entry.content.strip(), re.IGNORECASE):
        return "the content has to begin with 'The user' (用户 in Chinese)"
    needed, what = _FORMS.get(entry.type, (None, ""))
    return None if needed is None or needed.search(entry.content) else f"a {entry.type} has to give {what}"


def in_time(entries: Sequence[DraftLog], begin: str, end: str) -> list[DraftLog]:
    """The entries of the right form within a situation's span, ordered; of several in one minute the first."""
    formed = [one for one in reversed(entries) if is_minute(one.timestamp) and form_problem(one) is None]
    kept = {one.timestamp: one for one in formed if begin <= one.timestamp <= end}
    return [kept[time] for time in sorted(kept)]


def is_minute(text: str) -> bool:
    """Whether a text is a minute, YYYY-MM-DD HH:MM."""
    return bool(re.fullmatch("[0-9]{4}(-[0-9]{2}){2} [0-9]{2}:[0-9]{2}", text)) and read_date(text) is not None


KEEP = 0.6
"""Probability that a situation gets a dialogue."""
DROPS = 3
"""Most situations in a row without one."""


def moments(user: str, start: str, end: str, seed: int) -> tuple[str, str]:
    """When a situation begins and ends, as YYYY-MM-DD HH:MM:SS, on the full hour."""
    rng = drawn_by(seed, user, "hours", end)
    return f"{start} {rng.randint(7, 12):02d}:00:00", f"{end} {rng.randint(12, 21):02d}:00:00"


def draw(user: str, ends: Sequence[str], last_month: str, seed: int) -> dict[str, Part]:
    """Which situations get a dialogue, by their last days, and in which set; in the last month one at least, asked."""
    rng = drawn_by(seed, user, "dialogues")
    parts: dict[str, Part] = {}
    while "query" not in parts.values():
        dropped, parts = 0, {}
        for end in ends:
            if rng.random() < KEEP or dropped >= DROPS:
                parts[end] = "query" if end.startswith(last_month) else "history"
                dropped = 0
            else:
                dropped += 1
    return parts
