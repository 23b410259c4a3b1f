"""Relative dates of what is shown are worked out by code, in English and Chinese; what is not clear stays."""

from datetime import date, datetime

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.programs.identity import writer_key
from mempiler.programs.relative_dates import with_dates
from mempiler.records import Context, History, Hit, Session, Turn
from mempiler.runs.artifact import load, save

MONDAY = date(2023, 1, 30)
ENGLISH = {
    "yesterday": "29 January 2023",
    "last night": "29 January 2023",
    "the day before yesterday": "28 January 2023",
    "last Friday": "27 January 2023",
    "last Monday": "23 January 2023",
    "this past Saturday": "28 January 2023",
    "this Thursday": "2 February 2023",
    "this coming Sunday": "5 February 2023",
    "last week": "23 to 29 January 2023",
    "the week before last": "16 to 22 January 2023",
    "two weekends ago": "21 to 22 January 2023",
    "last month": "December 2022",
    "next year's": "2024",
    "last summer": "summer 2022",
    "this spring": "spring 2023",
    "last May": "May 2022",
    "next April": "April 2023",
    "3 days ago": "27 January 2023",
    "a couple of weeks ago": "about 16 January 2023",
    "six months ago": "July 2022",
    "two weeks from now": "about 13 February 2023",
}
CHINESE = {
    "昨天": "2023年1月29日",
    "前天": "2023年1月28日",
    "上个星期天": "2023年1月29日",
    "下下周三": "2023年2月15日",
    "上周": "2023年1月23日至2023年1月29日",
    "上周末": "2023年1月28日至2023年1月29日",
    "前年": "2021年",
    "三天前": "2023年1月27日",
    "两周前": "约2023年1月16日",
    "两个月前": "2022年11月",
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
    once = with_dates("Last week I met her; the day before yesterday I had not. 上周一起去。", MONDAY)
    assert with_dates(once, MONDAY) == once


@pytest.mark.parametrize("words", ["yesterday", "300 years ago"])
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
    read: list[str] = []

    def reply(kind: str, text: str, n: int) -> dict[str, list[str]]:
        read.append(text)
        return {"facts": [], "operations": []}

    with dspy.context(lm=scripted(reply)):
        program.remember(history)
    assert ("last Friday [27 January 2023]" in read[0]) is dates
