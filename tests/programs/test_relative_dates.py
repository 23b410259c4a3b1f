"""Relative dates of what is shown are worked out by code, in English and Chinese; what is not clear stays."""

from datetime import date, datetime

import dspy
import pytest
from mempiler import Context, History, Hit, Session, Turn, build, load, save
from mempiler.engines.embedders import embedder
from mempiler.programs.identity import writer_key
from mempiler.programs.relative_dates import with_dates

MONDAY = date(2023, 1, 30)
ENGLISH = {
    "Yesterday": "29 January 2023",
    "tomorrow's": "31 January 2023",
    "last night": "29 January 2023",
    "the day before yesterday": "28 January 2023",
    "the day after tomorrow": "1 February 2023",
    "last Friday": "27 January 2023",
    "last tues": "24 January 2023",
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
    "last month": "December 2022",
    "next month": "February 2023",
    "last year": "2022",
    "next year's": "2024",
    "last summer": "summer 2022",
    "next winter": "winter 2023",
    "this spring": "spring 2023",
    "last fall": "fall 2022",
    "last May": "May 2022",
    "next April": "April 2023",
    "3 days ago": "27 January 2023",
    "a couple of weeks ago": "about 16 January 2023",
    "six months ago": "July 2022",
    "a year ago": "2022",
    "ten years ago": "2013",
    "two weeks from now": "about 13 February 2023",
    "the week before 9 June": "29 May 2023 to 4 June 2023",
    "the Friday before 15 July 2023": "14 July 2023",
    "the sunday before May 25th, 2022": "22 May 2022",
    "the day after 31 December 2021": "1 January 2022",
    "the month after 3 March 2024": "April 2024",
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
    "上周末": "2023年1月28日至2023年1月29日",
    "下个月": "2023年2月",
    "去年": "2022年",
    "前年": "2021年",
    "三天前": "2023年1月27日",
    "两周前": "约2023年1月16日",
    "两个月前": "2022年11月",
    "10年前": "2013年",
}
UNCLEAR = (
    "on Friday",
    "a few days ago",
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
)


@pytest.mark.parametrize(("words", "meant"), [*ENGLISH.items(), *CHINESE.items()])
def test_the_date_stands_beside_the_words(words: str, meant: str) -> None:
    assert with_dates(f"So, {words}!", MONDAY) == f"So, {words} [{meant}]!"


@pytest.mark.parametrize("words", UNCLEAR)
def test_what_is_not_clear_stays(words: str) -> None:
    assert with_dates(words, MONDAY) == words


def test_twice_is_once() -> None:
    once = with_dates("Last week I met her; the week before 9 June I had not. 上周一起去。", MONDAY)
    assert with_dates(once, MONDAY) == once


@pytest.mark.parametrize("words", ["yesterday", "300 years ago", "the day before 30 February"])
def test_what_no_calendar_holds_stays(words: str) -> None:
    assert with_dates(words, date(1, 1, 1)) == words


def test_a_task_shows_dates_where_it_is_set() -> None:
    hits = (Hit(id="m1", text="We met yesterday.", time=datetime(2023, 1, 30)), Hit(id="m2", text="No date, tomorrow."))
    later = Session(id="s2", time=datetime(2023, 3, 1), turns=(Turn(id="D2:1", speaker="Ann", text="Last night too."),))
    shown = {}
    for dates in (False, True):
        task = build("turn-rag", **{"task.dates": dates}).task
        query = task.query({"question": "When?"}, recent=[later])
        shown[dates] = task.given(Context(hits=hits), query)["context"].splitlines()
    assert shown[False][0].endswith("We met yesterday.")
    assert shown[True] == [
        "[m1] (30 January 2023, Monday) We met yesterday [29 January 2023].",
        "[m2] No date, tomorrow.",
        "[D2:1] (1 March 2023, Wednesday) Ann: Last night [28 February 2023] too.",
    ]


@pytest.mark.parametrize("dates", [False, True])
def test_what_memories_are_written_from_has_them_too(scripted, tmp_path, dates: bool) -> None:
    save(build("memory-r2", embedder=embedder(), **{"task.dates": dates}), tmp_path / "program")
    program = load(tmp_path / "program", embedder=embedder())
    with dspy.context(lm=dspy.LM("openai/none", api_key="none")):
        plain = build("memory-r2", embedder=embedder()).method.writer
        assert (writer_key(program.method.writer) == writer_key(plain)) is not dates
    turn = Turn(id="D1:1", speaker="Ann", text="I sold my boat last Friday.")
    history = History(id="ann", items=(Session(id="s1", time=datetime(2023, 1, 30), turns=(turn,)),))
    lm = scripted(lambda kind, text, n: {"facts": [], "operations": []})
    with dspy.context(lm=lm):
        program.remember(history)
    assert ("last Friday [27 January 2023]" in lm.engine.prompts[0][1]) is dates
