"""The months and years that a question names (`memory.search.months`).

A search prefers turns of a month that the question names. A turn of the month after counts for a
part, since people often tell of what they did a month later.
"""

import time
from datetime import datetime

import numpy as np
import pytest
from mempiler.memory.search.months import month_nearness, month_number

NO_TIME = None
MAY_2022 = datetime(2022, 5, 1)
MAY_2023 = datetime(2023, 5, 7)
JUNE_2023 = datetime(2023, 6, 1)
DECEMBER_2023 = datetime(2023, 12, 1)


def nearness_of(question: str, *times: datetime | None) -> list[float] | None:
    """Return how near turns of these times are to the months that a question names.

    The named month is near by 1, the month after it by 0.4, and a month of a named year by 0.3.

    Returns:
        A number for each time, or None if the question names no month and no year.
    """
    months = np.array([month_number(time) for time in times])
    nearness = month_nearness(question, months, next_month_nearness=0.4, same_year_nearness=0.3)
    return None if nearness is None else nearness.tolist()


@pytest.mark.parametrize(
    "question",
    [
        "What did Ann do in May 2023?",
        "What happened on 5 May, 2023?",
        "What happened on May 3rd, 2023?",
        "What happened on 2023-05-07?",
        "2023年5月去了哪里？",
    ],
)
def test_named_month_is_near_by_1_and_the_month_after_it_by_less(question: str) -> None:
    assert nearness_of(question, MAY_2023, JUNE_2023, MAY_2022) == [1, 0.4, 0]


def test_month_before_the_named_one_is_not_near() -> None:
    assert nearness_of("Where was she in June 2023?", MAY_2023) == [0]


def test_month_without_a_year_is_near_in_every_year() -> None:
    assert nearness_of("Who came in May?", MAY_2022, MAY_2023) == [1, 1]


def test_year_without_a_month_is_near_in_each_of_its_months() -> None:
    assert nearness_of("Who came in 2023?", MAY_2023, DECEMBER_2023, MAY_2022) == [0.3, 0.3, 0]


def test_two_named_months_are_both_near() -> None:
    assert nearness_of("In May 2023 or in May 2022?", MAY_2022, MAY_2023) == [1, 1]


def test_turn_without_a_time_is_near_to_no_month() -> None:
    assert nearness_of("What did Ann do in May 2023?", NO_TIME) == [0]


@pytest.mark.parametrize("question", ["May I come, or may she march?", "Who came?"])
def test_question_that_names_no_month_has_no_nearness(question: str) -> None:
    """The verbs "may" and "march" are no months."""
    assert nearness_of(question, MAY_2023) is None


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
    start = time.process_time()

    nearness = nearness_of(f"What did Ann say in May 2023? {dates}", MAY_2023)

    assert nearness == [1]
    # A search for all dates would take far longer.
    assert time.process_time() - start < 5
