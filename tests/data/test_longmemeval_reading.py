"""LongMemEval: its form with all that is odd about it, options, and our sample."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.data.check import check
from mempiler.data.longmemeval.benchmark import LongMemEval
from mempiler.data.longmemeval.reader import parse_date
from mempiler.errors import DataError


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


ROW: dict[str, Any] = {
    "question_id": "q1",
    "question_type": "multi-session",
    "question": "How many plants did I buy?",
    "answer": 3,
    "question_date": "2023/04/10 (Mon) 23:07",
    "haystack_dates": ["2023/03/05 (Sun) 10:00", "2023/03/01 (Wed) 09:30", "2023/03/02 (Thu) 08:00"],
    "haystack_session_ids": ["answer_b", "sharegpt_x", "answer_a"],
    "haystack_sessions": [
        [turn("user", "I bought a fern.", has_answer=True), turn("assistant", "Nice.", has_answer=False)],
        [turn("assistant", "Hello!"), turn("user", "Hi.")],
        [turn("user", "Two palms came home with me.", has_answer=True)],
    ],
    "answer_session_ids": ["answer_a", "answer_b"],
}


def changed(**columns: Any) -> dict[str, Any]:
    return {key: value for key, value in {**ROW, **columns}.items() if value is not ...}


def written(folder: Path, *rows: Any, name: str = "longmemeval_oracle.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def load(folder: Path, *rows: Any, **options: Any) -> LongMemEval:
    return LongMemEval.load(written(folder, *rows), **options)


def test_a_full_row(tmp_path: Path) -> None:
    (example,) = load(tmp_path, ROW).examples
    assert set(example.inputs().keys()) == {"history", "question", "date", "focus"}
    assert (example.id, example.answer, example.category) == ("q1", "3", "multi-session")
    assert (example.date, example.abstention) == ("10 April 2023, Monday 23:07", False)
    assert [turn.line() for item in example.history for turn in item.turns] == [
        "[D1:1] assistant: Hello!",
        "[D1:2] user: Hi.",
        "[D2:1] user: Two palms came home with me.",
        "[D3:1] user: I bought a fern.",
        "[D3:2] assistant: Nice.",
    ]
    assert (example.focus, example.answer_sessions) == (("D2:1", "D3:1"), ("D2", "D3"))


def test_nothing_that_is_shown_tells_where_the_evidence_is(tmp_path: Path) -> None:
    (example,) = load(tmp_path, ROW).examples
    assert "answer_" not in example.history.model_dump_json()


def test_an_unanswerable_question_names_no_evidence(tmp_path: Path) -> None:
    (example,) = load(tmp_path, changed(question_id="q1_abs", answer="You said nothing of cars.")).examples
    assert (example.abstention, example.focus, example.evidence) == (True, (), ())


def test_without_marks_all_turns_of_the_evidence_sessions_count(tmp_path: Path) -> None:
    sessions = [[turn("user", "A fern."), turn("assistant", "Nice.")], [turn("user", "Hi.")], [turn("user", "Palms.")]]
    (example,) = load(tmp_path, changed(haystack_sessions=sessions)).examples
    assert example.focus == ("D2:1", "D3:1", "D3:2")


@pytest.mark.parametrize(
    ("columns", "kind", "focus"),
    [
        ({"haystack_sessions": [[], *ROW["haystack_sessions"][1:]]}, "empty session", ("D2:1",)),
        ({"haystack_sessions": [[turn("user", None)], *ROW["haystack_sessions"][1:]]}, "empty turn", ("D2:1",)),
        ({"haystack_dates": ["?", *ROW["haystack_dates"][1:]]}, "malformed date", ("D3:1", "D1:1")),
        ({"question_date": "soon"}, "malformed date", ("D2:1", "D3:1")),
        ({"answer_session_ids": ["answer_a", "answer_z"]}, "dangling evidence", ("D2:1",)),
        ({"answer_session_ids": []}, "empty evidence", ()),
    ],
)
def test_an_odd_row_is_read_and_reported(tmp_path: Path, columns: Any, kind: str, focus: tuple[str, ...]) -> None:
    path = written(tmp_path, changed(answer="three", **columns))
    (example,) = LongMemEval.load(path).examples
    assert set(example.focus) == set(focus)
    report = check("longmemeval", path)
    assert report.ok
    assert kind in report.kinds


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("text", "entry 2: expected an object with a text 'question_id'"),
        (changed(question=" "), "q1: expected an object with a text 'question'"),
        (changed(question_type="riddle"), "question_type 'riddle' is none of"),
        (changed(answer=None), "q1: answer is None"),
        (changed(haystack_dates=[]), "three lists of one length"),
        (changed(haystack_sessions=[["x"], [], []]), "session answer_b is no list of turns"),
        (changed(haystack_sessions=[[], [], []]), "no session with words"),
        (ROW, "is the id of two questions"),
    ],
)
def test_a_broken_row_is_refused_by_name_and_reported(tmp_path: Path, row: Any, message: str) -> None:
    path = written(tmp_path, ROW, row, changed(question_id="q3"))
    with pytest.raises(DataError) as error:
        LongMemEval.load(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    report = check("longmemeval", path)
    assert (report.ok, report.counts["questions"]) == (False, 2)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2023/04/10 (Mon) 23:07", "2023-04-10 23:07"),
        ("2023/04/10 23:07", "2023-04-10 23:07"),
        ("10.4.2023", None),
    ],
)
def test_dates(text: Any, found: str | None) -> None:
    date = parse_date(text)
    assert (date and f"{date:%Y-%m-%d %H:%M}") == found


@pytest.mark.parametrize("name", ["longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_s"])
def test_a_folder_holds_a_size_under_any_of_its_names(tmp_path: Path, name: str) -> None:
    written(tmp_path, ROW, name=name)
    assert LongMemEval.load(tmp_path).source.path.endswith(name)
    assert LongMemEval.load(tmp_path, size="s").examples[0].id == "q1"
    with pytest.raises(DataError, match="holds no longmemeval_m_cleaned"):
        LongMemEval.load(tmp_path, size="m")


def test_a_folder_with_several_sizes_wants_one(tmp_path: Path) -> None:
    written(tmp_path, ROW)
    written(tmp_path, changed(question_id="q9"), name="longmemeval_m")
    with pytest.raises(DataError, match="holds oracle, m; choose one"):
        LongMemEval.load(tmp_path)
    assert LongMemEval.load(tmp_path, size="m").examples[0].id == "q9"


def test_types_and_limit_choose_and_end_the_reading(tmp_path: Path) -> None:
    kinds = ["multi-session", "temporal-reasoning", "multi-session", "temporal-reasoning", "knowledge-update"]
    rows = [changed(question_id=f"q{n}", question_type=kind) for n, kind in enumerate(kinds)]
    path = written(tmp_path, *rows, "broken")
    chosen = LongMemEval.load(path, categories="temporal-reasoning, multi-session", limit=1)
    assert [example.id for example in chosen.examples] == ["q0", "q1"]
    with pytest.raises(DataError, match="entry 6"):
        LongMemEval.load(path, limit=1)
