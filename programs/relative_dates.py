"""Relative dates in what was said: `yesterday` in a line of 8 May 2023 is shown as `yesterday [7 May 2023]`.

The words stay and the date stands beside them, since a small model that reads "last Friday" answers "last Friday".
English and Chinese. What may mean several days ("on Friday", "a few days ago", "recently") stays as it is; a week, a
month, a season and a year stay one. `dateutil` does the calendar. Which words are read is listed here: `dateparser`
takes "we" for Wednesday and does not read the Chinese weekdays.

Example:
    >>> from datetime import date
    >>> from mempiler.programs.relative_dates import with_dates
    >>> with_dates("We met last Friday and leave next month.", date(2023, 1, 30))
    'We met last Friday [27 January 2023] and leave next month [February 2023].'
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeVar

from dateutil.relativedelta import relativedelta

from ..records import Hit, Item, Turn

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month that each begins in, in the north."""
_SATURDAY = 5
_AHEAD = {"last": -1, "past": -1, "this": 0, "coming": 1, "next": 1}
_DAYS = {
    "yesterday": -1,
    "tomorrow": 1,
    "last night": -1,
    "the day before yesterday": -2,
    "the day after tomorrow": 2,
}
_NUMBERS = {
    "a couple of": 2,
    **dict.fromkeys(("a", "an", "一"), 1),
    **{
        word: at
        for at, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
    },
    **{sign: at for at, sign in enumerate("一二三四五六七八九十", 1)},
    "两": 2,
}
_HAN_DAYS = {"大前": -3, "前": -2, "昨": -1, "明": 1, "大后": 3, "后": 2}
_HAN_AHEAD = {"上上": -2, "上": -1, "这": 0, "本": 0, "下下": 2, "下": 1}
_HAN_YEARS = {"前": -2, "去": -1, "今": 0, "明": 1, "后": 2}
_HAN_WEEKDAYS = {sign: at for at, sign in enumerate("一二三四五六日")} | {"天": 6}
_HAN_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}

AnyItem = TypeVar("AnyItem", bound=Item)


@dataclass(frozen=True)
class _When:
    """What a relative date means."""

    first: date
    unit: Literal["day", "about", "month", "year"] = "day"
    days: int = 1
    """How many days from `first` on, of a week or a weekend."""
    season: str = ""

    def english(self) -> str:
        day = f"{self.first.day} {self.first:%B} {self.first.year}"
        if self.days > 1:
            last = self.first + relativedelta(days=self.days - 1)
            first = str(self.first.day) if last.month == self.first.month else day
            return f"{first} to {_When(last).english()}"
        if self.season:
            return f"{self.season} {self.first.year}"
        month = f"{self.first:%B} {self.first.year}"
        return {"day": day, "about": f"about {day}", "month": month, "year": str(self.first.year)}[self.unit]

    def chinese(self) -> str:
        year = f"{self.first.year}年"
        month = f"{year}{self.first.month}月"
        day = f"{month}{self.first.day}日"
        if self.days > 1:
            return f"{day}至{_When(self.first + relativedelta(days=self.days - 1)).chinese()}"
        return {"day": day, "about": f"约{day}", "month": month, "year": year}[self.unit]


def dated(item: AnyItem) -> AnyItem:
    """The item with the date beside each relative date of its turns; a turn without a time stays as it is."""
    turns = tuple(_dated_turn(turn.at(item.time)) for turn in item.turns)
    return item.model_copy(update={"turns": turns})


def with_dates(text: str, day: date) -> str:
    """The text with the date beside each relative date in it that means one day, week, month, season or year.

    Args:
        text: What was said; words that have something in square brackets after them stay as they are.
        day: When it was said.
    """
    for pattern, read in _ENGLISH:
        text = pattern.sub(functools.partial(_beside, read, _When.english, day), text)
    if not text.isascii():
        for pattern, read in _CHINESE:
            text = pattern.sub(functools.partial(_beside, read, _When.chinese, day), text)
    return text


def dated_hit(hit: Hit) -> Hit:
    """The hit with the date beside each relative date of its text."""
    return hit.model_copy(update={"text": with_dates(hit.text, hit.time.date())}) if hit.time else hit


def _dated_turn(turn: Turn) -> Turn:
    return turn.model_copy(update={"text": with_dates(turn.text, turn.time.date())}) if turn.time else turn


def _beside(
    read: Callable[[re.Match[str], date], _When], shown: Callable[[_When], str], day: date, found: re.Match[str]
) -> str:
    # What lies before the first year or after the last has no date.
    with contextlib.suppress(OverflowError, ValueError):
        return f"{found.group()} [{shown(read(found, day))}]"
    return found.group()


def _week(day: date, ahead: int) -> _When:
    return _When(day + relativedelta(days=-day.weekday(), weeks=ahead), days=7)


def _weekend(day: date, ahead: int) -> _When:
    """That of a week from Monday on: on a Sunday, the last weekend began eight days ago."""
    return _When(day + relativedelta(days=_SATURDAY - day.weekday(), weeks=ahead), days=2)


def _weekday(day: date, weekday: int, ahead: int) -> _When:
    """The last such day before, or the next after; `this Friday` is the next, today included."""
    away = (weekday - day.weekday()) % 7
    if ahead < 0:
        return _When(day + relativedelta(days=away - 7))
    return _When(day + relativedelta(days=away if ahead == 0 else away or 7))


def _in_year(day: date, begins: int, over: int, ahead: int) -> date:
    """The first of a month, in the last year that has it over, in this one, or in the next that has it to come."""
    years = {-1: -1 if day.month < over else 0, 0: 0, 1: 1 if day.month >= begins else 0}[ahead]
    return date(day.year + years, begins, 1)


def _moved(day: date, number: int, unit: str) -> _When:
    if unit == "day":
        return _When(day + relativedelta(days=number))
    if unit == "week":
        return _When(day + relativedelta(weeks=number), "about")
    if unit == "month":
        return _When(day + relativedelta(months=number), "month")
    return _When(day + relativedelta(years=number), "year")


def _of_unit(day: date, ahead: int, unit: str) -> _When:
    """`last week`, `next friday`, `this summer`, `last may`."""
    if unit == "week":
        return _week(day, ahead)
    if unit == "weekend":
        return _weekend(day, ahead)
    if unit in ("month", "year"):
        return _moved(day, ahead, unit)
    if unit[:3] in _WEEKDAYS:
        return _weekday(day, _WEEKDAYS.index(unit[:3]), ahead)
    if unit in _SEASONS:
        begins = _SEASONS[unit]
        return _When(_in_year(day, begins, begins + 3, ahead), season=unit)
    month = _MONTHS.index(unit[:3]) + 1
    return _When(_in_year(day, month, month + 1, ahead), "month")


def _last_or_next(found: re.Match[str], day: date) -> _When:
    ahead, unit = found["ahead"] or found["past"], found["unit"] or found["of_past"]
    return _of_unit(day, _AHEAD[ahead.lower().split()[-1]], unit.lower())


def _ago(found: re.Match[str], day: date) -> _When:
    number, unit = _number(found["number"].lower()), found["unit"].lower()
    if unit == "weekend":
        return _weekend(day, -number)
    return _moved(day, -number if found["way"].lower() == "ago" else number, unit)


def _around_date(found: re.Match[str], day: date) -> _When:
    """`the friday before 15 July 2023`; without a year, the nearest such date."""
    month = _MONTHS.index((found["month"] or found["month_first"])[:3].lower()) + 1
    number = int(found["number"] or found["number_last"])
    years = [int(found["year"])] if found["year"] else [day.year - 1, day.year, day.year + 1]
    named = min((date(year, month, number) for year in years), key=lambda one: abs(one - day))
    ahead, unit = (-1 if found["way"].lower() == "before" else 1), found["unit"].lower()
    return _moved(named, ahead, "day") if unit == "day" else _of_unit(named, ahead, unit)


def _number(word: str) -> int:
    return _NUMBERS.get(word) or int(word)


def _han_week(found: re.Match[str], day: date) -> _When:
    ahead = _HAN_AHEAD[found["ahead"]]
    if found["weekend"]:
        return _weekend(day, ahead)
    week = _week(day, ahead)
    return _When(week.first + relativedelta(days=_HAN_WEEKDAYS[found["day"]])) if found["day"] else week


def _any_of(*words: str) -> str:
    return "|".join(words)


_Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], _When]]
_DAY_NAME = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTH_NAME = "(?:jan|febr)uary|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber"
_UNIT = rf"week|weekend|month|year|{_any_of(*_SEASONS)}|{_DAY_NAME}|{_MONTH_NAME}"
_DATE = (
    rf"(?:(?P<number>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<month>{_MONTH_NAME})"
    rf"|(?P<month_first>{_MONTH_NAME})\s+(?P<number_last>\d{{1,2}})(?:st|nd|rd|th)?)(?:,?\s+(?P<year>\d{{4}}))?"
)
_COUNT = rf"(?P<number>\d{{1,3}}|{_any_of(*filter(str.isascii, _NUMBERS))})"
_HAN_COUNT = r"(?<![\d一二三四五六七八九十百千几])(?P<number>\d{1,3}|[一二两三四五六七八九十])"


def _english(pattern: str, read: Callable[[re.Match[str], date], _When]) -> _Rule:
    # "the last week of May" is not the week before this one.
    return re.compile(rf"\b(?:{pattern})\b(?:['’]s\b)?(?!\s+of\b|\s*\[)", re.IGNORECASE), read


def _chinese(pattern: str, read: Callable[[re.Match[str], date], _When]) -> _Rule:
    return re.compile(rf"(?:{pattern})(?!\s*\[)"), read


_ENGLISH = (
    _english(rf"the\s+(?P<unit>day|{_UNIT})\s+(?P<way>before|after)\s+{_DATE}", _around_date),
    _english(
        rf"(?P<word>{_any_of(*sorted(_DAYS, key=len, reverse=True))})",
        lambda found, day: _moved(day, _DAYS[found["word"].lower()], "day"),
    ),
    _english(
        rf"(?P<ahead>last|next|this|this\s+coming)\s+(?P<unit>{_UNIT})|(?P<past>this\s+past)\s+(?P<of_past>weekend|{_DAY_NAME})",
        _last_or_next,
    ),
    _english(
        r"the\s+(?P<unit>week|weekend)\s+before\s+last", lambda found, day: _of_unit(day, -2, found["unit"].lower())
    ),
    _english(rf"{_COUNT}\s+(?P<unit>day|week|weekend|month|year)s?\s+(?P<way>ago|from\s+now)", _ago),
)
_CHINESE = (
    _chinese(
        rf"(?<![以之目从])(?P<word>{_any_of(*_HAN_DAYS)})(?:天(?![气天性生赋])|日|晚(?!辈))",
        lambda found, day: _moved(day, _HAN_DAYS[found["word"]], "day"),
    ),
    _chinese(
        rf"(?P<ahead>{_any_of(*_HAN_AHEAD)})个?(?:周|星期|礼拜)(?:(?P<day>[二三四五六日天]|一(?![起直样共次个定般些]))|(?P<weekend>末))?",
        _han_week,
    ),
    _chinese(
        rf"(?P<ahead>{_any_of(*_HAN_AHEAD)})个?月", lambda found, day: _moved(day, _HAN_AHEAD[found["ahead"]], "month")
    ),
    _chinese(
        rf"(?<![以之目从])(?P<word>{_any_of(*_HAN_YEARS)})年(?![轻龄级纪代])",
        lambda found, day: _moved(day, _HAN_YEARS[found["word"]], "year"),
    ),
    _chinese(
        rf"{_HAN_COUNT}个?(?P<unit>{_any_of(*_HAN_UNITS)})(?:之前|以前|前(?!后))",
        lambda found, day: _moved(day, -_number(found["number"]), _HAN_UNITS[found["unit"]]),
    ),
)
