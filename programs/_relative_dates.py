"""Resolves relative dates: `yesterday` in a line of 8 May 2023 is shown as `yesterday [7 May 2023]`.

The words stay and the date stands beside them, since a small model that reads "last Friday" answers "last Friday".
English and Chinese. What may mean several days ("on Friday", "a few days ago", "recently") stays as it is; a week, a
month, a season and a year stay one. `dateutil` does the calendar. Which words are read is listed here: `dateparser`
takes "we" for Wednesday and does not read the Chinese weekdays.

Example:
    >>> from datetime import date
    >>> from mempiler.programs._relative_dates import resolve_text_dates
    >>> resolve_text_dates("We met last Friday and leave next month.", date(2023, 1, 30))
    'We met last Friday [27 January 2023] and leave next month [February 2023].'
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, TypeVar

from dateutil.relativedelta import FR, MO, SA, SU, TH, TU, WE, relativedelta

from ..memory.text_slots import text_slot
from ..records import Hit, Item, Turn

MAX_DATED = 20_000
"""Characters of a text that are looked through for relative dates: a megabyte of them takes seconds."""
_WEEKDAYS = {"mon": MO, "tue": TU, "wed": WE, "thu": TH, "fri": FR, "sat": SA, "sun": SU}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month that each begins in, in the north."""
_SPANS = {"week": 7, "weekend": 2}
_DAYS = {
    "the day before yesterday": -2,
    "the day after tomorrow": 2,
    "yesterday": -1,
    "tomorrow": 1,
    "last night": -1,
}
_AHEAD = {"last": -1, "past": -1, "this": 0, "coming": 1, "next": 1}
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {
    **dict.fromkeys(("a", "an", "一"), 1),
    **dict.fromkeys(("a couple of", "两"), 2),
    **{word: at for at, pair in enumerate(zip(_WORDS, "一二三四五六七八九十", strict=True), 1) for word in pair},
}
_HAN_WORDS = {"大前": -3, "前": -2, "昨": -1, "去": -1, "今": 0, "明": 1, "后": 2, "大后": 3}
_HAN_AHEAD = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}
_HAN_UNITS = {"天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "年": "year"}

AnyItem = TypeVar("AnyItem", bound=Item)
Line = TypeVar("Line", Hit, Turn)
_When = tuple[date, str]
"""The first day, and what is meant from there on: a day, about, week, weekend, month, year, or a season by its name."""


def resolve_item_dates(item: AnyItem) -> AnyItem:
    """Return the item with the date beside each relative date of its turns; the item itself if there are none.

    A turn without a time stays as it is. A turn that has the time of its item alone has none of its own afterwards
    either: prompts may show that once.
    """
    turns: list[Turn] = []
    is_changed = False
    for turn in item.turns:
        shown = resolve_line_dates(turn.at(item.time))
        if shown.text != turn.text:
            turn = turn.model_copy(update={"text": shown.text})
            is_changed = True
        turns.append(turn)
    return item.model_copy(update={"turns": tuple(turns)}) if is_changed else item


def resolve_text_dates(text: str, day: date) -> str:
    """The text with the date beside each relative date in it that means one day, week, month, season or year.

    Args:
        text: What was said; words that have something in square brackets after them stay as they are, and so does
            what comes after the first `MAX_DATED` characters.
        day: When it was said.
    """
    beginning, rest = text[:MAX_DATED], text[MAX_DATED:]
    is_english = _ENGLISH_SIGN.search(beginning) is not None
    is_chinese = _CHINESE_SIGN.search(beginning) is not None
    if not (is_english or is_chinese):
        return text

    with text_slot(len(beginning)):
        if is_english:
            for pattern, read in _ENGLISH:
                beginning = pattern.sub(partial(_beside, read, _english, day), beginning)
        if is_chinese:
            for pattern, read in _CHINESE:
                beginning = pattern.sub(partial(_beside, read, _chinese, day), beginning)
    return beginning + rest


def resolve_line_dates(line: Line) -> Line:
    """A hit or turn with the date beside each relative date of its text, counted from its own time."""
    return line.model_copy(update={"text": resolve_text_dates(line.text, line.time.date())}) if line.time else line


def _beside(
    read: Callable[[re.Match[str], date], _When], shown: Callable[[date, str], str], day: date, found: re.Match[str]
) -> str:
    # What lies before the first year or after the last has no date.
    with contextlib.suppress(OverflowError, ValueError):
        return f"{found.group()} [{shown(*read(found, day))}]"
    return found.group()


def _english(first: date, what: str) -> str:
    day, month = f"{first.day} {first:%B} {first.year}", f"{first:%B} {first.year}"
    if what in _SPANS:
        last = _last(first, what)
        return f"{first.day if last.month == first.month else day} to {_english(last, 'day')}"
    plain = {"day": day, "about": f"about {day}", "month": month, "year": str(first.year)}
    return plain.get(what, f"{what} {first.year}")


def _chinese(first: date, what: str) -> str:
    year, month = f"{first.year}年", f"{first.year}年{first.month}月"
    day = f"{month}{first.day}日"
    if what in _SPANS:
        return f"{day}至{_chinese(_last(first, what), 'day')}"
    return {"day": day, "about": f"约{day}", "month": month, "year": year}[what]


def _last(first: date, span: str) -> date:
    return first + relativedelta(days=_SPANS[span] - 1)


def _moved(day: date, number: int, unit: str) -> _When:
    if unit == "weekend":
        # That of a week from Monday on: on a Sunday, the last weekend began eight days ago.
        return day + relativedelta(days=-day.weekday(), weeks=number, weekday=SA), unit
    step: Any = {f"{unit}s": number}
    return day + relativedelta(**step), "about" if unit == "week" else unit


def _of_unit(day: date, ahead: int, unit: str) -> _When:
    """`last week`, `next friday`, `this summer`, `last may`."""
    if unit == "week":
        return day + relativedelta(days=-day.weekday(), weeks=ahead), unit
    if unit in ("weekend", "month", "year"):
        return _moved(day, ahead, unit)
    if unit[:3] in _WEEKDAYS:
        # The last such day before, or the next after; `this Friday` is the next, today included.
        return day + relativedelta(days=ahead, weekday=_WEEKDAYS[unit[:3]](ahead or 1)), "day"
    begins = _SEASONS.get(unit) or _MONTHS.index(unit[:3]) + 1
    over = begins + (3 if unit in _SEASONS else 1)
    years = {-1: -1 if day.month < over else 0, 0: 0, 1: 1 if day.month >= begins else 0}[ahead]
    return date(day.year + years, begins, 1), unit if unit in _SEASONS else "month"


def _ago(found: re.Match[str], day: date) -> _When:
    word = found["number"].lower()
    number = _NUMBERS.get(word) or int(word)
    return _moved(day, -number if found["way"].lower() == "ago" else number, found["unit"].lower())


def _around_date(found: re.Match[str], day: date) -> _When:
    """`the friday before 15 July 2023`; without a year, the nearest such date."""
    month = _MONTHS.index((found["month"] or found["month_first"])[:3].lower()) + 1
    number = int(found["number"] or found["number_last"])
    years = [int(found["year"])] if found["year"] else [day.year - 1, day.year, day.year + 1]
    named = min((date(year, month, number) for year in years), key=lambda one: abs(one - day))
    ahead, unit = (-1 if found["way"].lower() == "before" else 1), found["unit"].lower()
    return _moved(named, ahead, "day") if unit == "day" else _of_unit(named, ahead, unit)


def _han_day_or_year(found: re.Match[str], day: date) -> _When:
    return _moved(day, _HAN_WORDS[found["word"] or found["year"]], "day" if found["word"] else "year")


def _han_week_or_month(found: re.Match[str], day: date) -> _When:
    ahead = _HAN_AHEAD[found["ahead"]]
    if found["month"] or found["weekend"]:
        return _moved(day, ahead, "month" if found["month"] else "weekend")
    first, _ = _of_unit(day, ahead, "week")
    return (
        (first + relativedelta(days=min("一二三四五六日天".index(found["day"]), 6)), "day")
        if found["day"]
        else (first, "week")
    )


_Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], _When]]
_DAY_NAME = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTH_NAME = "(?:jan|febr)uary|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber"
_UNIT = rf"week|weekend|month|year|{'|'.join(_SEASONS)}|{_DAY_NAME}|{_MONTH_NAME}"
_DATE = (
    rf"(?:(?P<number>\d{{1,2}})(?:st|nd|rd|th)?\s+(?P<month>{_MONTH_NAME})"
    rf"|(?P<month_first>{_MONTH_NAME})\s+(?P<number_last>\d{{1,2}})(?:st|nd|rd|th)?)(?:,?\s+(?P<year>\d{{4}}))?"
)
_THIS = rf"this(?:\s+coming|\s+past(?=\s+(?:weekend|{_DAY_NAME})\b))?"
_COUNT = rf"(?P<number>\d{{1,3}}|{'|'.join(filter(str.isascii, _NUMBERS))})"


def _rule(pattern: str, read: Callable[[re.Match[str], date], _When], english: bool = True) -> _Rule:
    # "the last week of May" is not the week before this one.
    words = rf"\b(?:{pattern})\b(?:['’]s\b)?(?!\s+of\b|\s*\[)" if english else rf"(?:{pattern})(?!\s*\[)"
    return re.compile(words, re.IGNORECASE), read


_ENGLISH_SIGN = re.compile("yesterday|tomorrow|last|next|this|ago|from|before|after", re.IGNORECASE)
_CHINESE_SIGN = re.compile("[前昨今去明后上这本下]")
"""Every relative date holds one of these; a text without them, as most are, is not looked at by all rules."""

_ENGLISH = (
    _rule(rf"the\s+(?P<unit>day|{_UNIT})\s+(?P<way>before|after)\s+{_DATE}", _around_date),
    _rule(rf"(?P<word>{'|'.join(_DAYS)})", lambda found, day: _moved(day, _DAYS[found["word"].lower()], "day")),
    _rule(
        rf"(?P<ahead>last|next|{_THIS})\s+(?P<unit>{_UNIT})",
        lambda found, day: _of_unit(day, _AHEAD[found["ahead"].lower().split()[-1]], found["unit"].lower()),
    ),
    _rule(r"the\s+(?P<unit>week|weekend)\s+before\s+last", lambda found, day: _of_unit(day, -2, found["unit"].lower())),
    _rule(rf"{_COUNT}\s+(?P<unit>day|week|weekend|month|year)s?\s+(?P<way>ago|from\s+now)", _ago),
)
_CHINESE = (
    _rule(
        r"(?<![以之目从])(?:(?P<word>大前|前|昨|明|大后|后)(?:天(?![气天性生赋])|日|晚(?!辈))"
        r"|(?P<year>前|去|今|明|后)年(?![轻龄级纪代]))",
        _han_day_or_year,
        english=False,
    ),
    _rule(
        r"(?P<ahead>上上|上|这|本|下下|下)个?(?:(?P<month>月)|"
        r"(?:周|星期|礼拜)(?:(?P<day>[二三四五六日天]|一(?![起直样共次个定般些]))|(?P<weekend>末))?)",
        _han_week_or_month,
        english=False,
    ),
    _rule(
        r"(?<![\d一二三四五六七八九十百千几])(?P<number>\d{1,3}|[一二两三四五六七八九十])"
        rf"个?(?P<unit>{'|'.join(_HAN_UNITS)})(?:之前|以前|前(?!后))",
        lambda found, day: _moved(
            day, -(_NUMBERS.get(found["number"]) or int(found["number"])), _HAN_UNITS[found["unit"]]
        ),
        english=False,
    ),
)
