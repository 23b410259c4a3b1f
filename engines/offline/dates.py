"""Dates as people write them: reading them, resolving "last week" against a date, and writing them in a given style.

Example:
    >>> resolve("I went yesterday", date(2023, 5, 8)).write(Style())
    '7 May 2023'

English only. A phrase such as "last week" has no single right day: it is written as "the week before D" where the
demos of the prompt do so, and as the day seven days earlier otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
NUMBERS = MappingProxyType(
    {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
    | {"six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
)
"""Number words and what they stand for."""
_COUNTS = dict(NUMBERS) | {"a": 1, "an": 1, "couple": 2, "a couple of": 2, "couple of": 2, "few": 3, "a few": 3}
_MONTH = r"(?P<month>" + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS) + r")\.?"
_ISO = re.compile(r"\b(?P<year>\d{4})[-/](?P<m>\d{1,2})[-/](?P<day>\d{1,2})(?!\d)")
_DAY_FIRST = re.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH},? (?P<year>\d{{4}})\b", re.I)
_MONTH_FIRST = re.compile(rf"\b{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<year>\d{{4}})\b", re.I)
_MONTH_YEAR = re.compile(rf"\b{_MONTH},? (?P<year>(?:19|20)\d\d)\b", re.I)
_MONTH_ONLY = re.compile(rf"\b(?:in|on|since|last|next|this) {_MONTH}(?: (?P<day>\d{{1,2}})(?:st|nd|rd|th)?)?\b", re.I)
_YEAR = re.compile(r"(?<![\d$€£.,])(?:19|20)\d\d(?![\d%])")
_SHIFT = re.compile(r"\b(today|tonight|this (?:morning|afternoon|evening)|yesterday|last night|tomorrow)\b", re.I)
_COUNT = "|".join(sorted(_COUNTS, key=len, reverse=True))
_AGO = re.compile(rf"\b(?P<n>\d{{1,4}}|{_COUNT}) (?P<unit>day|week|month|year)(?P<s>s?) ago\b", re.I)
_NEAR = re.compile(
    rf"\b(?P<way>last|past|next|this) (?P<unit>weekend|week|month|year|{'|'.join(_DAYS)}"
    rf"|{'|'.join(day[:3] for day in _DAYS)})\b",
    re.I,
)


@dataclass(frozen=True)
class Style:
    """How the demos write dates."""

    iso: bool = False
    month_first: bool = False
    before: bool = False
    """Whether a vague phrase is written as "the week before D"."""

    @classmethod
    def of(cls, examples: Iterable[str]) -> Style:
        """The style most of the example dates are written in."""
        examples = list(examples)
        return cls(
            iso=sum(bool(_ISO.search(text)) for text in examples) * 2 > len(examples),
            month_first=sum(bool(_MONTH_FIRST.search(text)) for text in examples) * 2 > len(examples),
            before=any(re.search(r"\bbefore\b.*\d", text) for text in examples),
        )

    def day(self, day: date) -> str:
        """One day, written in this style."""
        month = _MONTHS[day.month - 1].capitalize()
        if self.iso:
            return day.isoformat()
        return f"{month} {day.day}, {day.year}" if self.month_first else f"{day.day} {month} {day.year}"


@dataclass(frozen=True)
class Moment:
    """A day, or the month or year it stands for, or a vague phrase relative to the day it was said."""

    day: date
    grain: str = "day"
    """"day", "month", "year", or "vague"."""
    phrase: str = ""
    """For a vague moment what comes before the anchor, e.g. "the week before"."""
    anchor: date | None = None

    def write(self, style: Style) -> str:
        """The moment in words, in the style of the demos."""
        if self.grain == "year":
            return str(self.day.year)
        if self.grain == "month":
            month = _MONTHS[self.day.month - 1].capitalize()
            return f"{self.day:%Y-%m}" if style.iso else f"{month} {self.day.year}"
        if self.grain == "vague" and style.before and self.anchor:
            return f"{self.phrase} {style.day(self.anchor)}"
        return style.day(self.day)


def parse_date(text: str) -> date | None:
    """The first full date (day, month and year) in `text`."""
    for pattern in (_ISO, _DAY_FIRST, _MONTH_FIRST):
        match = pattern.search(text)
        if match:
            parts = match.groupdict()
            month = int(parts["m"]) if parts.get("m") else _month(parts["month"])
            return _day(int(parts["year"]), month, int(parts["day"]))
    return None


def is_date(text: str) -> bool:
    """Whether a short text is mainly a date: "7 May 2023", "June 2023", "2022", "the week before 9 June 2023"."""
    match = next((m for p in (_ISO, _DAY_FIRST, _MONTH_FIRST, _MONTH_YEAR, _YEAR) if (m := p.search(text))), None)
    if not match:
        return False
    rest = text[: match.start()] + text[match.end() :]
    return len(rest.split()) <= 4


def resolve(text: str, said: date | None) -> Moment | None:
    """When the thing told in `text` happened: its own time expression, read as of the day it was said.

    Args:
        text: One sentence or turn.
        said: The day it was said; without it only absolute dates are found.

    Returns:
        None if the text holds no time expression that can be resolved.
    """
    exact = parse_date(text)
    if exact:
        return Moment(exact)
    if said and (moment := _relative(text, said)):
        return moment
    match = _MONTH_YEAR.search(text)
    if match and (day := _day(int(match["year"]), _month(match["month"]), 1)):
        return Moment(day, "month")
    match = _MONTH_ONLY.search(text)
    if match and said and (day := _day(said.year, _month(match["month"]), int(match["day"] or 1))):
        return Moment(day, "day" if match["day"] else "month")
    match = re.search(rf"\b(?:in|since|until|by) ({_YEAR.pattern})", text)
    return Moment(date(int(match[1]), 1, 1), "year") if match else None


def _relative(text: str, said: date) -> Moment | None:
    match = _SHIFT.search(text)
    if match:
        word = match[1].lower()
        days = -1 if word in ("yesterday", "last night") else int(word == "tomorrow")
        return Moment(said + timedelta(days))
    match = _AGO.search(text)
    if match:
        count = _COUNTS.get(match["n"].lower()) or (int(match["n"]) if match["n"].isdigit() else 1)
        phrase = f"{match['n']} {match['unit']}{match['s']} before".lower()
        return _shifted(said, -min(count, 500), match["unit"].lower(), phrase)
    match = _NEAR.search(text)
    if not match:
        return None
    way, unit = match["way"].lower(), match["unit"].lower()
    side = {"next": 1, "this": 0}.get(way, -1)
    if unit in ("weekend", "week", "month", "year"):
        return _shifted(said, side, unit, f"the {unit} {'after' if side > 0 else 'before'}")
    return _weekday(said, side, next(n for n, day in enumerate(_DAYS) if day.startswith(unit)))


def _weekday(said: date, side: int, number: int) -> Moment:
    ahead = (number - said.weekday()) % 7
    day = said + timedelta(ahead or 7 if side > 0 else ahead - 7 if side < 0 else ahead)
    return Moment(day, "vague", f"the {_DAYS[number].capitalize()} {'before' if side < 0 else 'after'}", said)


def _shifted(said: date, count: int, unit: str, phrase: str) -> Moment | None:
    if unit == "day":
        return Moment(said + timedelta(count))
    if unit == "week":
        return Moment(said + timedelta(7 * count), "vague" if count else "day", phrase, said)
    if unit == "weekend":
        saturday = said + timedelta(5 - said.weekday())
        return Moment(saturday + timedelta(7 * count), "vague" if count else "day", phrase, said)
    months = said.year * 12 + said.month - 1 + count * (12 if unit == "year" else 1)
    day = _day(months // 12, months % 12 + 1, 1)
    return Moment(day, unit) if day else None


def _month(name: str) -> int:
    return next(n for n, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def _day(year: int, month: int, day: int) -> date | None:
    if not 1000 <= year <= 9000:
        return None
    try:
        return date(year, month, day)
    except ValueError:
        return None
