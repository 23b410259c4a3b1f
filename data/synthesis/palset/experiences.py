"""Steps 4 and 6-1 of PAL-Set: what was experienced in a situation, and the logs of it.

    situation ──> experience (it knows the situation before) ──> logs

Contents of log entries have the formats of the paper's Table 5. Twenty entries are asked for and
fifteen accepted, as in the released code. The last attempt may have entries outside the span, out
of order or of another form; they are then left out or put in order, as there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import dspy

from ....signatures.synthesis_palset import DescribeExperience
from ....signatures.synthesis_palset_records import DraftLog, WriteLogs
from ...field_types import read_date
from ..runner import CheckResult, Step, accept_if_valid
from .records import Session
from .setting import Setting
from .texts import blank, length_problems, text_problems

MIN_LOGS = 15
MIN_CHARACTERS = 100
"""Fewest characters of an experience, as in the released code."""

EXPERIENCE = Step("experience", DescribeExperience)
LOGS = Step("logs", WriteLogs)


class _Form(NamedTuple):
    """What the content of a log entry has to hold."""

    pattern: re.Pattern[str]
    description: str


_QUOTED_MESSAGE = _Form(re.compile("[\"“”'‘’「」『』《》]"), "the message in quotation marks")
_TWO_TIMES = _Form(re.compile(r"\d.*\d", re.DOTALL), "when the appointment begins and ends")
_FORMS: Mapping[str, _Form] = {
    "message sending": _QUOTED_MESSAGE,
    "message receiving": _QUOTED_MESSAGE,
    "schedule management": _TWO_TIMES,
}
"""Forms by the type of an entry (Table 5), beside that the user did something."""
_BEGINS_WITH_USER = re.compile(r"the user\b|用户", re.IGNORECASE)
_MINUTE = re.compile("[0-9]{4}(-[0-9]{2}){2} [0-9]{2}:[0-9]{2}")


def write_experience(session: Session, setting: Setting) -> str | None:
    """Step 4: write the detailed account of a situation; None if it was given up."""
    inputs = {
        "profile": session.persona.profile,
        "previous_situation": session.previous_situation,
        "span": session.span,
        "situation": session.situation,
    }

    def check(answer: dspy.Prediction) -> CheckResult[str]:
        problems = experience_problems(answer.experience, session.persona.draft.name)
        return accept_if_valid(answer.experience, problems)

    experience = setting.ask(EXPERIENCE, session.id, inputs, check)
    if experience is None:
        return None
    return experience.strip()


def experience_problems(text: str, user_name: str) -> list[str]:
    """Return what is wrong with a detailed account."""
    problems = text_problems("the experience", text, 1, user_name)
    if len(text.strip()) < MIN_CHARACTERS:
        problems.append(f"the experience has only {len(text)} characters")
    return problems


def write_logs(session: Session, experience: str, setting: Setting) -> list[DraftLog] | None:
    """Step 6-1: write the log entries of an experience; None if they were given up.

    The last attempt is judged more mildly: entries with faults are left out, and the others are
    kept if there are enough of them.
    """
    begin = session.first_minute
    end = session.last_minute
    inputs = {
        "profile": session.persona.profile,
        "experience": experience,
        "begin": begin,
        "end": end,
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftLog]]:
        return accept_if_valid(answer.logs, log_problems(answer.logs, begin, end))

    def last_check(answer: dspy.Prediction) -> CheckResult[list[DraftLog]]:
        entries = usable_entries(answer.logs, begin, end)
        problems = log_problems(entries, begin, end)
        if problems:
            return CheckResult(None, problems)
        # The problems of the whole answer go into the report: they tell what was left out.
        problems_of_all = log_problems(answer.logs, begin, end)
        return CheckResult(entries, problems_of_all)

    return setting.ask(LOGS, session.id, inputs, check, last_check)


def log_problems(entries: Sequence[DraftLog], begin: str, end: str) -> list[str]:
    """Return what is wrong with the log entries of a situation.

    Args:
        entries: The entries, in order.
        begin: The minute in which the situation begins.
        end: The minute in which it ends.
    """
    problems: list[str] = []
    if len(entries) < MIN_LOGS:
        problems.append(f"{len(entries)} entries; write 20 or more")

    previous_time = ""
    for number, entry in enumerate(entries, 1):
        where = f"entry {number}"
        problem_of_form = form_problem(entry)
        if problem_of_form is not None:
            problems.append(f"{where}: {problem_of_form}")
        else:
            problems += length_problems(f"{where}: the event", entry.event, 1, 1)

        if not is_minute(entry.timestamp):
            problems.append(f"{where}: {entry.timestamp!r} is no time; write YYYY-MM-DD HH:MM")
            continue
        if not begin <= entry.timestamp <= end:
            problems.append(f"{where}: {entry.timestamp} is not within {begin} ~ {end}")
        if entry.timestamp <= previous_time:
            problems.append(
                f"{where}: {entry.timestamp} is not later than the entry before, {previous_time}"
            )
        previous_time = entry.timestamp
    return problems


def form_problem(entry: DraftLog) -> str | None:
    """Return what the content of an entry lacks, or None.

    Every content begins with the user. Some types have a form of their own in Table 5 of Mem-PAL,
    e.g. the content of a message quotes it; the others have none to be checked.
    """
    if blank(entry.content):
        return "the content is empty"
    if not _BEGINS_WITH_USER.match(entry.content.strip()):
        return "the content has to begin with 'The user' (用户 in Chinese)"
    form = _FORMS.get(entry.type)
    if form is None or form.pattern.search(entry.content):
        return None
    return f"a {entry.type} has to give {form.description}"


def usable_entries(entries: Sequence[DraftLog], begin: str, end: str) -> list[DraftLog]:
    """Return the entries that are kept in a last attempt, ordered by time.

    Left out are those without a time, outside the span or with a content in the wrong form. Of
    several entries in one minute the first is kept.

    Args:
        entries: The entries of an answer, in any order.
        begin: The minute in which the situation begins.
        end: The minute in which it ends.
    """
    entries_by_minute: dict[str, DraftLog] = {}
    for entry in entries:
        if not is_minute(entry.timestamp) or form_problem(entry) is not None:
            continue
        if begin <= entry.timestamp <= end:
            entries_by_minute.setdefault(entry.timestamp, entry)
    return [entries_by_minute[minute] for minute in sorted(entries_by_minute)]


def is_minute(text: str) -> bool:
    """Return whether a text is a minute, YYYY-MM-DD HH:MM."""
    return _MINUTE.fullmatch(text) is not None and read_date(text) is not None
