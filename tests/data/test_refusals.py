"""What every reader does with broken and odd files: refuse them, or read them and report.

Each test takes the small example file of a benchmark (in `files/`) and changes its first row. A
refusal is one line that names the place in the file. A check reads a file like the benchmark, but
lists all problems as findings; the fatal ones are those for which loading refuses the file.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.check import check
from mempiler.errors import DataError
from mempiler.records.text_file import MAX_LINE_LENGTH

from .forms import (
    EXAMPLE_FILES,
    Change,
    changed_files,
    encode_file,
    first_row,
    main_file,
    put,
    remove,
    unchanged,
    write_files,
)

# Where things stand in the first row of an example file.
LOCOMO_QUESTION = ("qa", 0)
MEMBENCH_QUESTION = ("roles", 0, "QA")
MEMBENCH_MESSAGES = ("roles", 0, "message_list")
OMNIBEHAVIOR_VIDEO = ("u1", "action_history", 0)
PALBENCH_QUERY = ("u1", "query", 0)
PALBENCH_TOPIC = (*PALBENCH_QUERY, "topics", "topic-1")

SESSION = {"id": "D1", "turns": [{"id": "D1:1", "speaker": "user", "text": "I like tea."}]}


def history_instead_of_messages(*sessions: dict[str, Any]) -> Change:
    """Return a change that replaces the messages of a row by a history of these sessions."""

    def change(row: dict[str, Any]) -> None:
        del row["messages"]
        row["history"] = {"items": list(sessions)}

    return change


def repeat_first(key: str) -> Change:
    """Return a change that appends the first entry of a list once more."""

    def change(row: dict[str, Any]) -> None:
        row[key].append(row[key][0])

    return change


def remove_all_sessions_of_msc(row: dict[str, Any]) -> None:
    row["dialog"] = []
    row["previous_dialogs"] = []


def add_query_without_references(row: dict[str, Any]) -> None:
    row["queries"].append({"query": "What?"})


def reverse_sessions(row: dict[str, Any]) -> None:
    row["sessions"].reverse()


def add_log_after_its_dialogue(users: dict[str, Any]) -> None:
    late_log = {"timestamp": "2024-03-20 20:01", "content": "later"}
    users["u1"]["query"][0]["logs"].append(late_log)


BROKEN_FILES: list[tuple[str, Change, str]] = [
    (
        "implexconv",
        put("conversation", value=["nobody"]),
        "item 0: holds no session with words",
    ),
    (
        "jsonl",
        remove("question"),
        "line 1, field 'question': is missing",
    ),
    (
        "jsonl",
        put("history", value={"items": [SESSION]}),
        "line 1, field 'history': give one of",
    ),
    (
        "jsonl",
        put("messages", value=["hi"]),
        "line 1, field 'messages': message 1 of session 1 has no role",
    ),
    (
        "jsonl",
        history_instead_of_messages({}),
        "field 'history': items.0",
    ),
    (
        "jsonl",
        history_instead_of_messages(SESSION, SESSION),
        "uses a turn id twice",
    ),
    (
        "locomo",
        remove(*LOCOMO_QUESTION, "answer"),
        "conv-1:0, field 'answer': is missing",
    ),
    (
        "locomo",
        put(*LOCOMO_QUESTION, "category", value=6),
        "conv-1:0, field 'category': is '6', expected '1', '2', '3', '4' or '5'",
    ),
    (
        "locomo",
        put("conversation", "session_2_date_time", value="8 May 2023"),
        "'8 May 2023' is not like '1:56 pm on 8 May",
    ),
    (
        "locomo",
        put("conversation", "session_2", value="hello"),
        "conv-1, field 'session_2': is 'hello', expected a list of",
    ),
    (
        "locomo",
        put("conversation", "session_2", 1, "dia_id", value="D2:1"),
        "turn 2: dia_id 'D2:1' is used twice",
    ),
    (
        "locomo",
        put("conversation", value={}),
        "conv-1: holds no turns in any session_N list",
    ),
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
    (
        "membench",
        remove(*MEMBENCH_QUESTION),
        "simple.json, simple, roles, trajectory 1, field 'QA': is missing",
    ),
    (
        "membench",
        remove(*MEMBENCH_QUESTION, "choices", "D"),
        "['Judge', 'Poet']}, expected Dictionary should have at least 4 items",
    ),
    (
        "membench",
        put(*MEMBENCH_QUESTION, "ground_truth", value="E"),
        "QA.ground_truth': is 'E', expected 'A', 'B', 'C' or 'D'",
    ),
    (
        "membench",
        put(*MEMBENCH_QUESTION, "question", value="[ERRORQ]"),
        "holds [ERROR...]: the question could not be made",
    ),
    (
        "membench",
        put(*MEMBENCH_MESSAGES, 1, 0, "time", value=[]),
        "field 'message_list.1.0.time': is [], expected a valid string",
    ),
    (
        "membench",
        put(*MEMBENCH_MESSAGES, value=[[], [{}]]),
        "trajectory 1: holds no message with words",
    ),
    (
        "memoryquest",
        put("sessions", value=[]),
        "user1: no session has a turn with words",
    ),
    (
        "msc",
        remove_all_sessions_of_msc,
        "line 1: no session has a turn with words",
    ),
    (
        "omnibehavior",
        put(*OMNIBEHAVIOR_VIDEO, "timestamp", value="noon"),
        "record 1, field 'timestamp': 'noon' is not like",
    ),
    (
        "omnibehavior",
        put("u1", "action_history", value=[]),
        "holds no examples",
    ),
    (
        "palbench.restate",
        put("u1", value={"history": [], "query": []}),
        "holds no examples",
    ),
    (
        "palbench.restate",
        put(*PALBENCH_TOPIC, value={}),
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
    (
        "personamem",
        put("shared_context_id", value="c2"),
        "'c2' is not in the file of contexts",
    ),
    (
        "personamem",
        remove("correct_answer"),
        "has no column 'correct_answer'; its columns are persona_id, question_id,",
    ),
    (
        "personamem-v2",
        put("incorrect_answers", value="none"),
        "is 'none', expected a valid list",
    ),
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
"""Benchmark, change of the first row, and a part of the error."""


@pytest.mark.parametrize(("name", "change", "problem"), BROKEN_FILES)
def test_a_broken_file_is_refused_and_a_check_says_the_same(
    tmp_path: Path, name: str, change: Change, problem: str
) -> None:
    """In a file of LoCoMo, for example, the first question has no answer.

    The error is then "conv-1:0, field 'answer': is missing". Loading stops there. A check goes on,
    and reports all problems.
    """
    path = write_files(tmp_path, changed_files(name, change))

    with pytest.raises(DataError) as refusal:
        benchmark(name, path)
    report = check(name, path)

    error = str(refusal.value)
    assert problem in error
    assert not report.ok
    first_fatal = next(finding for finding in report.findings if finding.fatal)
    # A file without questions is refused in other words.
    if first_fatal.kind != "no questions":
        assert first_fatal.message in error


ODD_FILES: list[tuple[str, Change, str]] = [
    ("implexconv", put("conversation", 0, value="nobody"), "empty session"),
    (
        "implexconv",
        put("qa", 0, "retrieved_conv", value="words of another conversation"),
        "dangling evidence",
    ),
    ("implexconv", remove("qa", 0, "retrieved_conv"), "empty evidence"),
    ("membench", put(*MEMBENCH_MESSAGES, 0, 0, value={}), "empty message"),
    (
        "membench",
        put(*MEMBENCH_QUESTION, "target_step_id", value=[[1, 0], [1, 1], 7]),
        "dangling evidence",
    ),
    ("membench", put(*MEMBENCH_QUESTION, "answer", value="A vet"), "other answer"),
    ("membench", put(*MEMBENCH_QUESTION, "target_step_id", value=[[0, 1]]), "step convention"),
    ("memoryquest", add_query_without_references, "no references"),
    ("memoryquest", repeat_first("queries"), "repeated query"),
    ("memoryquest", put("queries", 0, "references", 0, "turns", value=[9]), "dangling evidence"),
    ("memoryquest", put("sessions", 2, "turns", value=[]), "empty session"),
    ("memoryquest", reverse_sessions, "sessions out of order"),
    ("jsonl", put("evidence", value=["D9:9"]), "dangling evidence"),
    ("jsonl", put("evidnce", value=["D1:1"]), "unknown column"),
    (
        "locomo",
        put("conversation", "session_11_date_time", value="1:56 pm on 8 May, 2023"),
        "date without session",
    ),
    ("locomo", remove("conversation", "session_2_date_time"), "session without date"),
    ("locomo", put("conversation", "session_3", value=[]), "empty session"),
    ("locomo", remove(*LOCOMO_QUESTION, "evidence"), "empty evidence"),
    ("locomo", put(*LOCOMO_QUESTION, "evidence", value=["D2:1", "D2:9"]), "dangling evidence"),
    ("locomo", put(*LOCOMO_QUESTION, "evidence", value=["D2:01"]), "malformed evidence"),
    ("locomo", repeat_first("qa"), "duplicate question"),
    ("locomo", put(*LOCOMO_QUESTION, "category", value=5), "adversarial answer"),
    ("longmemeval", put("haystack_sessions", 0, value=[]), "empty session"),
    ("longmemeval", put("haystack_dates", 0, value="?"), "malformed date"),
    ("longmemeval", put("question_date", value="soon"), "malformed date"),
    (
        "longmemeval",
        put("answer_session_ids", value=["answer_a", "answer_z"]),
        "dangling evidence",
    ),
    ("msc", put("previous_dialogs", 0, "time_back", value=""), "no time_back"),
    ("msc", put("previous_dialogs", 0, "time_back", value="1 day"), "times out of order"),
    ("omnibehavior", put(*OMNIBEHAVIOR_VIDEO, "type", value="Walking"), "unknown scene"),
    ("palbench.restate", add_log_after_its_dialogue, "log after its dialogue"),
    ("palbench.restate", put(*PALBENCH_QUERY, "topics", value={}), "no topics"),
    (
        "palbench.restate",
        put(*PALBENCH_QUERY, "dialogue_timestamp", value="soon"),
        "unreadable date",
    ),
    (
        "palbench.restate",
        put(*PALBENCH_QUERY, "dialogue_timestamp", value="2024-01-01 00:00:00"),
        "samples out of order",
    ),
    ("palbench.restate", remove(*PALBENCH_TOPIC, "implicit_needs", 1), "number of needs"),
    ("palbench.restate", remove(*PALBENCH_TOPIC, "candidate_solutions", 1), "number of candidates"),
    ("personamem", put("end_index_in_shared_context", value="99"), "end past the context"),
    ("personamem", put("question_type", value="telepathy"), "unknown skill"),
]
"""Benchmark, change of the first row, and the kind of the finding."""


@pytest.mark.parametrize(("name", "change", "kind"), ODD_FILES)
def test_odd_values_are_read_and_reported(
    tmp_path: Path, name: str, change: Change, kind: str
) -> None:
    """In a file of LoCoMo, for example, a question rests on the turn D2:9, which is not there.

    The question is read all the same, and a check reports "dangling evidence".
    """
    path = write_files(tmp_path, changed_files(name, change))

    assert benchmark(name, path).examples

    report = check(name, path)
    assert report.ok
    assert kind in report.kinds


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("longmemeval", unchanged, "entry 2: 'q1' is the id of two questions"),
        ("jsonl", put("id", value="a"), "line 2, field 'id': 'a' is already the id of line 1"),
        ("personamem", unchanged, "line 3, field 'question_id': 'q1' is used twice"),
        ("locomo", unchanged, "conversation 2: sample_id 'conv-1' is used twice"),
    ],
)
def test_an_id_that_is_used_twice_is_refused(
    tmp_path: Path, name: str, change: Change, problem: str
) -> None:
    """The first row of the example file comes a second time."""
    files = changed_files(name, change)
    files[main_file(files)].append(first_row(files))

    with pytest.raises(DataError, match=problem):
        benchmark(name, write_files(tmp_path, files))


def test_a_repeated_conversation_of_msc_is_one_group_with_two_questions(tmp_path: Path) -> None:
    """Questions of a group are never divided between training and test."""
    [row] = EXAMPLE_FILES["msc"]["msc.jsonl"]
    path = write_files(tmp_path, {"msc.jsonl": [row, row]})

    loaded = benchmark("msc", path)

    assert [example.id for example in loaded.examples] == ["valid_7", "valid_7:2"]
    assert {loaded.group(example) for example in loaded.examples} == {"valid_7"}
    assert check("msc", path).kinds == {"repeated conversation": 1}


def replace_main_file(folder: Path, name: str, content: bytes) -> Path:
    """Write the example files of a benchmark, with other bytes in the file to load."""
    files = EXAMPLE_FILES[name]
    return write_files(folder, {**files, main_file(files): content})


@pytest.mark.parametrize("name", EXAMPLE_FILES)
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \n", id="blank"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"\x1f\x8b\x08", id="the beginning of a gzip file"),
        pytest.param(b'{"data": 1}', id="another object"),
        pytest.param(b"[1]", id="a list of numbers"),
        pytest.param(b"[NaN]", id="not a number"),
        pytest.param(b"[" * 100_000, id="nested too deeply"),
        pytest.param(b'["\\ud800"]', id="half of a surrogate pair"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    """Every benchmark refuses such a file, and a check calls it unusable."""
    path = replace_main_file(tmp_path, name, content)

    with pytest.raises(DataError):
        benchmark(name, path)

    assert not check(name, path).ok


@pytest.mark.parametrize("name", EXAMPLE_FILES)
def test_half_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    """The example file of each benchmark is cut in the middle, as by a broken download."""
    files = EXAMPLE_FILES[name]
    content = encode_file(main_file(files), files[main_file(files)])
    path = replace_main_file(tmp_path, name, content[: len(content) // 2])

    with pytest.raises(DataError):
        benchmark(name, path)

    assert not check(name, path).ok


@contextmanager
def silent_pipe(path: Path, seconds: float) -> Iterator[None]:
    """Put a pipe in the place of a file. It ends after some seconds, so that no reader can hang."""
    path.unlink()
    os.mkfifo(path)
    writer = path.open("r+b", buffering=0)
    timer = threading.Timer(seconds, writer.close)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        writer.close()


@pytest.mark.parametrize("name", EXAMPLE_FILES)
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """A program that reads a pipe waits until another program writes into it."""
    path = write_files(tmp_path, EXAMPLE_FILES[name])
    pipe = tmp_path / main_file(EXAMPLE_FILES[name])

    with silent_pipe(pipe, seconds=20):
        started = time.monotonic()
        with pytest.raises(DataError):
            benchmark(name, path)
        assert time.monotonic() - started < 20


def test_a_line_without_an_end_is_refused_and_a_check_says_the_same(tmp_path: Path) -> None:
    """The first line of a compressed file is right. The second one would fill the memory."""
    row = json.dumps(EXAMPLE_FILES["jsonl"]["own.jsonl"][0])
    first_line = gzip.compress(f"{row}\n".encode())
    second_line = gzip.compress(b"x" * (MAX_LINE_LENGTH + 1), compresslevel=1)
    path = tmp_path / "own.jsonl.gz"
    path.write_bytes(first_line + second_line)

    problem = f"line 2 has more than {MAX_LINE_LENGTH:,} characters"
    with pytest.raises(DataError, match=rf"own\.jsonl\.gz: {problem}"):
        benchmark("jsonl", path)

    last_finding = check("jsonl", path).findings[-1]
    assert last_finding.message.startswith(problem)


OTHER_VALUES = (
    None,
    True,
    -1,
    3.5,
    10**17,
    [],
    [None],
    {},
    {"content": {}},
    "",
    "9" * 400,
    "a\x00b",
    "line\nbreak",
    "\u2028",
    "../../etc/passwd",
    "x" * 100_000,
    "2024-02-30",
    "[" * 500,
    "0001-01-01T00:00:00+14:00",
)


def key_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of keys to everything inside a value, and of lists only to the first entry."""
    parts: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value[:1]))

    for key, part in parts:
        yield (*path, key)
        yield from key_paths(part, (*path, key))


def is_readable(name: str, path: Path) -> bool:
    """Return whether a benchmark loads; any other error than a DataError is a bug."""
    try:
        benchmark(name, path)
    except DataError:
        return False
    return True


@pytest.mark.parametrize("name", EXAMPLE_FILES)
def test_any_other_value_in_a_row_is_read_or_refused_and_a_check_never_raises(
    tmp_path: Path, name: str
) -> None:
    """Each field of the example is replaced by three odd values of a list, such as -1 or "\\u2028".

    Any error other than a `DataError` fails the test.
    """
    other_values = itertools.cycle(OTHER_VALUES)

    was_readable: set[bool] = set()
    for keys in key_paths(first_row(EXAMPLE_FILES[name])):
        for other_value in itertools.islice(other_values, 3):
            change = put(*keys, value=other_value)
            path = write_files(tmp_path, changed_files(name, change))

            was_readable.add(is_readable(name, path))
            report = check(name, path)
            # A report must fit into JSON whatever value it quotes.
            json.dumps(report.model_dump())

    # Some values could be read, and some were refused.
    assert was_readable == {True, False}


def test_a_line_that_is_cut_short_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    """Only the first 40 characters of the second line are there."""
    row = EXAMPLE_FILES["jsonl"]["own.jsonl"][0]
    half_a_line = json.dumps(row)[:40]
    path = write_files(tmp_path, {"own.jsonl": [row, half_a_line, row]})

    problem = r"line 2, column 41: not valid JSON .*; is the line cut short"
    with pytest.raises(DataError, match=problem):
        benchmark("jsonl", path)

    assert check("jsonl", path).counts["questions"] == 2
