"""Relative dates: the date that is written beside them, and words that stay as they were said.

A line that was said months ago may have the word "yesterday". So a model is shown "yesterday
[29 January 2023]": the date in brackets is counted from the day on which the line was said. The
rules read English and Chinese. They leave words alone whose date is not clear.
"""

import runpy
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from mempiler import Session, Turn
from mempiler.programs._relative_dates import (
    MAX_DATES_OF_A_RULE,
    resolve_item_dates,
    resolve_text_dates,
)

DOCS = Path(__file__).parents[2] / "docs"

MONDAY_30_JANUARY_2023 = date(2023, 1, 30)
"""The day on which all words of the tables below are said."""

ENGLISH = {
    "Yesterday": "29 January 2023",
    "tomorrow's": "31 January 2023",
    "last night": "29 January 2023",
    "the day before yesterday": "28 January 2023",
    "the day after tomorrow": "1 February 2023",
    "last Friday": "27 January 2023",
    "last Mon": "23 January 2023",
    "last tue": "24 January 2023",
    "last tues": "24 January 2023",
    "last wed": "25 January 2023",
    "last thu": "26 January 2023",
    "last thurs": "26 January 2023",
    "last fri": "27 January 2023",
    "last Sat": "28 January 2023",
    "last Sun": "29 January 2023",
    "last Monday": "23 January 2023",
    "this past Saturday": "28 January 2023",
    "this Monday": "30 January 2023",
    "this coming Sunday": "5 February 2023",
    "next Monday": "6 February 2023",
    "last week": "23 to 29 January 2023",
    "this week": "30 January 2023 to 5 February 2023",
    "the week before last": "16 to 22 January 2023",
    "this past weekend": "28 to 29 January 2023",
    "this weekend": "4 to 5 February 2023",
    "the weekend before last": "21 to 22 January 2023",
    "two weekends ago": "21 to 22 January 2023",
    "two weekends from now": "18 to 19 February 2023",
    "last month": "December 2022",
    "next  month": "February 2023",
    "last year": "2022",
    "next year's": "2024",
    "last summer": "summer 2022",
    "next winter": "winter 2023",
    "this spring": "spring 2023",
    "last fall": "fall 2022",
    "last winter": "winter 2022",
    "last May": "May 2022",
    "last January": "January 2022",
    "this May": "May 2023",
    "next January": "January 2024",
    "next April": "April 2023",
    "3 days ago": "27 January 2023",
    "a couple of weeks ago": "about 16 January 2023",
    "six months ago": "July 2022",
    "a year ago": "2022",
    "ten years ago": "2013",
    "999 days ago": "6 May 2020",
    "two weeks from now": "about 13 February 2023",
    "three days from\nnow": "2 February 2023",
    "this Sat": "4 February 2023",
    "THIS MAY": "May 2023",
    "the week before 9 June": "29 May 2023 to 4 June 2023",
    "the Friday before 15 July 2023": "14 July 2023",
    "the sunday before May 25th, 2022": "22 May 2022",
    "the day after 31 December 2021": "1 January 2022",
    "the day before 20 December": "19 December 2022",
    "the month after 3 March 2024": "April 2024",
    "the summer after 3 March 2024": "summer 2024",
    "the weekend after 3 March 2024": "9 to 10 March 2024",
}
CHINESE = {
    "昨天": "2023年1月29日",
    "昨晚": "2023年1月29日",
    "大前天": "2023年1月27日",
    "明天": "2023年1月31日",
    "后天": "2023年2月1日",
    "上周五": "2023年1月27日",
    "上个星期天": "2023年1月29日",
    "这周三": "2023年2月1日",
    "下下周三": "2023年2月15日",
    "上周": "2023年1月23日至2023年1月29日",
    "这个星期": "2023年1月30日至2023年2月5日",
    "下礼拜": "2023年2月6日至2023年2月12日",
    "上上周": "2023年1月16日至2023年1月22日",
    "上周末": "2023年1月28日至2023年1月29日",
    "下个月": "2023年2月",
    "上月": "2022年12月",
    "这个月": "2023年1月",
    "下下个月": "2023年3月",
    "去年": "2022年",
    "今年": "2023年",
    "前年": "2021年",
    "后年": "2025年",
    "大前年": "2020年",
    "大后年": "2026年",
    "三天前": "2023年1月27日",
    "5日之前": "2023年1月25日",
    "两周前": "约2023年1月16日",
    "3个星期以前": "约2023年1月9日",
    "两个月前": "2022年11月",
    "10年前": "2013年",
}
WORDS_WITHOUT_A_CLEAR_DATE = (
    "on Friday",
    "a few days ago",
    "the day before 30 February",
    "the last week of May",
    "this past year",
    "we go now",
    "we may meet",
    "recently",
    "yesterday [the 29th]",
    "以前天气很好",
    "以后天天来",
    "以前年轻",
    "二十三天前",
    "三年前后",
    "上周五 [27 日]",
    "大大前天",
)
PARTS_OF_LONGER_TIMES = (
    "half a year ago",
    "half of a year ago",
    "three quarters of a year ago",
    "½ a year ago",
    "twenty-five years ago",
    "twenty five years ago",
    "a hundred and two years ago",
    "2.5 years ago",
    "1.5 weeks ago",
    "1,000 years ago",
    "1,000,000 years ago",
    "1 000 years ago",
    "2/3 weeks ago",
    "2.5 weekends ago",
    "one or two weekends from now",
    "2-3 weeks ago",
    "2 – 3 weeks ago",
    "2, 3 weeks ago",
    "two-three weeks ago",
    "two, three weeks ago",
    "two or three weeks ago",
    "one to 2 weeks from now",
    "a couple or three weeks ago",
    "between two and three weeks ago",
    "one and a half to two years ago",
    "a week or two weeks ago",
    "three weeks to a month ago",
    "a year and two months ago",
    "2 years, 3 months ago",
    "a week and three days ago",
    "1.5年前",
    "一点五年前",
    "3.5个月前",
    "1,000年前",
    "两三天前",
    "两、三天前",
    "2-3天前",
    "2 - 3天前",
    "2到3天前",
    "两天到三天前",
    "数十年前",
    "三分之二年前",
    "一年零三个月前",
    "1年3个月前",
    "第三天前",
    "5月3日前",
)
SENTENCES_WITH_ANOTHER_NUMBER = {
    "I bought one two weeks ago": "about 16 January 2023",
    "I needed one, two weeks ago": "about 16 January 2023",
    "It was at 5 two days ago": "28 January 2023",
    "I am 25. Two years ago": "2021",
    "I am 25 and two years ago": "2021",
    "I left in 2021, 2 years ago": "2021",
    "I left in 2021 - 2 years ago": "2021",
    "I met my other half two years ago": "2021",
    "I went there for two weeks a year ago": "2022",
    "我走了，三天前": "2023年1月27日",
}
"""Numbers before a count that are no part of it."""
WORDS_LIKE_A_MONTH_OR_WEEKDAY = (
    "This may be wrong",
    "next may I ask",
    "at last may I go",
    "this march was long",
    "this sun is hot",
    "He saw this sat there",
    "my last SAT",
)


@pytest.mark.parametrize(("words", "expected"), [*ENGLISH.items(), *CHINESE.items()])
def test_words_with_a_clear_date_get_the_date_in_brackets(words: str, expected: str) -> None:
    """Said on Monday, 30 January 2023, "last Friday" becomes "last Friday [27 January 2023]".

    The words stand in a sentence, "So, last Friday!".
    """
    text = resolve_text_dates(f"So, {words}!", MONDAY_30_JANUARY_2023)

    assert text == f"So, {words} [{expected}]!"


@pytest.mark.parametrize("words", WORDS_WITHOUT_A_CLEAR_DATE)
def test_words_without_a_clear_date_stay_as_they_are(words: str) -> None:
    """A wrong date is worse than none: "on Friday" may mean the last Friday or the next."""
    assert resolve_text_dates(words, MONDAY_30_JANUARY_2023) == words


@pytest.mark.parametrize("words", PARTS_OF_LONGER_TIMES)
def test_a_part_of_a_longer_time_is_not_read(words: str) -> None:
    """The words "half a year ago" hold "a year ago", which must get no date of its own."""
    assert resolve_text_dates(f"So, {words}!", MONDAY_30_JANUARY_2023) == f"So, {words}!"


@pytest.mark.parametrize(("sentence", "expected"), SENTENCES_WITH_ANOTHER_NUMBER.items())
def test_a_number_elsewhere_in_the_sentence_does_not_hide_a_date(
    sentence: str, expected: str
) -> None:
    """In "I bought one two weeks ago" the number before "two" belongs to another word."""
    assert resolve_text_dates(sentence, MONDAY_30_JANUARY_2023) == f"{sentence} [{expected}]"


@pytest.mark.parametrize("sentence", WORDS_LIKE_A_MONTH_OR_WEEKDAY)
def test_a_word_that_only_looks_like_a_month_or_weekday_is_not_read(sentence: str) -> None:
    """In "next may I ask" no month is meant."""
    assert resolve_text_dates(sentence, MONDAY_30_JANUARY_2023) == sentence


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SEVENTY_DAYS = [date(2023, 1, 1) + timedelta(days=11 * number) for number in range(70)]
"""Days of 2023 to 2025, ten of each weekday."""


def english_date(day: date) -> str:
    """Return a date as our rules write it: "9 June 2023"."""
    return f"{day.day} {day:%B %Y}"


def day_of_week_from(first_day: date, weekday: str) -> date:
    """Return the day with the name of a weekday among seven days, of which the first is given."""
    days_later = (WEEKDAYS.index(weekday) - first_day.weekday()) % 7
    return first_day + timedelta(days=days_later)


@pytest.mark.parametrize("weekday", WEEKDAYS)
@pytest.mark.parametrize("words", ["last", "this past"])
def test_a_past_weekday_lies_within_the_seven_days_before_today(words: str, weekday: str) -> None:
    """Said on a Friday, "last Friday" is the day a week ago."""
    text = f"{words} {weekday}"

    for today in SEVENTY_DAYS:
        expected_day = day_of_week_from(today - timedelta(days=7), weekday)
        assert resolve_text_dates(text, today) == f"{text} [{english_date(expected_day)}]"


@pytest.mark.parametrize("weekday", WEEKDAYS)
@pytest.mark.parametrize(
    ("words", "first_day"), [("this", "today"), ("this coming", "tomorrow"), ("next", "tomorrow")]
)
def test_a_coming_weekday_lies_within_the_next_seven_days(
    words: str, first_day: str, weekday: str
) -> None:
    """Said on a Friday, "this Friday" is today, and "next Friday" the day in a week."""
    text = f"{words} {weekday}"
    days_until_first = {"today": 0, "tomorrow": 1}[first_day]

    for today in SEVENTY_DAYS:
        expected_day = day_of_week_from(today + timedelta(days=days_until_first), weekday)
        assert resolve_text_dates(text, today) == f"{text} [{english_date(expected_day)}]"


def monday_of_week(day: date, weeks_later: int) -> date:
    """Return the Monday of a week that is so many weeks after that of a day."""
    return day - timedelta(days=day.weekday()) + timedelta(weeks=weeks_later)


@pytest.mark.parametrize(
    ("words", "weeks_later"), [("last week", -1), ("this week", 0), ("next week", 1)]
)
def test_a_week_is_from_monday_to_sunday(words: str, weeks_later: int) -> None:
    """On Monday, 30 January 2023, "last week" is "23 to 29 January 2023"."""
    for day in SEVENTY_DAYS:
        monday = monday_of_week(day, weeks_later)
        sunday = monday + timedelta(days=6)

        text = resolve_text_dates(words, day)

        # Only the month of the Sunday is always written: "30 January 2023 to 5 February 2023".
        assert f"[{monday.day} " in text
        assert f" to {english_date(sunday)}]" in text


@pytest.mark.parametrize(
    ("day", "last_month", "next_month"),
    [
        (date(2023, 3, 31), "February 2023", "April 2023"),
        (date(2024, 2, 29), "January 2024", "March 2024"),
        (date(2024, 1, 31), "December 2023", "February 2024"),
        (date(2024, 12, 31), "November 2024", "January 2025"),
    ],
)
def test_the_month_before_or_after_the_last_day_of_a_month_is_the_neighbouring_one(
    day: date, last_month: str, next_month: str
) -> None:
    """A month before 31 March is February, although February has no 31st."""
    assert resolve_text_dates("last month", day) == f"last month [{last_month}]"
    assert resolve_text_dates("next month", day) == f"next month [{next_month}]"
    assert resolve_text_dates("a month ago", day) == f"a month ago [{last_month}]"


def test_only_the_beginning_of_a_long_text_has_dates() -> None:
    """Dates are searched for in the first 20,000 characters alone, so that no text takes long."""
    long_text = f"I came yesterday. {'x' * 20_000} I went yesterday."

    text = resolve_text_dates(long_text, MONDAY_30_JANUARY_2023)

    assert text.startswith("I came yesterday [29 January 2023].")
    assert text.endswith("I went yesterday.")


def test_the_number_of_dates_in_a_text_is_limited() -> None:
    """Each date takes time, and no honest message has as many."""
    text = resolve_text_dates("yesterday, " * (MAX_DATES_OF_A_RULE + 5), MONDAY_30_JANUARY_2023)
    assert text.count("[29 January 2023]") == MAX_DATES_OF_A_RULE


def test_a_text_whose_dates_are_resolved_stays_as_it_is() -> None:
    """Otherwise a text that is shown and stored again would get more and more dates."""
    text = "Last week I met her; the week before 9 June I had not. 上周一起去。"

    resolved_text = resolve_text_dates(text, MONDAY_30_JANUARY_2023)

    dates_beside_words = resolved_text.count("[")
    assert dates_beside_words == 3
    assert resolve_text_dates(resolved_text, MONDAY_30_JANUARY_2023) == resolved_text


@pytest.mark.parametrize(
    "words", ["yesterday", "last Friday", "last week", "300 years ago", "前年", "上上周"]
)
def test_a_date_before_the_first_year_is_not_written(words: str) -> None:
    """Python has no date before 1 January of the year 1, on which the words are said."""
    assert resolve_text_dates(words, date(1, 1, 1)) == words


@pytest.mark.parametrize(
    "words", ["tomorrow", "next Friday", "this week", "next year", "后年", "下下周"]
)
def test_a_date_after_the_last_year_is_not_written(words: str) -> None:
    """Python has no date after 31 December 9999, on which the words are said."""
    assert resolve_text_dates(words, date(9999, 12, 31)) == words


@pytest.mark.parametrize("words", ["laſt week", "thıs week"])
def test_a_letter_that_only_looks_like_another_is_no_error(words: str) -> None:
    """A search that ignores case takes "ſ" for "s", but no table of words has "laſt"."""
    assert resolve_text_dates(f"I ran {words}.", MONDAY_30_JANUARY_2023) == f"I ran {words}."


def test_the_words_of_a_turn_get_a_date_and_its_time_stays_as_it_is() -> None:
    """Dates are counted from the time of a turn, or from the time of its session if it has none."""
    turn = Turn(id="D1:1", speaker="Ann", text="Tomorrow.")
    turn_with_time = Turn(id="D1:2", speaker="Bob", text="Yesterday.", time=datetime(2024, 1, 1))
    item = Session(id="D1", time=datetime(2024, 3, 5), turns=(turn, turn_with_time))

    resolved_turn, resolved_turn_with_time = resolve_item_dates(item).turns

    assert resolved_turn.text == "Tomorrow [6 March 2024]."
    assert resolved_turn.time is None
    assert resolved_turn_with_time.text == "Yesterday [31 December 2023]."
    assert resolved_turn_with_time.time == turn_with_time.time


def test_the_tables_of_the_page_on_relative_dates_are_current() -> None:
    """The script docs/relative_dates.py makes the tables at the end of the page from the rules."""
    script = runpy.run_path(str(DOCS / "relative_dates.py"))
    page = (DOCS / "relative_dates.md").read_text(encoding="utf-8")
    assert page.endswith(script["tables"]()), "run python docs/relative_dates.py"


def test_our_rules_read_nothing_that_dateparser_reads_correctly() -> None:
    """A rule of ours is only worth its code where the package dateparser is wrong.

    A row of the page is "| expression | date of dateparser | our date | our rule |".
    """
    page = (DOCS / "relative_dates.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.endswith("| our rule |")]
    assert rows
    for _expression, date_of_dateparser, our_date, _reader in rows:
        assert date_of_dateparser != our_date
