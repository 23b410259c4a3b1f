"""Reads dates and times from outside, and compares them.

A number is no moment: it could be seconds or milliseconds, and either reading would be a guess.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

_WEEKDAY = re.compile(r",\s*\w+day")
_FORM = "expected a date such as 2025-03-05 or 2025-03-05T18:20:00Z"


def _told(value: Any) -> Any:
    """Refuses what pydantic would take for seconds since 1970."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return value
        raise ValueError(f"{value[:30]!r} is a number; {_FORM}")
    if not isinstance(value, date):
        raise ValueError(f"{type(value).__name__} is no time; {_FORM}")
    return value


def _in_calendar(time: datetime) -> datetime:
    """Refuses what the calendar of another zone does not hold."""
    if time.tzinfo:
        try:
            time.astimezone(UTC)
        except OverflowError:
            raise ValueError("this moment is outside the calendar; expected a year from 2 to 9998") from None
    return time


Moment = Annotated[datetime, BeforeValidator(_told), AfterValidator(_in_calendar)]
"""A moment as a field of a record: a datetime, or a text in ISO form."""


def read_time(value: Any) -> datetime | None:
    """The moment that a text in ISO form means, or in that of `turns.format_time`; None for anything else."""
    text = value.strip() if isinstance(value, str) else ""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text)
    for form in ("%d %B %Y %H:%M", "%d %B %Y"):
        with contextlib.suppress(ValueError):
            return datetime.strptime(_WEEKDAY.sub("", text), form)
    return None


def utc(time: datetime | None) -> datetime | None:
    """The moment in UTC, without a zone: moments with and without one cannot be compared. None stays None."""
    return time.astimezone(UTC).replace(tzinfo=None) if time and time.tzinfo else time


def comparable(time: datetime | None) -> datetime:
    """The moment with a zone, UTC where none is told, so that any two can be sorted; None is before all others."""
    time = time or datetime.min
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def latest(*times: datetime | None) -> datetime | None:
    """The last of some moments, any of which may be missing."""
    return max((time for time in times if time), key=comparable, default=None)
