"""What every reader refuses, in one line that names the place, and what it copes with and tells."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time

import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.errors import DataError
from mempiler.records import text_file

from .forms import FORMS, Change, changed, encoded, first, put, write

QUERY = ("u1", "query", 0)
LATER = {"timestamp": "2024-03-20 20:01", "content": "later"}
VIDEO = ("u1", "action_history", 0)
QA, TALK = ("qa", 0), ("conversation",)
ASKED, STEPS = ("roles", 0, "QA"), ("roles", 0, "message_list")
TURN = {"id": "D1:1", "speaker": "user", "text": "I like tea."}
SESSION = {"id": "D1", "turns": [TURN]}
REFUSED: list[tuple[str, Change, str]] = [
    ("implexconv", put("conversation", value=["nobody"]), "item 0: holds no session with words"),
    ("jsonl", put("question"), "line 1, field 'question': is missing"),
    ("jsonl", put("history", value={"items": [SESSION]}), "line 1, field 'history': give one of"),
    (
        "jsonl",
        put("messages", value=["hi"]),
        "line 1, field 'messages': message 1 of session 1 has no role",
    ),
    (
        "jsonl",
        lambda row: (row.pop("messages"), row.update(history={"items": [{}]})),
        "field 'history': items.0",
    ),
    (
        "jsonl",
        lambda row: (row.pop("messages"), row.update(history={"items": [SESSION] * 2})),
        "uses a turn id twice",
    ),
    ("locomo", put(*QA, "answer"), "conv-1:0, field 'answer': is missing"),
    (
        "locomo",
        put(*QA, "category", value=6),
        "conv-1:0, field 'category': is '6', expected '1', '2', '3', '4' or '5'",
    ),
    (
        "locomo",
        put(*TALK, "session_2_date_time", value="8 May 2023"),
        "'8 May 2023' is not like '1:56 pm on 8 May",
    ),
    (
        "locomo",
        put(*TALK, "session_2", value="hello"),
        "conv-1, field 'session_2': is 'hello', expected a list of",
    ),
    (
        "locomo",
        put(*TALK, "session_2", 1, "dia_id", value="D2:1"),
        "turn 2: dia_id 'D2:1' is used twice",
    ),
    ("locomo", put("conversation", value={}), "conv-1: holds no turns in any session_N list"),
    (
        "longmemeval",
        put("haystack_dates", value=[]),
        "entry 1: haystack_session_ids, haystack_dates and",
    ),
    (
        "longmemeval",
        put("haystack_sessions", value=[[], [], []]),
        "entry 1: holds no session with words",
    ),
    (
        "membench",
        put("roles", value={"a": 1}),
        "simple.json, roles, a: is 1, expected a list of trajectories",
    ),
    ("membench", put(*ASKED), "simple.json, simple, roles, trajectory 1, field 'QA': is missing"),
    (
        "membench",
        put(*ASKED, "choices", "D"),
        "['Judge', 'Poet']}, expected Dictionary should have at least 4 items",
    ),
    (
        "membench",
        put(*ASKED, "ground_truth", value="E"),
        "QA.ground_truth': is 'E', expected 'A', 'B', 'C' or 'D'",
    ),
    (
        "membench",
        put(*ASKED, "question", value="[ERRORQ]"),
        "holds [ERROR...]: the question could not be made",
    ),
    (
        "membench",
        put(*STEPS, 1, 0, "time", value=[]),
        "field 'message_list.1.0.time': is [], expected a valid string",
    ),
    ("membench", put(*STEPS, value=[[], [{}]]), "trajectory 1: holds no message with words"),
    ("memoryquest", put("sessions", value=[]), "user1: no session has a turn with words"),
    (
        "msc",
        lambda row: row.update(dialog=[], previous_dialogs=[]),
        "line 1: no session has a turn with words",
    ),
    (
        "omnibehavior",
        put(*VIDEO, "timestamp", value="noon"),
        "record 1, field 'timestamp': 'noon' is not like",
    ),
    ("omnibehavior", put("u1", "action_history", value=[]), "holds no examples"),
    ("palbench.restate", put("u1", value={"history": [], "query": []}), "holds no examples"),
    (
        "palbench.restate",
        put(*QUERY, "topics", "topic-1", value={}),
        "0.topics.topic-1.user_query': is missing",
    ),
    (
        "personamem",
        put("correct_answer", value="(x)"),
        "line 2, field 'correct_answer': is 'x', expected 'a', 'b'",
    ),
    (
        "personamem",
        put("all_options", value="['(a) Jazz.', '(c) Rock.']"),
        "no option begins with (b)",
    ),
    ("personamem", put("shared_context_id", value="c2"), "'c2' is not in the file of contexts"),
    (
        "personamem",
        put("correct_answer"),
        "has no column 'correct_answer'; its columns are persona_id, question_id,",
    ),
    ("personamem-v2", put("incorrect_answers", value="none"), "is 'none', expected a valid list"),
    (
        "personamem-v2",
        put("chat_history_32k_link", value="data/gone.json"),
        "'data/gone.json' is no file below the",
    ),
    (
        "personamem-v2",
        put("chat_history_32k_link", value="../x.json"),
        "'../x.json' is no file below the CSV's folder",
    ),
    (
        "personamem-v2",
        put("chat_history_32k_link", value="a\x00b"),
        "is no file below the CSV's folder",
    ),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_a_broken_file_is_refused_in_one_line_and_a_check_says_the_same(
    tmp_path, name, change, message
):
    path = write(tmp_path, changed(name, change))
    with pytest.raises(DataError) as refusal:
        benchmark(name, path)
    assert message in str(refusal.value)
    report = check(name, path)
    fatal = next(row for row in report.findings if row.fatal)
    assert not report.ok
    if fatal.kind != "no questions":
        assert fatal.message in str(refusal.value)


ODD: list[tuple[str, Change, str]] = [
    ("implexconv", put("conversation", 0, value="nobody"), "empty session"),
    (
        "implexconv",
        put("qa", 0, "retrieved_conv", value="words of another conversation"),
        "dangling evidence",
    ),
    ("implexconv", put("qa", 0, "retrieved_conv"), "empty evidence"),
    ("membench", put(*STEPS, 0, 0, value={}), "empty message"),
    ("membench", put(*ASKED, "target_step_id", value=[[1, 0], [1, 1], 7]), "dangling evidence"),
    ("membench", put(*ASKED, "answer", value="A vet"), "other answer"),
    ("membench", put(*ASKED, "target_step_id", value=[[0, 1]]), "step convention"),
    ("memoryquest", lambda row: row["queries"].append({"query": "What?"}), "no references"),
    ("memoryquest", lambda row: row["queries"].append(row["queries"][0]), "repeated query"),
    (
        "memoryquest",
        put("queries", 0, "references", 0, "session_id", value="z"),
        "dangling evidence",
    ),
    ("memoryquest", put("queries", 0, "references", 0, "turns", value=[9]), "dangling evidence"),
    ("memoryquest", put("sessions", 2, "turns", value=[]), "empty session"),
    ("memoryquest", lambda row: row["sessions"].reverse(), "sessions out of order"),
    ("jsonl", put("evidence", value=["D9:9"]), "dangling evidence"),
    ("jsonl", put("evidnce", value=["D1:1"]), "unknown column"),
    (
        "locomo",
        put(*TALK, "session_11_date_time", value="1:56 pm on 8 May, 2023"),
        "date without session",
    ),
    ("locomo", put(*TALK, "session_2_date_time"), "session without date"),
    ("locomo", put(*TALK, "session_3", value=[]), "empty session"),
    ("locomo", put(*QA, "evidence"), "empty evidence"),
    ("locomo", put(*QA, "evidence", value=["D2:1", "D2:9"]), "dangling evidence"),
    ("locomo", put(*QA, "evidence", value=["D2:01"]), "malformed evidence"),
    ("locomo", lambda row: row["qa"].append(row["qa"][0]), "duplicate question"),
    ("locomo", put(*QA, "category", value=5), "adversarial answer"),
    ("longmemeval", put("haystack_sessions", 0, value=[]), "empty session"),
    ("longmemeval", put("haystack_dates", 0, value="?"), "malformed date"),
    ("longmemeval", put("question_date", value="soon"), "malformed date"),
    ("longmemeval", put("answer_session_ids", value=["answer_a", "answer_z"]), "dangling evidence"),
    ("msc", put("previous_dialogs", 0, "time_back", value=""), "no time_back"),
    ("msc", put("previous_dialogs", 0, "time_back", value="1 day"), "times out of order"),
    ("omnibehavior", put(*VIDEO, "type", value="Walking"), "unknown scene"),
    (
        "palbench.restate",
        lambda users: users["u1"]["query"][0]["logs"].append(LATER),
        "log after its dialogue",
    ),
    ("palbench.restate", put(*QUERY, "topics", value={}), "no topics"),
    ("palbench.restate", put(*QUERY, "dialogue_timestamp", value="soon"), "unreadable date"),
    (
        "palbench.restate",
        put(*QUERY, "dialogue_timestamp", value="2024-01-01 00:00:00"),
        "samples out of order",
    ),
    ("palbench.restate", put(*QUERY, "topics", "topic-1", "implicit_needs", 1), "number of needs"),
    (
        "palbench.restate",
        put(*QUERY, "topics", "topic-1", "candidate_solutions", 1),
        "number of candidates",
    ),
    ("personamem", put("end_index_in_shared_context", value="99"), "end past the context"),
    ("personamem", put("question_type", value="telepathy"), "unknown skill"),
]


@pytest.mark.parametrize(("name", "change", "kind"), ODD)
def test_odd_values_are_read_and_reported(tmp_path, name, change, kind):
    path = write(tmp_path, changed(name, change))
    assert benchmark(name, path).examples
    report = check(name, path)
    assert report.ok
    assert kind in report.kinds


REPEATED: dict[str, tuple[Change, str]] = {
    "longmemeval": (lambda row: None, "entry 2: 'q1' is the id of two questions"),
    "jsonl": (
        lambda row: row.update(id="a"),
        "line 2, field 'id': 'a' is already the id of line 1",
    ),
    "personamem": (lambda row: None, "line 3, field 'question_id': 'q1' is used twice"),
    "locomo": (lambda row: None, "conversation 2: sample_id 'conv-1' is used twice"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_an_id_that_is_used_twice_is_refused(tmp_path, name):
    change, message = REPEATED[name]
    files = changed(name, change)
    next(iter(files.values())).append(first(name, files))
    with pytest.raises(DataError, match=message):
        benchmark(name, write(tmp_path, files))


def test_a_repeated_conversation_of_msc_is_one_group_with_two_questions(tmp_path):
    files = changed("msc", lambda row: None)
    files["msc.jsonl"] *= 2
    loaded = benchmark("msc", path := write(tmp_path, files))
    assert [example.id for example in loaded.examples] == ["valid_7", "valid_7:2"]
    assert {loaded.group(example) for example in loaded.examples} == {"valid_7"}
    assert check("msc", path).kinds == {"repeated conversation": 1}


OTHER = (
    b"",
    b" \n",
    b"\xff\xfe",
    b"\x1f\x8b\x08",
    b'{"data": 1}',
    b"[1]",
    b"[NaN]",
    b"[" * 100_000,
    b'["\\ud800"]',
)
"""What no benchmark's file is."""


@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, name):
    main = next(iter(FORMS[name]))
    whole = encoded(main, FORMS[name][main])
    for content in (*OTHER, whole[: len(whole) // 2]):
        with pytest.raises(DataError):
            benchmark(name, write(tmp_path, {**FORMS[name], main: content}))
        assert not check(name, write(tmp_path, {**FORMS[name], main: content})).ok


@pytest.mark.parametrize("name", FORMS)
def test_a_pipe_is_refused_at_once(tmp_path, name):
    main = next(iter(FORMS[name]))
    path = write(tmp_path, FORMS[name])
    file = tmp_path / main
    file.unlink()
    os.mkfifo(file)
    # Whoever waits for the pipe all the same finds it empty after a while.
    writer = file.open("r+b", buffering=0)
    timer = threading.Timer(20, writer.close)
    timer.start()
    try:
        started = time.monotonic()
        with pytest.raises(DataError):
            benchmark(name, path)
        assert time.monotonic() - started < 20
    finally:
        timer.cancel()
        writer.close()


def test_a_line_without_an_end_is_refused_and_a_check_says_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(text_file, "MAX_LINE_LENGTH", 10_000)
    row = json.dumps(FORMS["jsonl"]["own.jsonl"][0])
    path = write(tmp_path, {"own.jsonl": f"{row}\n{'x' * 20_000}".encode()})
    with pytest.raises(DataError, match=r"own\.jsonl: line 2 has more than 10,000 characters"):
        benchmark("jsonl", path)
    assert (
        check("jsonl", path)
        .findings[-1]
        .message.startswith("line 2 has more than 10,000 characters")
    )


TEXTS = (
    "",
    "9" * 400,
    "a\x00b",
    "line\nbreak",
    "\u2028",
    "../../etc/passwd",
    "x" * 100_000,
    "2024-02-30",
    "[" * 500,
)
VALUES = (
    None,
    True,
    -1,
    3.5,
    10**17,
    [],
    [None],
    {},
    {"content": {}},
    *TEXTS,
    "0001-01-01T00:00:00+14:00",
)


def _paths(value, at=()):
    """Where something is: of a list the first entry stands for the others."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:1])
        if isinstance(value, list)
        else ()
    )
    for key, part in inside:
        yield (*at, key)
        yield from _paths(part, (*at, key))


@pytest.mark.parametrize("name", FORMS)
def test_a_row_with_any_other_value_is_read_or_refused_in_one_line_and_a_check_never_raises(
    tmp_path, name
):
    values, verdicts = itertools.cycle(VALUES), set()
    for path in [path for path in _paths(first(name, FORMS[name])) for _ in range(3)]:
        made = write(tmp_path, changed(name, put(*path, value=next(values))))
        try:
            benchmark(name, made)
            verdicts.add(True)
        except DataError:
            verdicts.add(False)
        json.dumps(check(name, made).model_dump()).encode()
    assert verdicts == {True, False}


def test_a_line_that_is_cut_short_is_named_and_the_others_are_read(tmp_path):
    row = FORMS["jsonl"]["own.jsonl"][0]
    path = write(tmp_path, {"own.jsonl": [row, json.dumps(row)[:40], row]})
    with pytest.raises(
        DataError, match=r"line 2, column 41: not valid JSON .*; is the line cut short"
    ):
        benchmark("jsonl", path)
    assert check("jsonl", path).counts["questions"] == 2
