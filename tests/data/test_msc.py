"""MSC-Self-Instruct: its form, dates counted back, what a broken row is told, its metric, and our sample."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.data.check import check
from mempiler.data.msc.benchmark import Msc
from mempiler.data.msc.reader import CURRENT, time_back
from mempiler.errors import DataError


def earlier(*texts: Any, back: Any = "2 days 3 hours ago") -> dict[str, Any]:
    return {"personas": [["I fish."], []], "dialog": [{"text": text} for text in texts], "time_back": back}


ROW: dict[str, Any] = {
    "personas": [["I fish."], ["I sing."]],
    "previous_dialogs": [earlier("Hi!", "Hello, I sing.", back="5 days ago"), earlier("I fish.", "Trout?")],
    "dialog": [{"id": "Speaker 1", "text": "Trout!", "convai2_id": ""}, {"id": "Speaker 2", "text": "Tasty."}],
    "metadata": {"initial_data_id": "valid_7", "session_id": 4},
    "self_instruct": {"B": "What do you fish for?", "A": "Trout!"},
    "summary_speaker_1": ["I fish."],
}


def changed(**columns: Any) -> dict[str, Any]:
    return {key: value for key, value in {**ROW, **columns}.items() if value is not ...}


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "msc.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def load(folder: Path, *rows: Any, **options: Any) -> Msc:
    return Msc.load(written(folder, *rows), **options)


def score(benchmark: Benchmark, answer: str) -> Any:
    return benchmark.score(benchmark.examples[0], dspy.Prediction(answer=answer))


def test_a_full_row(tmp_path: Path) -> None:
    (example,) = load(tmp_path, ROW).examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert (example.id, example.question, example.answer) == ("valid_7", "What do you fish for?", "Trout!")
    assert (example.category, example.focus, example.evidence) == ("all", (), ())
    lines = [turn.line() for item in example.history for turn in item.turns]
    assert lines == [
        "[D1:1] Speaker 1: Hi!",
        "[D1:2] Speaker 2: Hello, I sing.",
        "[D2:1] Speaker 1: I fish.",
        "[D2:2] Speaker 2: Trout?",
        "[D3:1] Speaker 1: Trout!",
        "[D3:2] Speaker 2: Tasty.",
    ]


def test_sessions_are_dated_back_from_the_current_one(tmp_path: Path) -> None:
    (example,) = load(tmp_path, ROW).examples
    times = [item.time for item in example.history]
    assert times == [CURRENT - timedelta(days=5), CURRENT - timedelta(days=2, hours=3), CURRENT]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("14 days 8 hours ago", timedelta(days=14, hours=8)),
        ("1 day ago", timedelta(days=1)),
        ("7 HOURS", timedelta(hours=7)),
        ("2 weeks 30 minutes", timedelta(days=14, minutes=30)),
        ("3 years", timedelta(days=1095)),
        ("101 years", None),
        ("99999999999 days", None),
    ],
)
def test_time_back(text: str, span: timedelta | None) -> None:
    assert time_back(text) == span


ODD = [
    (changed(previous_dialogs=[earlier("Hi!", back="")]), "no time_back", [None, CURRENT]),
    (
        changed(previous_dialogs=[earlier("Hi!", back="1 day"), earlier("Ho!", back="2 days")]),
        "times out of order",
        [None, None, CURRENT],
    ),
    (
        changed(previous_dialogs=[earlier("Hi!", "", "Bye.", back="1 day")]),
        "empty turn",
        [CURRENT - timedelta(days=1), CURRENT],
    ),
    (changed(dialog=...), "no current dialogue", [CURRENT - timedelta(days=5), CURRENT - timedelta(days=2, hours=3)]),
    (
        changed(self_instruct={"B": "How many?", "A": 3}),
        "number as text",
        [CURRENT - timedelta(days=5), CURRENT - timedelta(days=2, hours=3), CURRENT],
    ),
]


@pytest.mark.parametrize(("row", "kind", "times"), ODD)
def test_an_odd_row_is_read_and_reported(tmp_path: Path, row: Any, kind: str, times: list[datetime | None]) -> None:
    path = written(tmp_path, row)
    (example,) = Msc.load(path).examples
    assert [item.time for item in example.history] == times
    report = check("msc", path)
    assert report.ok
    assert report.kinds == {kind: 1}


def test_a_speaker_keeps_the_place_after_an_empty_turn(tmp_path: Path) -> None:
    (example,) = load(tmp_path, changed(previous_dialogs=[earlier("Hi!", None, "Bye.")], dialog=[])).examples
    assert [(turn.id, turn.speaker) for turn in example.history.items[0].turns] == [
        ("D1:1", "Speaker 1"),
        ("D1:3", "Speaker 1"),
    ]


def test_a_repeated_conversation_is_one_group_with_two_questions(tmp_path: Path) -> None:
    path = written(tmp_path, ROW, changed(self_instruct={"B": "Who sings?", "A": "You"}))
    loaded = Msc.load(path)
    assert [example.id for example in loaded.examples] == ["valid_7", "valid_7:2"]
    assert {loaded.group(example) for example in loaded.examples} == {"valid_7"}
    assert check("msc", path).kinds == {"repeated conversation": 1}


BROKEN = [
    (changed(self_instruct=...), "missing key", "line 2, column 'self_instruct': expected an object with 'B' and 'A'"),
    (changed(self_instruct={"A": "x"}), "missing key", "line 2, column 'self_instruct': 'B' is None"),
    (changed(self_instruct={"B": "x", "A": " "}), "wrong type", "line 2, column 'self_instruct': 'A' is ' '"),
    (changed(previous_dialogs=...), "missing key", "line 2, column 'previous_dialogs': expected a list of objects"),
    (changed(previous_dialogs=[{}]), "missing key", "line 2, column 'previous_dialogs, session 1': expected a list"),
    (changed(dialog="Hi!"), "wrong type", "line 2, column 'dialog': expected a list of turns"),
    (changed(dialog=[], previous_dialogs=[]), "no turns", "line 2, column 'previous_dialogs': no session has a turn"),
    (json.dumps(ROW)[:60], "broken line", "line 2, column"),
    ("[1, 2]", "wrong type", "line 2, column 1: expected an object, got [1, 2]"),
]


@pytest.mark.parametrize(("row", "kind", "message"), BROKEN)
def test_a_broken_row_is_refused_by_line_and_reported(tmp_path: Path, row: Any, kind: str, message: str) -> None:
    path = written(tmp_path, ROW, row, changed(metadata={}))
    with pytest.raises(DataError) as refusal:
        Msc.load(path)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    report = check("msc", path)
    assert [finding.kind for finding in report.rows if finding.fatal] == [kind]
    assert report.counts["questions"] == 2
