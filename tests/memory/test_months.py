"""The months and years that a question names (`memory.search.months`).

A search prefers turns of a month that the question names. A turn of the month after counts for a
part, since people often tell of what they did a month later.
"""

import time
from datetime import datetime

import numpy as np
import pytest
from mempiler.memory.search.months import month_nearness, month_number

TIMES = [
    None,
    datetime(2023, 5, 7),
    datetime(2023, 6, 1),
    datetime(2022, 5, 1),
]
MONTHS = np.array([month_number(moment) for moment in TIMES])
NEXT_MONTH = 0.4
"""How near the month after the named one is; the named month is 1."""
YEAR = 0.3
"""How near every month of a year is that a question names without a month."""


def nearness_to(query: str, months: np.ndarray = MONTHS) -> np.ndarray | None:
    """Return how near each month is to those that a question names; None if it names none."""
    return month_nearness(query, months, next_month_nearness=NEXT_MONTH, same_year_nearness=YEAR)


@pytest.mark.parametrize(
    ("query", "expected_nearness"),
    # A number for each of `TIMES`: no time, May 2023, June 2023, May 2022.
    [
        ("What did Ann do in May 2023?", [0, 1, NEXT_MONTH, 0]),
        ("What happened on 5 May, 2023?", [0, 1, NEXT_MONTH, 0]),
        ("Where was she on June 3rd, 2023?", [0, 0, 1, 0]),
        ("2023年5月去了哪里？", [0, 1, NEXT_MONTH, 0]),
        ("What happened on 2023-05-07?", [0, 1, NEXT_MONTH, 0]),
        ("Who came in May?", [0, 1, NEXT_MONTH, 1]),
        ("Who came in 2023?", [0, YEAR, YEAR, 0]),
        ("In May 2023 or in May 2022?", [0, 1, NEXT_MONTH, 1]),
    ],
)
def test_month_is_near_if_the_question_names_it_its_year_or_the_month_before(
    query: str, expected_nearness: list[float]
) -> None:
    nearness = nearness_to(query)

    assert nearness is not None
    assert nearness.tolist() == expected_nearness


# "May" and "march" are verbs here.
@pytest.mark.parametrize("query", ["May I come, or may she march?", "Who came?"])
def test_question_that_names_no_month_has_no_nearness(query: str) -> None:
    assert nearness_to(query) is None


def many_dates() -> str:
    """Return 50,000 dates in May, of 200 years."""
    dates: list[str] = []
    for number in range(50_000):
        day = number % 28 + 1
        year = 1900 + number % 200
        dates.append(f"{day} May {year}")
    return " ".join(dates)


@pytest.mark.parametrize("dates", ["2024年" * 100_000, many_dates()], ids=["Chinese", "English"])
def test_only_the_beginning_of_a_very_long_question_is_searched_for_dates(dates: str) -> None:
    may_2024 = np.array([month_number(datetime(2024, 5, 1))])
    start = time.process_time()

    nearness = nearness_to(f"What did name7 say in May 2024? {dates}", may_2024)

    assert nearness is not None
    assert nearness.tolist() == [1]
    # A search for all dates would take far longer.
    assert time.process_time() - start < 5
