"""Your own questions: the forms a line may have, shared histories, and what a broken line is told."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.check import check
from mempiler.data.jsonl.benchmark import JsonlBenchmark
from mempiler.errors import DataError

MESSAGES = [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Noted."}]
ROW: dict[str, Any] = {"messages": MESSAGES, "question": "What does the user like?", "answer": "tea"}
OWN = {"items": [{"id": "D1", "turns": [{"id": "D1:1", "speaker": "user", "text": "I like tea."}]}]}


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def load(folder: Path, *rows: Any, **options: Any) -> JsonlBenchmark:
    return JsonlBenchmark.load(written(folder, *rows), **options)


def changed(**columns: Any) -> dict[str, Any]:
    return {key: value for key, value in {**ROW, **columns}.items() if value is not ...}


@pytest.mark.parametrize(
    ("columns", "turns"),
    [
        ({}, ["D1:1", "D1:2"]),
        ({"messages": [MESSAGES, MESSAGES]}, ["D1:1", "D1:2", "D2:1", "D2:2"]),
        ({"messages": ..., "history": OWN}, ["D1:1"]),
        ({"messages": ..., "history": MESSAGES}, ["D1:1", "D1:2"]),
    ],
)
def test_forms_of_the_past(tmp_path: Path, columns: dict[str, Any], turns: list[str]) -> None:
    assert list(load(tmp_path, changed(**columns)).examples[0].history.turns) == turns


def test_a_full_row(tmp_path: Path) -> None:
    row = changed(evidence=["D1:1"], category="taste", id=7, user="ada", answer=3)
    (example,) = load(tmp_path, row).examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert (example.id, example.category, example.answer) == ("7", "taste", "3")
    assert (example.history.id, example.focus, example.evidence) == ("ada", ("D1:1",), ("D1:1",))


def test_a_bare_row_is_named_by_its_past_and_line(tmp_path: Path) -> None:
    example = load(tmp_path, "", ROW).examples[0]
    assert example.id == f"{example.history.digest[:12]}:2"
    assert (example.category, example.focus) == ("all", ())


def test_equal_pasts_are_one_history_whatever_their_form(tmp_path: Path) -> None:
    one_turn = changed(messages=MESSAGES[:1])
    examples = load(tmp_path, one_turn, changed(messages=..., history=OWN), ROW).examples
    assert examples[0].history is examples[1].history
    assert examples[0].history is not examples[2].history


def test_pasts_of_one_user_are_one_conversation(tmp_path: Path) -> None:
    benchmark = load(tmp_path, changed(user="ada"), changed(user="ada", messages=MESSAGES[:1]), changed(user="bo"))
    assert [benchmark.group(example) for example in benchmark.examples] == ["ada", "ada", "bo"]


def test_line_separators_inside_a_text_do_not_cut_the_line(tmp_path: Path) -> None:
    row = json.dumps(changed(answer="tea\u2028milk"), ensure_ascii=False)
    assert load(tmp_path, row).examples[0].answer == "tea\u2028milk"


@pytest.mark.parametrize(
    ("metric", "answer", "value"),
    [("f1", "green tea", 2 / 3), ("exact", "green tea", 0), ("f1", "The tea.", 1), ("exact", "The tea.", 1)],
)
def test_metrics(tmp_path: Path, metric: str, answer: str, value: float) -> None:
    benchmark = load(tmp_path, ROW, metric=metric)
    score = benchmark.score(benchmark.examples[0], dspy.Prediction(answer=answer))
    assert score.value == pytest.approx(value)
    assert score.parts[metric] == score.value
    assert set(score.parts) == {"f1", "exact"}


def test_feedback_names_gold_and_evidence(tmp_path: Path) -> None:
    benchmark = load(tmp_path, changed(evidence=["D1:1"]))
    feedback = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="coffee")).feedback
    assert feedback == "Wrong: the gold answer is 'tea'. It rests on turn D1:1."


BROKEN = [
    (changed(question=...), "missing column", "line 2, column 'question': is missing"),
    (changed(answer=""), "missing column", "line 2, column 'answer': is missing or empty"),
    (changed(messages=...), "missing column", "line 2, column 'history': is missing; give either"),
    (changed(history=OWN), "two histories", "line 2, column 'history'"),
    (changed(question=["What?"]), "wrong type", "line 2, column 'question': ['What?'] is no text"),
    (changed(evidence="D1:1"), "wrong type", "line 2, column 'evidence': 'D1:1' is no list"),
    (changed(messages="I like tea."), "wrong type", "line 2, column 'messages': 'I like tea.' is no list"),
    (changed(messages=[]), "malformed history", "line 2, column 'messages': holds no turns"),
    (changed(messages=["hi"]), "malformed history", "line 2, column 'messages': message 1 of session 1 has no role"),
    (changed(messages=..., history={"items": [{}]}), "malformed history", "line 2, column 'history': items.0"),
    (
        changed(messages=..., history={"items": [OWN["items"][0], OWN["items"][0]]}),
        "malformed history",
        "line 2, column 'history': uses a turn id twice",
    ),
    (changed(id="first"), "duplicate id", "line 2, column 'id': 'first' is already the id of line 1"),
    (json.dumps(ROW)[:40], "broken line", "line 2, column 41: not valid JSON"),
    ("[1, 2]", "wrong type", "line 2, column 1: expected an object, got [1, 2]"),
]


@pytest.mark.parametrize(("row", "kind", "message"), BROKEN)
def test_a_broken_line_is_refused_by_number_and_column_and_reported(
    tmp_path: Path, row: Any, kind: str, message: str
) -> None:
    path = written(tmp_path, changed(id="first"), row, changed(id="third"))
    with pytest.raises(DataError) as refusal:
        JsonlBenchmark.load(path)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    report = check("jsonl", path)
    assert [finding.kind for finding in report.rows if finding.fatal] == [kind]
    assert report.counts["questions"] == 2


@pytest.mark.parametrize(
    ("columns", "kind"), [({"evidence": ["D9:9"]}, "dangling evidence"), ({"evidnce": ["D1:1"]}, "unknown column")]
)
def test_an_odd_line_is_read_and_reported(tmp_path: Path, columns: dict[str, Any], kind: str) -> None:
    path = written(tmp_path, changed(**columns))
    assert JsonlBenchmark.load(path).examples[0].focus == ()
    report = check("jsonl", path)
    assert report.ok
    assert list(report.kinds) == [kind]


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"\n \n", "is empty"), (b"\xff\xfe", "UTF-8")])
def test_an_unreadable_file_is_refused_and_reported(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        JsonlBenchmark.load(path)
    assert [finding.kind for finding in check("jsonl", path).rows] == ["unreadable file"]


def test_counts_of_a_check(tmp_path: Path) -> None:
    report = check("jsonl", written(tmp_path, changed(category="taste"), changed(user="bo")))
    expected = {"conversations": 2, "sessions": 2, "turns": 4, "image turns": 0, "questions": 2}
    assert report.counts == {**expected, "category all": 1, "category taste": 1}
