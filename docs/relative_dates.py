"""Compares how dateparser and the rules of Mempiler read relative dates.

`python docs/relative_dates.py` writes the tables of docs/relative_dates.md, and prints how long a
date takes. A test checks that the tables are current.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from mempiler.programs._chinese_dates import CHINESE
from mempiler.programs._date_rules import DateLanguage, DateRule, DateSpan, parse_date
from mempiler.programs._english_dates import ENGLISH
from mempiler.programs._relative_dates import resolve_text_dates

PAGE = Path(__file__).parent / "relative_dates.md"
TABLES_START = "## English"
"""The heading at which the tables begin; they end with the page."""

SAID_ON = date(2024, 5, 16)
"""A Thursday, so that weeks and weekdays before and after it differ."""

ENGLISH_EXPRESSIONS = """
yesterday
tomorrow
tomorrow's
last night
the day before yesterday
the day after tomorrow
last Friday
last fri
last tues
last Thursday
this Friday
this Thursday
next Friday
next wednesday
this past Saturday
this coming Sunday
last week
this week
next week
the week before last
last weekend
this weekend
next weekend
this past weekend
the weekend before last
two weekends ago
last month
this month
next month
last year
this year
next year's
last summer
this summer
next summer
last winter
this spring
last fall
last May
this May
next May
last December
3 days ago
two days ago
a week ago
two weeks ago
a couple of weeks ago
a month ago
six months ago
a year ago
ten years ago
three days from now
two weeks from now
two years from now
the day after 31 December 2021
the Friday before 15 July 2023
the sunday before May 25th, 2022
the week before 9 June
the weekend before 3 July
the month after 3 March 2024
on Friday
the other day
a few days ago
a few weeks ago
in a few days
in two weeks
half a year ago
2.5 years ago
1,000 years ago
twenty-five years ago
two or three weeks ago
2-3 weeks ago
a year and two months ago
tonight
this past year
the last week of May
recently
we
we may
this may
this sat
now
"""
"""The kinds that rules or tests know, and what people say in LoCoMo; the last ones have no rule."""

CHINESE_EXPRESSIONS = """
昨天
前天
大前天
明天
后天
大后天
昨日
明日
昨晚
明晚
去年
今年
明年
前年
后年
大前年
大后年
上周
本周
这周
下周
上个星期
下礼拜
上上周
下下周
上周五
上个星期天
这周三
下下周三
下周日
上周末
这个周末
上个月
上月
本月
这个月
下个月
上上个月
3天前
三天前
5日前
3周前
两周前
两个星期前
3个月前
两个月前
10年前
一年以前
二十三天前
两三天前
2到3天前
1.5年前
1,000年前
一年零三个月前
三年前后
以前
从前
最近
今天
"""


def tables() -> str:
    """Return the tables of both languages, in Markdown."""
    english = table(ENGLISH, "en", ENGLISH_EXPRESSIONS.strip().splitlines())
    chinese = table(CHINESE, "zh", CHINESE_EXPRESSIONS.strip().splitlines())
    return f"## English\n\n{english}\n\n## Chinese\n\n{chinese}\n"


def table(language: DateLanguage, code: str, expressions: Sequence[str]) -> str:
    """Return a table of expressions, as said on `SAID_ON`."""
    lines = ["| expression | dateparser alone | shown | read by |", "|---|---|---|---|"]
    for expression in expressions:
        parsed_date = _parsed_date(language, code, expression)
        shown_date = _shown_date(expression)
        rule = None if shown_date is None else _rule_of(language, expression)
        reader = _reader(rule, parsed_date)
        cells = (expression, parsed_date or "-", shown_date or "-", reader)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _parsed_date(language: DateLanguage, code: str, expression: str) -> str | None:
    """Return what dateparser makes of an expression; None if it reads no date."""
    span: DateSpan | None = parse_date(expression.lower(), code, SAID_ON)
    return None if span is None else language.write(span)


def _shown_date(expression: str) -> str | None:
    """Return the date that models are shown beside an expression; None if they are shown none."""
    match = re.search(r"\[(.+)\]$", resolve_text_dates(expression, SAID_ON))
    return None if match is None else match[1]


def _rule_of(language: DateLanguage, expression: str) -> DateRule | None:
    """Return the rule that reads an expression; None if no rule does."""
    for rule in language.rules:
        if rule.pattern.search(expression):
            return rule
    return None


def _reader(rule: DateRule | None, parsed_date: str | None) -> str:
    if rule is None:
        return "nothing"
    if not rule.uses_dateparser:
        return "our rule"
    if parsed_date is None:
        return "dateparser, in other words"
    return "dateparser"


def milliseconds_of_a_date(code: str, expressions: Sequence[str]) -> float:
    """Return the median time in which dateparser reads an expression that is not cached."""
    times: list[float] = []
    for expression in expressions:
        parse_date.cache_clear()
        start = time.perf_counter()
        parse_date(expression.lower(), code, SAID_ON)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    """Write the tables into the page, and print how long dateparser takes."""
    introduction, _, _ = PAGE.read_text(encoding="utf-8").partition(TABLES_START)
    PAGE.write_text(introduction + tables(), encoding="utf-8")

    english_time = milliseconds_of_a_date("en", ENGLISH_EXPRESSIONS.split("\n"))
    chinese_time = milliseconds_of_a_date("zh", CHINESE_EXPRESSIONS.split("\n"))
    print(f"dateparser: {english_time:.2f} ms a date in English, {chinese_time:.2f} in Chinese")


if __name__ == "__main__":
    main()
