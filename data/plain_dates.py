"""Write dates in one way, so that metrics which compare words find a date however it was written.

Example:
    >>> from mempiler.data.plain_dates import with_plain_dates
    >>> with_plain_dates("We met on 2023-05-07, May 7th, 2023, or 7 May.")
    'We met on 7 may 2023 , 7 may 2023 , or 7 may .'

There is a space on either side of a date, so that a range such as "May 7-8" keeps its words apart.

Limits: dates of digits alone are read with the year first, since "05/07/2023" is in May or in July.
"2023-05" stays as it is, since it may be a range or a number. So do dates in Chinese numerals, and
relative dates: the prompts of a program have the dates beside them.
"""

from __future__ import annotations

import re
from re import Match

from .field_types import MONTHS

_ABBREVIATION_LENGTH = 3
"""Letters by which a month is recognized."""
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b(?:\.(?=\s*\d))?"
)
_DAY = r"(?P<day>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\b"
_YEAR = r"(?P<year>[12]\d{3})\b"
_MONTH_NUMBER = r"(?P<month>0?[1-9]|1[0-2])"
_DAY_NUMBER = r"(?P<day>0?[1-9]|[12]\d|3[01])"

_FORMS = (
    # 2023-05-07 and 2023/5/7, also with a time after it: 2023-05-07T13:56
    rf"\b(?P<year>[12]\d{{3}})[-/]{_MONTH_NUMBER}[-/]{_DAY_NUMBER}(?:T(?=\d)|(?!\d))",
    # 2023年5月7日, 2023年5月, 5月7日 and 5月, and 5月7 in 5月7-9日
    r"(?:(?P<year>[12]\d{3})\s*年\s*|(?<!\d))"
    rf"{_MONTH_NUMBER}\s*月(?:\s*{_DAY_NUMBER}\s*(?:[日号]|(?=[-–—~～至到]\d)))?",
    # 7 May 2023, 7th of May, 07 May
    rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?",
    # May 7, 2023 and May 7th
    rf"\b{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR})?",
    # May 2023 and Sept. 2023
    rf"\b{_MONTH},?\s+{_YEAR}",
)
_DATES = tuple(re.compile(form, re.IGNORECASE) for form in _FORMS)


def with_plain_dates(text: str) -> str:
    """Return a text whose dates are written as day, month and year: "7 may 2023".

    What a date does not say is left out: "May 2023" becomes "may 2023".
    """
    pieces: list[str] = []
    end = 0
    for match in find_dates(text):
        pieces.append(text[end : match.start()])
        # Metrics remove punctuation, and Chinese has no spaces. What stands beside the date must
        # not become a part of its first or last word.
        if not _has_space(text, match.start() - 1):
            pieces.append(" ")
        pieces.append(_plain_date(match))
        if not _has_space(text, match.end()):
            pieces.append(" ")
        end = match.end()
    pieces.append(text[end:])
    return "".join(pieces)


def find_dates(text: str) -> list[Match[str]]:
    """Return the dates in a text, in their order; none of them overlap."""
    # Dates have digits; most texts have none.
    if not any(character.isdigit() for character in text):
        return []

    dates: list[Match[str]] = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            # Earlier patterns come first: "7 May 2023" is no "May 2023".
            if not any(_overlap(match, date) for date in dates):
                dates.append(match)
    return sorted(dates, key=lambda date: date.start())


def _overlap(match: Match[str], other: Match[str]) -> bool:
    """Return whether two matches in one text share a character."""
    return match.start() < other.end() and other.start() < match.end()


def _has_space(text: str, position: int) -> bool:
    """Return whether white space, or nothing, stands at a position of a text."""
    is_inside = 0 <= position < len(text)
    return not is_inside or text[position].isspace()


def _plain_date(match: Match[str]) -> str:
    """Return the date that one of the patterns has matched, in plain words."""
    parts = match.groupdict()
    words = [_month_name(parts["month"])]
    if parts.get("day"):
        words.insert(0, str(int(parts["day"])))
    if parts.get("year"):
        words.append(parts["year"])
    return " ".join(words)


def _month_name(month: str) -> str:
    """Return the English name of a month that is a number, a name or an abbreviation."""
    if month.isdigit():
        return MONTHS[int(month) - 1]
    beginning = month.lower()[:_ABBREVIATION_LENGTH]
    return next(name for name in MONTHS if name.startswith(beginning))
