"""Which months a query names, and how near entries are to them.

    >>> import numpy as np
    >>> from datetime import datetime
    >>> from mempiler.memory.search.months import month_nearness, month_number
    >>> times = [datetime(2023, 5, 7), datetime(2023, 6, 1), datetime(2022, 5, 1), None]
    >>> months = np.array([month_number(time) for time in times])
    >>> month_nearness("What did Ann do in May 2023?", months, next_month=0.4, year=0.3).tolist()
    [1.0, 0.4, 0.0, 0.0]

Queries are in English or Chinese.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

MAX_SEARCHED_CHARS = 2000
"""Most characters of a query in which to look for dates."""
MAX_DATES = 20
"""Most dates of a query that count; to read one takes milliseconds."""

_MONTH_NAME = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)\d\d"
_DATE = re.compile(
    # 2023年5月7日, 5月7号, 2023年5月, 5月
    r"(?:\d{4}年)?\d{1,2}月(?:\d{1,2}[日号])?"
    # 2023年
    r"|\d{4}年"
    # 2023-05-07, 2023-05
    rf"|\b{_YEAR}-\d\d?(?:-\d\d?)?\b"
    # 7th of May, May 7th 2023, May of 2023, May
    rf"|(?:\b{_DAY}(?: of)? )?\b(?:{_MONTH_NAME})\b(?: {_DAY}\b)?(?:(?: of)?,? {_YEAR}\b)?"
    # 2023
    rf"|\b{_YEAR}\b",
    re.IGNORECASE,
)
_VERB = re.compile("may|march|^March|^May")
"""Matches that are verbs, not months: without a number, in small letters or at the start."""


class _Date(NamedTuple):
    """A date as a query names it."""

    month: int
    """A `month_number`."""
    is_year: bool
    """Whether only a year was named; then `month` is some month of it."""
    has_year: bool
    """Whether a year was named; if not, the month of any year is meant."""


def month_number(time: datetime | None) -> int:
    """Return a number that grows by one from month to month; 0 for no time."""
    return 12 * time.year + time.month if time else 0


def month_nearness(
    query: str, months: np.ndarray, *, next_month: float, year: float
) -> np.ndarray | None:
    """Return how near each of some months is to those that a query names, from 0 to 1.

    Args:
        query: The query.
        months: Numbers by `month_number`. The nearness of a 0, an unknown month, is 0.
        next_month: How near the month after a named one is.
        year: How near all months of a year are that is named without a month.

    Returns:
        An array of the shape of `months`; None if the query names no month and no year.
    """
    nearest: np.ndarray | None = None
    for text in islice(_date_texts(query[:MAX_SEARCHED_CHARS]), MAX_DATES):
        date = _read_date(text)
        if date is None:
            continue
        nearness = _nearness(date, months, next_month, year)
        nearest = nearness if nearest is None else np.maximum(nearest, nearness)

    if nearest is None:
        return None
    return np.where(months > 0, nearest, 0.0)


def _date_texts(query: str) -> Iterator[str]:
    """Yield the parts of a query that are dates."""
    for match in _DATE.finditer(query):
        # Matched within the query, so that "^" means the start of the query.
        is_verb = _VERB.fullmatch(query, match.start(), match.end())
        if not is_verb:
            yield match[0]


def _nearness(date: _Date, months: np.ndarray, next_month: float, year: float) -> np.ndarray:
    """Return how near each of some months is to one date; see `month_nearness`."""
    if date.is_year:
        # 12 * 2023 + 12 is December 2023: take 1 off, or it would count as a month of 2024.
        is_same_year = (months - 1) // 12 == (date.month - 1) // 12
        return np.where(is_same_year, year, 0.0)

    months_later = months - date.month
    if not date.has_year:
        # "In May" means May of any year.
        months_later = months_later % 12

    nearness = np.zeros(months.shape)
    nearness[months_later == 0] = 1.0
    nearness[months_later == 1] = next_month
    return nearness


@functools.lru_cache(maxsize=4096)
def _read_date(text: str) -> _Date | None:
    """Read a date of a query; None if there is no such day, e.g. on "31 June"."""
    date = _date_parser().get_date_data(text)
    if not date.date_obj:
        return None

    has_year = re.search(r"\d{4}", text) is not None
    return _Date(month_number(date.date_obj), date.period == "year", has_year)


@functools.cache
def _date_parser() -> Any:
    """Return dateparser's parser, which takes long to import and to make."""
    from dateparser.date import DateDataParser

    return DateDataParser(languages=["en", "zh"], settings={"PREFER_DAY_OF_MONTH": "first"})
