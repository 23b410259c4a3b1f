"""Relative dates in Chinese: which ones are read, and how the date beside them is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from re import Match

from dateutil.relativedelta import relativedelta

from ._date_rules import (
    DateLanguage,
    DateRule,
    DateSpan,
    Precision,
    parse_date,
    week_span,
    weekend_span,
)

_WEEKDAYS = {"一": 0, "二": 1, "三": 2, "四": 3, "五": 4, "六": 5, "日": 6, "天": 6}
"""The weekdays as days after Monday."""

_DIRECTIONS = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}
_PARSED_WEEKS = {-1: "上周", 0: "本周", 1: "下周"}
_PARSED_MONTHS = {-1: "上个月", 0: "本月", 1: "下个月"}
"""The words for a week or a month that dateparser reads: it knows no 上月 and no 这个月."""

_NUMBERS = {
    "一": 1,
    "两": 2,
    "二": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
    "七": 7,
    "八": 8,
    "九": 9,
    "十": 10,
}
"""dateparser reads digits only."""

_YEARS_LATER = {"大前年": -3, "前年": -2, "后年": 2, "大后年": 3}

# Parts of the patterns.
_NOT_AFTER = "(?<![以之目从大])"
"""以前天气 is no 前天, 从前年轻 no 前年, and 大大前天 no 大前天."""
_WEEK = "周|星期|礼拜"
_WEEKDAY = "(?:[二三四五六日天]|一(?![起直样共次个定般些]))"
"""上周一起去 is "went together last week", not "went on Monday"."""
_WHOLE_WEEK = rf"(?:{_WEEK})(?!{_WEEKDAY}|末)"
_NUMBER = r"(?P<number>\d{1,3}|[一二两三四五六七八九十])"

_NUMERAL = r"[\d〇零一二两三四五六七八九十百千万亿几数]"
_LONGER_TIME = re.compile(
    # Numbers of several signs: 两三天前, 第三天前, 1.5年前, 1,000年前 and 三分之二年前
    rf"(?:第|{_NUMERAL}|{_NUMERAL}[.．点,/]|{_NUMERAL}分之"
    # Ranges: 2-3天前, 2到3天前 and 两、三天前
    rf"|{_NUMERAL}(?:\s*[-–—~～]+\s*|[到至或、])"
    # Dates, several units and ranges of them: 5月3日前, 一年零三个月前 and 两天到三天前
    rf"|{_NUMERAL}个?(?:天|日|{_WEEK}|月|年)[零又加和到至或、~～-]?)\Z"
)
"""Matches text that a number cannot follow without being the end of a longer time."""
_MAX_CHARS_BEFORE_A_COUNT = 12
"""Characters before a count in which the beginning of a longer time is looked for."""


def write_chinese_date(span: DateSpan) -> str:
    """Return a date in Chinese: "2023年1月27日" for a day, "2022年" for a year.

    A week or weekend is written as a range: "2023年1月23日至2023年1月29日".

    Raises:
        ValueError: The span is a season. No Chinese rule reads seasons, so none is ever written.
    """
    first_day = span.first_day
    match span.precision:
        case Precision.DAY:
            return _write_day(first_day)
        case Precision.ABOUT_DAY:
            return f"约{_write_day(first_day)}"
        case Precision.WEEK | Precision.WEEKEND:
            return f"{_write_day(first_day)}至{_write_day(span.last_day)}"
        case Precision.MONTH:
            return f"{first_day.year}年{first_day.month}月"
        case Precision.YEAR:
            return f"{first_day.year}年"
        case Precision.SEASON:
            raise ValueError("seasons are not written in Chinese")


def _write_day(day: date) -> str:
    return f"{day.year}年{day.month}月{day.day}日"


def _read_day(match: Match[str], day: date) -> DateSpan | None:
    """Return the day of words such as 昨天, 前日, 明晚 and 大后天."""
    # dateparser reads 昨天, but neither 昨日 nor 昨晚, which mean the same day.
    return parse_date(f"{match['word']}天", "zh", day)


def _read_year(match: Match[str], day: date) -> DateSpan | None:
    """Return the year of 去年, 今年 and 明年: last, this and next year."""
    return parse_date(match["word"], "zh", day)


def _read_year_but_one(match: Match[str], day: date) -> DateSpan:
    """Return the year of 前年 (the year before last), 大后年 (three years from now) and so on."""
    years_later = _YEARS_LATER[match["word"]]
    return DateSpan(date(day.year + years_later, 1, 1), Precision.YEAR)


def _read_weekday(match: Match[str], day: date) -> DateSpan:
    """Return the day of 上周五 (Friday of last week) or 下下个星期天 (Sunday in two weeks)."""
    week = week_span(day, _DIRECTIONS[match["direction"]])
    weekday = timedelta(days=_WEEKDAYS[match["weekday"]])
    return DateSpan(week.first_day + weekday, Precision.DAY)


def _read_weekend(match: Match[str], day: date) -> DateSpan:
    """Return the weekend of 上周末 (last weekend) or 这个周末 (this weekend)."""
    return weekend_span(day, _DIRECTIONS[match["direction"]])


def _read_next_week_or_month(match: Match[str], day: date) -> DateSpan | None:
    """Return the span of 上周 (last week), 本星期 (this week) or 下个月 (next month)."""
    direction = _DIRECTIONS[match["direction"]]
    words = _PARSED_MONTHS if match["unit"] == "月" else _PARSED_WEEKS
    return parse_date(words[direction], "zh", day)


def _read_week_or_month_but_one(match: Match[str], day: date) -> DateSpan:
    """Return the span of 上上周 (the week before last) or 下下个月 (the month after next)."""
    direction = _DIRECTIONS[match["direction"]]
    if match["unit"] == "月":
        return DateSpan(day + relativedelta(months=direction), Precision.MONTH)
    return week_span(day, direction)


def _read_count(match: Match[str], day: date) -> DateSpan | None:
    """Return the time of words such as 三天前 (three days ago), 2周以前, 两个月之前 and 10年前.

    The result is None if these are the last signs of a longer time: 1.5年前, 两三天前.

    Args:
        match: A match with a "number" in digits or in Chinese, and a "unit": day, week, month or
            year.
        day: The day on which it was said.
    """
    start = match.start()
    text_before = match.string[max(0, start - _MAX_CHARS_BEFORE_A_COUNT) : start]
    if _LONGER_TIME.search(text_before):
        return None

    word = match["number"]
    # dateparser reads numbers in digits only.
    number = _NUMBERS[word] if word in _NUMBERS else int(word)

    unit = match["unit"]
    if unit == "月":
        return parse_date(f"{number}个月前", "zh", day)
    if unit == "年":
        return parse_date(f"{number}年前", "zh", day)
    if unit in ("天", "日"):
        return parse_date(f"{number}天前", "zh", day)

    # The unit is a week. 上周 (last week) means a week from Monday to Sunday, but 两周前 (two weeks
    # ago) means about the day that was fourteen days before.
    span = parse_date(f"{7 * number}天前", "zh", day)
    if span is None:
        return None
    return DateSpan(span.first_day, Precision.ABOUT_DAY)


def _rule(
    words: str,
    read: Callable[[Match[str], date], DateSpan | None],
    *,
    uses_dateparser: bool,
) -> DateRule:
    """Return a rule that finds relative dates by a regular expression.

    Args:
        words: The regular expression for the words.
        read: Returns the time that a match means on a day.
        uses_dateparser: Whether `read` leaves the reading to dateparser. Only the table in
            `docs/relative_dates.md` shows it.
    """
    # Words with brackets after them are not matched: their date was written there before.
    pattern = re.compile(rf"(?:{words})(?!\s*\[)")
    return DateRule(pattern, read, uses_dateparser)


CHINESE = DateLanguage(
    sign=re.compile("[前昨今去明后上这本下]"),
    rules=(
        _rule(
            # 前天性 and 明天生 are parts of other words, and so is 前晚辈.
            rf"{_NOT_AFTER}(?P<word>大前|前|昨|明|大后|后)(?:天(?![气天性生赋])|日|晚(?!辈))",
            _read_day,
            uses_dateparser=True,
        ),
        _rule(
            rf"{_NOT_AFTER}(?P<word>[去今明]年)(?![轻龄级纪代])",
            _read_year,
            uses_dateparser=True,
        ),
        _rule(
            rf"{_NOT_AFTER}(?P<word>大?[前后]年)(?![轻龄级纪代])",
            _read_year_but_one,
            uses_dateparser=False,
        ),
        _rule(
            rf"(?P<direction>上上|上|这|本|下下|下)个?(?:{_WEEK})(?P<weekday>{_WEEKDAY})",
            _read_weekday,
            uses_dateparser=False,
        ),
        _rule(
            rf"(?P<direction>上上|上|这|本|下下|下)个?(?:{_WEEK})末",
            _read_weekend,
            uses_dateparser=False,
        ),
        _rule(
            rf"(?P<direction>上上|下下)个?(?P<unit>月|{_WHOLE_WEEK})",
            _read_week_or_month_but_one,
            uses_dateparser=False,
        ),
        _rule(
            # The second half of 上上周 is not 上周.
            rf"(?P<direction>(?<!上)上|这|本|(?<!下)下)个?(?P<unit>月|{_WHOLE_WEEK})",
            _read_next_week_or_month,
            uses_dateparser=True,
        ),
        _rule(
            rf"{_NUMBER}个?(?P<unit>天|日|{_WEEK}|月|年)(?:之前|以前|前(?!后))",
            _read_count,
            uses_dateparser=True,
        ),
    ),
    write=write_chinese_date,
)
