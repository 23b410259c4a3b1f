"""Which months a query names, and how near entries are to them.

    >>> import numpy as np
    >>> from datetime import datetime
    >>> from mempiler.memory.search.months import month_nearness, month_number
    >>> times = [datetime(2023, 5, 7), datetime(2023, 6, 1), datetime(2022, 5, 1), None]
    >>> months = np.array([month_number(time) for time in times])
    >>> question = "What did Ann do in May 2023?"
    >>> month_nearness(
    ...     question, months, next_month_nearness=0.4, same_year_nearness=0.3
    ... ).tolist()
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
    """12 * year + month, as `month_number` returns it. Without a year in the query, only the month
    counts: the year is whatever dateparser filled in."""
    is_year: bool
    """Whether only a year was named; then `month` is some month of it."""
    has_year: bool
    """Whether a year was named; if not, the month of any year is meant."""


def month_number(time: datetime | None) -> int:
    """Return the month of a time as one number, 12 * year + month; 0 for no time.

    The number grows by one from month to month, also from December to January.
    """
    return 12 * time.year + time.month if time else 0


def month_nearness(
    query: str, months: np.ndarray, *, next_month_nearness: float, same_year_nearness: float
) -> np.ndarray | None:
    """Return how near some months are to the dates in a query, as numbers from 0 to 1.

    A search prefers entries of a month that is near. A month that the query names has nearness 1.

    Args:
        query: The query.
        months: The months, each as a `month_number`. 0, an unknown month, has nearness 0.
        next_month_nearness: The nearness of the month after one that the query names.
        same_year_nearness: The nearness of all months of a year, if the query names the year alone.

    Returns:
        The nearness of each month, in the shape of `months`; None if the query names no date.
    """
    nearest: np.ndarray | None = None
    for text in islice(_date_texts(query[:MAX_SEARCHED_CHARS]), MAX_DATES):
        date = _read_date(text)
        if date is None:
            continue

        # Of several dates in the query, the one that is nearest to a month counts.
        nearness = _nearness_to_date(date, months, next_month_nearness, same_year_nearness)
        nearest = nearness if nearest is None else np.maximum(nearest, nearness)

    if nearest is None:
        return None
    return np.where(months > 0, nearest, 0.0)


def _date_texts(query: str) -> Iterator[str]:
    """Yield the parts of a query that are dates, e.g. "May 2023" and "2022"."""
    for match in _DATE.finditer(query):
        # "May" and "march" may also be verbs: "May I come?". The pattern is matched at its place in
        # the query, so that its "^" means the start of the query.
        is_verb = _VERB.fullmatch(query, match.start(), match.end())
        if not is_verb:
            yield match[0]


def _nearness_to_date(
    date: _Date, months: np.ndarray, next_month_nearness: float, same_year_nearness: float
) -> np.ndarray:
    """Return how near some months are to one date of a query, as numbers from 0 to 1.

    Months are numbers, 12 * year + month. The arguments are those of `month_nearness`.
    """
    if date.is_year:
        # The query names a year alone. December 2023 is 12 * 2023 + 12, which is 12 * 2024: take 1
        # off before the division, or it would count as a month of 2024.
        is_same_year = (months - 1) // 12 == (date.month - 1) // 12
        return np.where(is_same_year, same_year_nearness, 0.0)

    months_later = months - date.month
    if not date.has_year:
        # "In May" means May of any year, so drop whole years from the difference: 25 months later
        # count as 1 month later.
        months_later = months_later % 12

    nearness = np.zeros(months.shape)
    nearness[months_later == 0] = 1.0
    nearness[months_later == 1] = next_month_nearness
    return nearness


@functools.lru_cache(maxsize=4096)
def _read_date(text: str) -> _Date | None:
    """Read a date in words or digits, e.g. "5 May 2023"; None if no such day exists ("31 June")."""
    date = _date_parser().get_date_data(text)
    if not date.date_obj:
        return None

    # The period is what the text names: a year, a month or a day.
    is_year = date.period == "year"
    has_year = re.search(r"\d{4}", text) is not None
    return _Date(month_number(date.date_obj), is_year, has_year)


@functools.cache
def _date_parser() -> Any:
    """Return dateparser's parser. It takes long to import and to create, so it is kept."""
    from dateparser.date import DateDataParser

    return DateDataParser(languages=["en", "zh"], settings={"PREFER_DAY_OF_MONTH": "first"})
