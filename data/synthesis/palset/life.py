"""Steps 3, 4 and 6-1 of PAL-Set: a user's months become situations, these experiences, and these logs.

    month ──> 4 to 6 situations (they know those of the month before)
    situation ──> experience (it knows the situation before) ──> logs

The contents of log entries have the formats of the paper's Table 5, of which code checks what `form_problem` says.

Limits: experiences are written in parallel, each knowing the situation before it and not the experience that
was made of that. Twenty entries are asked for and fifteen accepted, as in the released code; the last attempt may have
entries outside the span, out of order or of another form, which are then left out or put in order, as there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ....signatures.synthesis_palset_records import DraftLog, WriteLogs
from ....signatures.synthesis_palset_situations import DescribeExperience, DraftSituation, PlanSituations
from ..runner import Checked, Step, whole
from .calendar import moments
from .framework_checks import experience_problems, situation_problems
from .people import Persona, Setting, Situation
from .persona_checks import blank
from .wording import length_problems

SITUATIONS = Step("situations", PlanSituations, list[DraftSituation])
EXPERIENCE = Step("experience", DescribeExperience, str)
LOGS = Step("logs", WriteLogs, list[DraftLog])
FEWEST_LOGS = 15
_SAYS = re.compile("[\"“”'‘’「」『』《》]")
_WHEN = re.compile(r"\d.*\d", re.DOTALL)
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "message sending": (_SAYS, "the message in quotation marks"),
    "message receiving": (_SAYS, "the message in quotation marks"),
    "schedule management": (_WHEN, "when the appointment begins and ends"),
}
"""What contents of a type have to hold, beside that the user did something (Table 5)."""


def situations(persona: Persona, setting: Setting) -> list[Situation] | None:
    """A user's situations in order, month after month; None if a month was given up."""
    found: list[Situation] = []
    last: list[Situation] = []
    for month in persona.timeline:
        drafts = _month(persona, month.month, month.events, last, setting)
        if drafts is None:
            return None
        last = [_situation(persona.person.id, draft, setting.seed) for draft in drafts]
        found += last
    return found


def _month(
    persona: Persona, month: str, events: str, last: Sequence[Situation], setting: Setting
) -> list[DraftSituation] | None:
    person, begin_after = persona.person, last[-1].end if last else ""
    inputs = {
        "profile": person.profile,
        "requirement_types": [f"{id}: {text}" for id, text in persona.types.items()],
        "earlier_situations": [f"{one.start} ~ {one.end}: {one.text}" for one in last],
        "begin_after": begin_after,
        "month": month,
        "events": events,
    }

    check = whole("situations", situation_problems, month, begin_after, persona.types, person.draft.name)
    return setting.ask(SITUATIONS, f"{person.id}/{month}", inputs, check)


def _situation(user: str, draft: DraftSituation, seed: int) -> Situation:
    begins, ends = moments(user, draft.start, draft.end, seed)
    return Situation(draft.start, draft.end, begins, ends, tuple(draft.requirement_ids), draft.situation.strip())


def experience(persona: Persona, found: Sequence[Situation], n: int, setting: Setting) -> str | None:
    """The detailed account of a user's n-th situation."""
    person, situation = persona.person, found[n]
    inputs = {
        "profile": person.profile,
        "previous_situation": f"{found[n - 1].span}: {found[n - 1].text}" if n else "",
        "span": situation.span,
        "situation": situation.text,
    }

    def check(answer: Any) -> Checked:
        problems = experience_problems(answer.experience, person.draft.name)
        return Checked(None if problems else answer.experience.strip(), problems)

    return setting.ask(EXPERIENCE, f"{person.id}/{situation.end}", inputs, check)


def logs(persona: Persona, situation: Situation, told: str, setting: Setting) -> list[DraftLog] | None:
    """The log entries of an experience."""
    person = persona.person
    inputs = {
        "profile": person.profile,
        "experience": told,
        "begin": situation.begins[:16],
        "end": situation.ends[:16],
    }

    def last(answer: Any) -> Checked:
        kept = in_time(answer.logs, situation)
        problems = log_problems(kept, situation)
        return Checked(None if problems else kept, problems or log_problems(answer.logs, situation))

    return setting.ask(LOGS, f"{person.id}/{situation.end}", inputs, whole("logs", log_problems, situation), last=last)


def log_problems(entries: Sequence[DraftLog], situation: Situation) -> list[str]:
    """What is wrong with the log entries of a situation."""
    found = [] if len(entries) >= FEWEST_LOGS else [f"{len(entries)} entries; write 20 or more"]
    before = ""
    for n, one in enumerate(entries, 1):
        problem = form_problem(one)
        found += [f"entry {n}: {problem}"] if problem else length_problems(f"entry {n}: the event", one.event, 1, 1)
        if minute(one.timestamp) is None:
            found.append(f"entry {n}: {one.timestamp!r} is no time; write YYYY-MM-DD HH:MM")
            continue
        if not situation.begins[:16] <= one.timestamp <= situation.ends[:16]:
            found.append(f"entry {n}: {one.timestamp} is not within {situation.span}")
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


def in_time(entries: Sequence[DraftLog], situation: Situation) -> list[DraftLog]:
    """The entries of the right form within a situation's span, ordered; of several in one minute the first."""
    begin, end = situation.begins[:16], situation.ends[:16]
    formed = [one for one in reversed(entries) if minute(one.timestamp) and form_problem(one) is None]
    kept = {one.timestamp: one for one in formed if begin <= one.timestamp <= end}
    return [kept[time] for time in sorted(kept)]


def minute(text: str) -> datetime | None:
    """The minute that YYYY-MM-DD HH:MM means, None if it is none."""
    try:
        found = datetime.strptime(text, "%Y-%m-%d %H:%M")
    except ValueError:
        return None
    return found if found.strftime("%Y-%m-%d %H:%M") == text else None
