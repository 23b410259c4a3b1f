"""The months and years that a question names (`memory.search.months`).

A search prefers turns of a month that the question names. A turn of the month after counts for a
part, since people often tell of what they did a month later.
"""

import time
from datetime import datetime

import numpy as np
import pytest
from mempiler.memory.search.months import month_nearness, month_number


def months_of(*times: datetime | None) -> np.ndarray:
    """Return the months of some turns, as a search has them; None for a turn without a time."""
    return np.array([month_number(time) for time in times])


@pytest.mark.parametrize(
    ("query", "may_2022", "may_2023", "june_2023"),
    [
        ("What did Ann do in May 2023?", 0, 1, 0.4),
        ("What happened on 5 May, 2023?", 0, 1, 0.4),
        ("Where was she on June 3rd, 2023?", 0, 0, 1),
        ("2023年5月去了哪里？", 0, 1, 0.4),
        ("What happened on 2023-05-07?", 0, 1, 0.4),
        ("Who came in May?", 1, 1, 0.4),
        ("Who came in 2023?", 0, 0.3, 0.3),
        ("In May 2023 or in May 2022?", 1, 1, 0.4),
    ],
)
def test_month_is_near_if_the_question_names_it_its_year_or_the_month_before(
    query: str, may_2022: float, may_2023: float, june_2023: float
) -> None:
    """The month that a question names is near by 1, and the month after it by 0.4.

    If a question names only a year, each of its months is near by 0.3.
    """
    months = months_of(None, datetime(2022, 5, 1), datetime(2023, 5, 7), datetime(2023, 6, 1))

    nearness = month_nearness(query, months, next_month_nearness=0.4, same_year_nearness=0.3)

    assert nearness is not None
    # A turn without a time is near to no month.
    assert nearness.tolist() == [0, may_2022, may_2023, june_2023]


@pytest.mark.parametrize(
    "query",
    [
        # Both are verbs here.
        "May I come, or may she march?",
        "Who came?",
    ],
)
def test_question_that_names_no_month_has_no_nearness(query: str) -> None:
    months = months_of(datetime(2023, 3, 1), datetime(2023, 5, 1))

    nearness = month_nearness(query, months, next_month_nearness=0.4, same_year_nearness=0.3)

    assert nearness is None


def many_english_dates() -> str:
    """Return 50,000 dates in May, of 200 years."""
    dates: list[str] = []
    for number in range(50_000):
        day = number % 28 + 1
        year = 1900 + number % 200
        dates.append(f"{day} May {year}")
    return " ".join(dates)


@pytest.mark.parametrize(
    "dates", ["2024年" * 100_000, many_english_dates()], ids=["Chinese", "English"]
)
def test_only_the_beginning_of_a_very_long_question_is_searched_for_dates(dates: str) -> None:
    months = months_of(datetime(2024, 5, 1))
    query = f"What did Ann say in May 2024? {dates}"
    start = time.process_time()

    nearness = month_nearness(query, months, next_month_nearness=0.4, same_year_nearness=0.3)

    assert nearness is not None
    assert nearness.tolist() == [1]
    # A search for all dates would take far longer.
    assert time.process_time() - start < 5
