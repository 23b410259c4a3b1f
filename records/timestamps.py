"""Read and compare dates and times.

A number is refused as a time: it could mean seconds or milliseconds, and the data does not say.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

_WEEKDAY = re.compile(r",\s*\w+day")
_EXAMPLES = "expected a date such as 2025-03-05 or 2025-03-05T18:20:00Z"


def _refuse_number(value: object) -> date | str:
    """Refuse what pydantic would read as seconds since 1970.

    Raises:
        ValueError: The value is a number, a text with one, or of another type than a time.
    """
    if isinstance(value, date):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} is no time; {_EXAMPLES}")

    try:
        float(value)
    except ValueError:
        return value
    raise ValueError(f"{value[:30]!r} is a number; {_EXAMPLES}")


def _refuse_outside_calendar(time: datetime) -> datetime:
    """Refuse a time that Python cannot convert to UTC.

    Python's calendar has the years 1 to 9999. 9999-12-31T23:00-02:00 is a time of the year 9999,
    but in UTC the year 10000 has begun. A time without a zone is never converted, so it passes.

    Raises:
        ValueError: In UTC, the time is before the year 1 or after the year 9999.
    """
    if time.tzinfo is None:
        return time

    try:
        time.astimezone(UTC)
    except OverflowError:
        # No zone moves a time by more than a day, so these years fit in every zone.
        reason = "this moment is outside the calendar; expected a year from 2 to 9998"
        raise ValueError(reason) from None
    return time


Moment = Annotated[
    datetime, BeforeValidator(_refuse_number), AfterValidator(_refuse_outside_calendar)
]
"""The type of a field that holds a time: it accepts a datetime, or a text in ISO form."""


def read_time(value: object) -> datetime | None:
    """Return the time that a text says, in ISO form or as `turns.format_time` writes it.

    Anything else is None.
    """
    if not isinstance(value, str):
        return None

    text = value.strip()
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text)

    text_without_weekday = _WEEKDAY.sub("", text)
    for time_format in ("%d %B %Y %H:%M", "%d %B %Y"):
        with contextlib.suppress(ValueError):
            return datetime.strptime(text_without_weekday, time_format)
    return None


def utc(time: datetime | None) -> datetime | None:
    """Return a time in UTC without its zone, as stores keep it. None stays None.

    A time that has no zone stays as it is.
    """
    if time is None or time.tzinfo is None:
        return time
    return time.astimezone(UTC).replace(tzinfo=None)


def comparable(time: datetime | None) -> datetime:
    """Return a time as a key for sorting: Python cannot compare times with and without a zone.

    A time without a zone is taken as UTC. None comes before all times.
    """
    if time is None:
        return datetime.min.replace(tzinfo=UTC)
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    return time


def latest(*times: datetime | None) -> datetime | None:
    """Return the latest of some times, any of which may be missing."""
    known_times = [time for time in times if time]
    return max(known_times, key=comparable, default=None)
