"""What the rules for relative dates are made of: the time that is meant, and dateparser to read it.

A language has rules (`_english_dates`, `_chinese_dates`). A rule finds one kind of relative date by
a regular expression and reads what is found: with dateparser wherever dateparser is right, else by
arithmetic of our own. `docs/relative_dates.md` compares the two on every kind.

Example:
    >>> from datetime import date
    >>> from mempiler.programs._date_rules import parse_date
    >>> parse_date("last friday", "en", date(2023, 1, 30)).first_day
    datetime.date(2023, 1, 27)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from re import Match, Pattern
from typing import NamedTuple


class Precision(StrEnum):
    """How exactly a date is meant. The first four are the words of dateparser."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"
    ABOUT_DAY = "about day"
    """About a day: "two weeks ago" is seldom meant to the day."""
    WEEKEND = "weekend"
    SEASON = "season"


class DateSpan(NamedTuple):
    """The time that a relative date means."""

    first_day: date
    precision: Precision
    season: str = ""
    """The name of the season, e.g. "summer"; empty for any other precision."""

    @property
    def last_day(self) -> date:
        """The last day of a week or a weekend; for any other precision the first day.

        Raises:
            OverflowError: The last day lies after the year 9999.
        """
        if self.precision is Precision.WEEK:
            return self.first_day + timedelta(days=6)
        if self.precision is Precision.WEEKEND:
            return self.first_day + timedelta(days=1)
        return self.first_day


@dataclass(frozen=True)
class DateRule:
    """Finds and reads one kind of relative date."""

    pattern: Pattern[str]
    read: Callable[[Match[str], date], DateSpan | None]
    """Return what a match of the pattern means on a day.

    The result is None if no calendar has that time, or if the match is only part of a longer time.
    For a time that no calendar has, it may also raise an OverflowError or a ValueError.
    """
    uses_dateparser: bool
    """Whether `read` leaves the reading to dateparser.

    Nothing but the table in `docs/relative_dates.md` shows it.
    """


@dataclass(frozen=True)
class DateLanguage:
    """A language in which relative dates are read."""

    sign: Pattern[str]
    """Matches in every relative date. Most texts have no match, and no rule need look at them."""
    rules: tuple[DateRule, ...]
    """They are applied one after the other, so earlier rules win."""
    write: Callable[[DateSpan], str]
    """Return a date in the words of the language, e.g. "27 January 2023"."""


def week_span(day: date, weeks_later: int) -> DateSpan:
    """Return a week from Monday to Sunday: 0 is the week of `day`, -1 the week before it."""
    monday = day - timedelta(days=day.weekday())
    return DateSpan(monday + timedelta(weeks=weeks_later), Precision.WEEK)


def weekend_span(day: date, weeks_later: int) -> DateSpan:
    """Return a Saturday and Sunday: 0 is the weekend of the week of `day`, -1 the one before it.

    Weeks begin on Monday. So on a Sunday, 0 is the weekend that began yesterday.
    """
    monday = week_span(day, weeks_later).first_day
    return DateSpan(monday + timedelta(days=5), Precision.WEEKEND)


@functools.lru_cache(maxsize=4096)
def parse_date(expression: str, language: str, day: date) -> DateSpan | None:
    """Return the time that a relative date such as "last week" means, as dateparser reads it.

    Results are cached, since dateparser takes about half a millisecond.

    Args:
        expression: The relative date alone, in words that dateparser reads correctly.
        language: "en" or "zh".
        day: The day on which it was said.

    Returns:
        The time, a week as its Monday to Sunday. None if dateparser reads nothing.

    Raises:
        OverflowError: The time lies before the year 1 or after 9999. For some such times, None is
            returned instead.
    """
    # dateparser takes long to import, and most programs never need it.
    from dateparser.date import DateDataParser

    settings = {
        "RELATIVE_BASE": datetime.combine(day, time()),
        # Without these, "last month" on 30 January would mean 30 December, not 1 December.
        "PREFER_MONTH_OF_YEAR": "first",
        "PREFER_DAY_OF_MONTH": "first",
    }
    parsed = DateDataParser(languages=[language], settings=settings).get_date_data(expression)
    if parsed.date_obj is None:
        return None

    first_day = parsed.date_obj.date()
    precision = Precision(parsed.period)
    if precision is Precision.WEEK:
        # dateparser returns the same weekday as `day`: "last week" on a Tuesday is a Tuesday.
        return week_span(first_day, weeks_later=0)
    return DateSpan(first_day, precision)
