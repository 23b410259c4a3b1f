"""Relative dates in English: which ones are read, and how the date beside them is written.

What may mean several days ("on Friday", "a few days ago", "recently") has no rule. Nor is a date
written where only part of a longer time would be read: "2.5 years ago", "two or three weeks ago".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from re import Match

from ._date_rules import (
    DateLanguage,
    DateRule,
    DateSpan,
    Precision,
    parse_date,
    week_span,
    weekend_span,
)

_WEEKDAYS = {
    "mon": "monday",
    "tue": "tuesday",
    "wed": "wednesday",
    "thu": "thursday",
    "fri": "friday",
    "sat": "saturday",
    "sun": "sunday",
}
"""The weekdays by their first three letters, since people shorten them in many ways."""

_MONTHS = {
    "january": 1,
    "february": 2,
    "march": 3,
    "april": 4,
    "may": 5,
    "june": 6,
    "july": 7,
    "august": 8,
    "september": 9,
    "october": 10,
    "november": 11,
    "december": 12,
}

_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month in which a season begins, in the north."""
_MONTHS_OF_A_SEASON = 3

_DIRECTIONS = {"last": -1, "past": -1, "this": 0, "coming": 1, "next": 1}
_DIRECTION_WORDS = {-1: "last", 0: "this", 1: "next"}
"""The words for a direction that dateparser reads: it knows no "this past" and no "this coming"."""

_NUMBERS = {
    "a": 1,
    "an": 1,
    "a couple of": 2,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}

# Parts of the patterns.
_WEEKDAY = (
    r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri)(?:day)?"
    # "This sun is hot" and "my last SAT" mean no weekday.
    r"|(?:sat(?:ur)?|sun)day|(?-i:Sat|Sun)"
)
_MONTH = "|".join(_MONTHS)
_MONTH_ALONE = _MONTH.replace("march", "(?-i:March|MARCH)").replace("may", "(?-i:May|MAY)")
"""A month without a number. "This may be wrong" means no month, so May and March need capitals."""
_PARSED_UNIT = rf"week|month|year|{_WEEKDAY}"
"""What dateparser reads after "last", "this" and "next"."""
_OTHER_UNIT = rf"weekend|{'|'.join(_SEASONS)}|{_MONTH_ALONE}"
_DIRECTION = rf"last|next|this(?:\s+coming|\s+past(?=\s+(?:weekend|{_WEEKDAY})\b))?"
_COUNT = rf"\d{{1,3}}|{'|'.join(_NUMBERS)}"
_DAY_NUMBER = r"(?P<{}>\d{{1,2}})(?:st|nd|rd|th)?"
_DATE = (
    # "9 June" or "June 9th", either with a year or without
    rf"(?:{_DAY_NUMBER.format('day')}\s+(?P<month>{_MONTH})"
    rf"|(?P<first_month>{_MONTH})\s+{_DAY_NUMBER.format('last_day')})"
    r"(?:,?\s+(?P<year>\d{4}))?"
)

# Parts of the pattern of longer times.
_DIGITS = r"\d{1,3}"
_ROUND_NUMBER = (
    "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|dozen"
)
_NUMBER_BUT_ONE = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    rf"|seventeen|eighteen|nineteen|{_ROUND_NUMBER}|couple|half"
)
_WORD = rf"one|{_NUMBER_BUT_ONE}"
_ANY_NUMBER = rf"{_DIGITS}|{_WORD}"
_LONGER_NUMBERS = (
    # "2.5", "1,000", "2/3" or "1 000"
    r"\d+[.,/'’]\d+",
    r"\d{1,3}\s\d{3}",
    # "half a" year or "three quarters of a" year
    r"(?:half|quarters?|thirds?|part|most|[½¼¾])\s+(?:of\s+)?an?",
    # "twenty-five" or "a hundred and two"
    rf"(?:{_ROUND_NUMBER})(?:-|\s+)(?:and\s+)?(?:{_WORD})",
    # "2-3", "2, 3", "two-three" or "two, three". But in "I bought one, two weeks ago we met", the
    # number is two.
    rf"{_DIGITS}\s*[-–—~,]\s*{_DIGITS}",
    rf"(?:{_WORD})[-–—~](?:{_WORD})",
    rf"(?:{_NUMBER_BUT_ONE})\s*[-–—~,]\s*(?:{_WORD})",
    # "two or three", "2 to 3" or "between two and three"
    rf"(?:{_ANY_NUMBER})\s+(?:or|to)\s+(?:{_ANY_NUMBER})",
    rf"between\s+(?:{_ANY_NUMBER})\s+and\s+(?:{_ANY_NUMBER})",
)
_SEVERAL = rf"an?|few|several|{_ANY_NUMBER}"
_AND = r"(?:\s*,\s*|\s+)(?:and\s+)?"
_LONGER_TIMES = (
    rf"(?:{'|'.join(_LONGER_NUMBERS)})\s+(?:day|week|weekend|month|year)s?",
    # "a week or two weeks"
    rf"(?:{_SEVERAL})\s+(?:day|week|weekend|month|year)s?\s+(?:or|to)\s+(?:{_COUNT})\s+\w+",
    # "a year and two months". But "for two weeks a year ago" are two times.
    rf"(?:{_SEVERAL})\s+years?{_AND}(?:{_COUNT})\s+(?:month|week|day)s?",
    rf"(?:{_SEVERAL})\s+months?{_AND}(?:{_COUNT})\s+(?:week|day)s?",
    rf"(?:{_SEVERAL})\s+weeks?{_AND}(?:{_COUNT})\s+days?",
)
_LONGER_TIME_BEFORE_AGO = re.compile(rf"\b(?:{'|'.join(_LONGER_TIMES)})\s+\Z", re.IGNORECASE)
_MAX_CHARS_BEFORE_A_COUNT = 60
"""Characters before a count in which the beginning of a longer time is looked for."""


def write_english_date(span: DateSpan) -> str:
    """Return a date in English: "27 January 2023", "23 to 29 January 2023" or "summer 2022".

    The precision of a span says whether a day, a week or something else is meant.
    """
    first_day = span.first_day
    month_and_year = f"{first_day:%B} {first_day.year}"
    day_month_and_year = f"{first_day.day} {month_and_year}"

    match span.precision:
        case Precision.DAY:
            return day_month_and_year
        case Precision.ABOUT_DAY:
            return f"about {day_month_and_year}"
        case Precision.WEEK | Precision.WEEKEND:
            return _write_range(first_day, span.last_day)
        case Precision.MONTH:
            return month_and_year
        case Precision.SEASON:
            return f"{span.season} {first_day.year}"
        case Precision.YEAR:
            return str(first_day.year)


def _write_range(first_day: date, last_day: date) -> str:
    """Return a range such as "30 January 2023 to 5 February 2023".

    Within one month it is shorter: "23 to 29 January 2023".
    """
    end = f"{last_day.day} {last_day:%B} {last_day.year}"
    if first_day.month == last_day.month:
        return f"{first_day.day} to {end}"
    return f"{first_day.day} {first_day:%B} {first_day.year} to {end}"


def _read_day(match: Match[str], day: date) -> DateSpan | None:
    """Return the day of "yesterday" or "the day after tomorrow"."""
    return parse_date(match["words"].lower(), "en", day)


def _read_direction(match: Match[str], day: date) -> DateSpan | None:
    """Return the time of "last week", "this coming Sunday" or "next summer"."""
    # The direction may be two words: "this coming" means "coming", and "this past" means "past".
    word = match["direction"].lower().split()[-1]
    return _unit_span(_DIRECTIONS[word], match["unit"].lower(), day)


def _unit_span(direction: int, unit: str, day: date) -> DateSpan | None:
    """Return the time of words such as "last week", "this summer" or "next Tuesday".

    Args:
        direction: -1 for "last", 0 for "this" and 1 for "next".
        unit: The second word in small letters: "week", "month", "year", "weekend", or the name of a
            weekday, a season or a month. A weekday may be shortened: "tues".
        day: The day on which it was said.
    """
    if unit == "weekend":
        return weekend_span(day, direction)
    if unit in _SEASONS:
        year = _year_of_months(direction, _SEASONS[unit], _MONTHS_OF_A_SEASON, day)
        return DateSpan(date(year, _SEASONS[unit], 1), Precision.SEASON, unit)
    if unit in _MONTHS:
        year = _year_of_months(direction, _MONTHS[unit], month_count=1, day=day)
        return DateSpan(date(year, _MONTHS[unit], 1), Precision.MONTH)

    # The rest is left to dateparser, which reads weekdays by their full names.
    is_weekday = unit not in ("week", "month", "year")
    name = _WEEKDAYS[unit[:3]] if is_weekday else unit
    return parse_date(f"{_DIRECTION_WORDS[direction]} {name}", "en", day)


def _year_of_months(direction: int, first_month: int, month_count: int, day: date) -> int:
    """Return the year that is meant by "last May", "this summer" or the like.

    On a day in June 2023, "last May" is May 2023 and "next May" is May 2024. But "last summer" is
    the summer of 2022, since the summer of 2023 is not over.

    Args:
        direction: -1 for "last", 0 for "this" and 1 for "next".
        first_month: The number of the month, or of the first month of the season.
        month_count: How many months it has: 1 for a month, 3 for a season.
        day: The day on which it was said.
    """
    has_begun = day.month >= first_month
    is_over = day.month >= first_month + month_count

    if direction == -1 and not is_over:
        return day.year - 1
    if direction == 1 and has_begun:
        return day.year + 1
    return day.year


def _read_before_last(match: Match[str], day: date) -> DateSpan:
    """Return the span of "the week before last" or "the weekend before last"."""
    if match["unit"].lower() == "weekend":
        return weekend_span(day, -2)
    return week_span(day, -2)


def _read_count(match: Match[str], day: date) -> DateSpan | None:
    """Return the time of "two weeks ago" or "3 days from now".

    The result is None if these are the last words of a longer time: "one or two weeks ago".

    Args:
        match: A match with a "number", a "unit" (day, week, month or year) and a "way", which is
            "ago" or "from now".
        day: The day on which it was said.
    """
    if _ends_longer_time(match):
        return None

    number = _read_number(match["number"])
    unit = match["unit"].lower()

    # The two words of "from now" may be on two lines of the text.
    way = " ".join(match["way"].lower().split())
    if unit != "week":
        return parse_date(f"{number} {unit}s {way}", "en", day)

    # "Two weeks ago" means no whole week from Monday to Sunday, but about the day that was fourteen
    # days before.
    span = parse_date(f"{7 * number} days {way}", "en", day)
    if span is None:
        return None
    return DateSpan(span.first_day, Precision.ABOUT_DAY)


def _read_weekend_count(match: Match[str], day: date) -> DateSpan | None:
    """Return the weekend of "two weekends ago" or "three weekends from now".

    The result is None if these are the last words of a longer time: "2-3 weekends ago".
    """
    if _ends_longer_time(match):
        return None

    number = _read_number(match["number"])
    is_past = match["way"].lower() == "ago"
    return weekend_span(day, -number if is_past else number)


def _ends_longer_time(match: Match[str]) -> bool:
    """Return whether a count is the end of a longer time, as "5 years ago" in "2.5 years ago".

    Args:
        match: A match with a "number" and a "way", which is "ago" or "from now".
    """
    start = max(0, match.start("number") - _MAX_CHARS_BEFORE_A_COUNT)
    text = match.string[start : match.start("way")]
    return _LONGER_TIME_BEFORE_AGO.search(text) is not None


def _read_number(text: str) -> int:
    """Return the number that "3" or "three" stands for."""
    word = text.lower()
    return _NUMBERS[word] if word in _NUMBERS else int(word)


def _read_around_date(match: Match[str], day: date) -> DateSpan | None:
    """Return the time of "the Friday before 15 July 2023" or "the week after July 15th".

    A date without a year means the one nearest to `day`. The result is None if dateparser cannot
    read the unit.

    Args:
        match: A match with a date, a "way" ("before" or "after") and a "unit", e.g. "day" or
            "friday".
        day: The day on which it was said.

    Raises:
        ValueError: There is no such date, e.g. 30 February.
    """
    # "15 July" matches the groups "day" and "month", and "July 15th" the groups "first_month" and
    # "last_day". The two groups of the other order are None.
    month_name = match["month"] or match["first_month"]
    month = _MONTHS[month_name.lower()]
    day_of_month = int(match["day"] or match["last_day"])
    if match["year"]:
        anchor = date(int(match["year"]), month, day_of_month)
    else:
        years = (day.year - 1, day.year, day.year + 1)
        candidates = [date(year, month, day_of_month) for year in years]
        anchor = min(candidates, key=lambda candidate: abs(candidate - day))

    direction = -1 if match["way"].lower() == "before" else 1
    unit = match["unit"].lower()
    if unit == "day":
        return DateSpan(anchor + timedelta(days=direction), Precision.DAY)
    return _unit_span(direction, unit, anchor)


def _rule(
    words: str,
    read: Callable[[Match[str], date], DateSpan | None],
    *,
    uses_dateparser: bool,
) -> DateRule:
    """Return a rule that finds relative dates by a regular expression; case does not matter.

    Args:
        words: The regular expression for the words; "'s" may follow them, as in "last week's".
        read: Returns the time that a match means on a day.
        uses_dateparser: Whether `read` leaves the reading to dateparser. Only the table in
            `docs/relative_dates.md` shows it.
    """
    # Words before "of" are not matched: "the last week of May" is not the week before this one. Nor
    # are words before a bracket: "yesterday [7 May 2023]" has its date already.
    pattern = rf"\b(?:{words})\b(?:['’]s\b)?(?!\s+of\b|\s*\[)"
    return DateRule(re.compile(pattern, re.IGNORECASE), read, uses_dateparser)


ENGLISH = DateLanguage(
    sign=re.compile(
        # Each begins a word, which saves the search a look at the middle of words.
        r"\b(?:yesterday|tomorrow|last|next|this|ago|from|before|after)",
        re.IGNORECASE,
    ),
    rules=(
        _rule(
            rf"the\s+(?P<unit>day|{_PARSED_UNIT}|{_OTHER_UNIT})\s+(?P<way>before|after)\s+{_DATE}",
            _read_around_date,
            uses_dateparser=False,
        ),
        _rule(
            "(?P<words>the day before yesterday|the day after tomorrow"
            "|yesterday|tomorrow|last night)",
            _read_day,
            uses_dateparser=True,
        ),
        _rule(
            rf"(?P<direction>{_DIRECTION})\s+(?P<unit>{_PARSED_UNIT})",
            _read_direction,
            uses_dateparser=True,
        ),
        _rule(
            rf"(?P<direction>{_DIRECTION})\s+(?P<unit>{_OTHER_UNIT})",
            _read_direction,
            uses_dateparser=False,
        ),
        _rule(
            r"the\s+(?P<unit>week|weekend)\s+before\s+last",
            _read_before_last,
            uses_dateparser=False,
        ),
        _rule(
            rf"(?P<number>{_COUNT})\s+(?P<unit>day|week|month|year)s?\s+(?P<way>ago|from\s+now)",
            _read_count,
            uses_dateparser=True,
        ),
        _rule(
            rf"(?P<number>{_COUNT})\s+weekends?\s+(?P<way>ago|from\s+now)",
            _read_weekend_count,
            uses_dateparser=False,
        ),
    ),
    write=write_english_date,
)
