"""Every oddity of LoCoMo's file: what the reader makes of it, and that the check and the reader agree."""

import copy
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.data.check import check
from mempiler.data.locomo.benchmark import Locomo
from mempiler.data.locomo.reader import NOT_MENTIONED, evidence_ids, parse_date
from mempiler.errors import DataError

PLAIN: list[Any] = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bo",
            "session_10_date_time": "12:05 am on 9 June, 2023",
            "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "It is June."}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a cat", "img_url": ["x"]},
                {"speaker": "Bo", "dia_id": "D2:2", "text": "Nice."},
            ],
        },
        "qa": [{"question": "Who?", "answer": "Ann", "evidence": ["D2:1"], "category": 4}],
        "event_summary": {},
    }
]
steady = settings(derandomize=True)
MONTHS = "January February March April May June July August September October November December"
Change = Callable[[list[Any]], Any]


def talk(file: list[Any]) -> dict[str, Any]:
    return file[0]["conversation"]


def row(file: list[Any]) -> dict[str, Any]:
    return file[0]["qa"][0]


def written(folder: Path, change: Change = lambda file: None) -> Path:
    file = copy.deepcopy(PLAIN)
    change(file)
    path = folder / "locomo.json"
    path.write_text(json.dumps(file))
    return path


def test_an_example_holds_its_inputs_and_labels(tmp_path: Path) -> None:
    (example,) = Locomo.load(written(tmp_path)).examples
    assert set(example.inputs().keys()) == {"history", "question", "focus"}
    assert example.labels().toDict() == {
        "id": "conv-1:0",
        "answer": "Ann",
        "category": "4",
        "evidence": ("D2:1",),
    }
    assert example.focus == ("D2:1",)


def test_sessions_are_in_the_order_of_their_numbers_with_their_dates(tmp_path: Path) -> None:
    history = Locomo.load(written(tmp_path)).examples[0].history
    times = [(session.id, session.time) for session in history.items]
    assert times == [("D2", datetime(2023, 5, 8, 13, 56)), ("D10", datetime(2023, 6, 9, 0, 5))]


def test_all_examples_of_a_conversation_share_its_history(tmp_path: Path) -> None:
    examples = Locomo.load(written(tmp_path, lambda file: file[0]["qa"].append(row(file)))).examples
    assert examples[0].history is examples[1].history


# change, kind of the finding, where, the example's field and value that the reader makes of it
ODD: list[tuple[Change, str, str, str, Any]] = [
    (
        lambda file: talk(file).update(session_11_date_time="1:56 pm on 8 May, 2023"),
        "date without session",
        "conv-1 session_11_date_time",
        "answer",
        "Ann",
    ),
    (lambda file: row(file).update(answer=2022), "number as answer", "conv-1:0", "answer", "2022"),
    (lambda file: row(file).update(evidence=[]), "empty evidence", "conv-1:0", "focus", ()),
    (lambda file: row(file).pop("evidence"), "empty evidence", "conv-1:0", "focus", ()),
    (lambda file: row(file).update(evidence=["D"]), "malformed evidence", "conv-1:0", "focus", ()),
    (lambda file: row(file).update(evidence=["D2:01"]), "malformed evidence", "conv-1:0", "focus", ("D2:1",)),
    (lambda file: row(file).update(evidence=["D:10:1"]), "malformed evidence", "conv-1:0", "focus", ("D10:1",)),
    (
        lambda file: row(file).update(evidence=["D2:2; D10:1 D2:1"]),
        "malformed evidence",
        "conv-1:0",
        "focus",
        ("D2:2", "D10:1", "D2:1"),
    ),
    (lambda file: row(file).update(evidence=["D2:1", "D2:9"]), "dangling evidence", "conv-1:0", "focus", ("D2:1",)),
    (lambda file: file[0]["qa"].append(row(file)), "duplicate question", "conv-1:1", "id", "conv-1:1"),
    (
        lambda file: row(file).update(category=5, answer="No", adversarial_answer="Yes"),
        "adversarial answer",
        "conv-1:0",
        "answer",
        "No",
    ),
    (lambda file: talk(file).update(session_3=[]), "empty session", "conv-1 session_3", "answer", "Ann"),
    (
        lambda file: talk(file).pop("session_2_date_time"),
        "session without date",
        "conv-1 session_2_date_time",
        "answer",
        "Ann",
    ),
]


@pytest.mark.parametrize(("change", "kind", "where", "field", "value"), ODD)
def test_what_is_odd_is_read_and_reported(
    tmp_path: Path, change: Change, kind: str, where: str, field: str, value: Any
) -> None:
    path = written(tmp_path, change)
    report = check("locomo", path)
    assert report.ok
    assert (kind, where) in [(finding.kind, finding.where) for finding in report.rows]
    assert Locomo.load(path).examples[-1][field] == value


def test_a_plain_file_has_no_findings(tmp_path: Path) -> None:
    report = check("locomo", written(tmp_path))
    assert report.rows == ()
    assert report.counts == {
        "conversations": 1,
        "sessions": 2,
        "turns": 3,
        "image turns": 1,
        "questions": 1,
        "category 1 multi-hop": 0,
        "category 2 temporal": 0,
        "category 3 open-domain": 0,
        "category 4 single-hop": 1,
        "category 5 adversarial": 0,
    }


def test_an_adversarial_row_without_answer_gets_the_refusal_as_gold(tmp_path: Path) -> None:
    def change(file: list[Any]) -> None:
        row(file).pop("answer")
        row(file).update(category=5, adversarial_answer="Bo")

    (example,) = Locomo.load(written(tmp_path, change)).examples
    assert (example.answer, example.adversarial_answer) == (NOT_MENTIONED, "Bo")


BROKEN: list[tuple[Change, str, str]] = [
    (lambda file: row(file).pop("answer"), "missing answer", "conv-1:0: answer is None"),
    (lambda file: row(file).update(question=""), "missing question", "conv-1:0: "),
    (lambda file: file[0].update(qa=["Who?"]), "missing question", "conv-1:0: "),
    (lambda file: row(file).update(category=6), "unknown category", "conv-1:0: category 6"),
    (lambda file: file[0].pop("sample_id"), "bad sample_id", "conversation 1: sample_id None"),
    (lambda file: file.append(file[0]), "bad sample_id", "conversation 2: sample_id 'conv-1'"),
    (
        lambda file: talk(file).update(session_2_date_time="8 May 2023"),
        "malformed date",
        "conv-1 session_2_date_time: '8 May 2023' is not like '1:56 pm on 8 May, 2023'",
    ),
    (lambda file: talk(file).update(session_2="hello"), "malformed session", "conv-1 session_2: "),
    (lambda file: talk(file)["session_2"].append("hello"), "malformed turn", "conv-1 session_2 turn 3: "),
    (lambda file: talk(file)["session_2"][1].pop("dia_id"), "malformed turn", "conv-1 session_2 turn 2: "),
    (
        lambda file: talk(file)["session_2"][1].update(dia_id="D2:1"),
        "duplicate turn",
        "conv-1 session_2 turn 2: dia_id 'D2:1' is used twice",
    ),
    (lambda file: talk(file).update(session_2=[], session_10=[]), "no sessions", "conv-1: "),
    (lambda file: file[0].update(qa=[]), "no questions", "holds no examples"),
]


@pytest.mark.parametrize(("change", "kind", "message"), BROKEN)
def test_what_is_broken_is_refused_in_one_line_and_reported(
    tmp_path: Path, change: Change, kind: str, message: str
) -> None:
    path = written(tmp_path, change)
    with pytest.raises(DataError) as refusal:
        Locomo.load(path)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    report = check("locomo", path)
    assert not report.ok
    assert kind in [finding.kind for finding in report.rows if finding.fatal]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("locomo.json", "", "the file is empty"),
        ("locomo.json", json.dumps(PLAIN)[:-20], "not valid JSON at line 1"),
        ("26.json", json.dumps(PLAIN[0]["conversation"]), "first release"),
        ("locomo.zip", "PK", "first release"),
        ("other.json", '{"data": 1}', "expected a list of conversations"),
    ],
)
def test_another_file_is_refused_in_one_line_and_reported(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError) as refusal:
        Locomo.load(path)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert [finding.kind for finding in check("locomo", path).rows] == ["unreadable file"]


@pytest.mark.parametrize("categories", ["1, 4", ["1", "4"], [1, 4]])
def test_categories_can_be_restricted_and_rows_keep_their_ids(tmp_path: Path, categories: Any) -> None:
    def change(file: list[Any]) -> None:
        file[0]["qa"] = [{**row(file), "category": category} for category in (2, 1, 4, 5)]

    examples = Locomo.load(written(tmp_path, change), categories=categories).examples
    assert [(example.id, example.category) for example in examples] == [("conv-1:1", "1"), ("conv-1:2", "4")]


@steady
@given(time=st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 1, 1)))
def test_every_english_date_is_read(time: datetime) -> None:
    half = "pm" if time.hour >= 12 else "am"
    text = f"{time.hour % 12 or 12}:{time:%M} {half} on {time.day} {MONTHS.split()[time.month - 1]}, {time.year}"
    assert parse_date(text) == time.replace(second=0, microsecond=0)


pairs = st.tuples(st.integers(1, 40), st.integers(1, 60))


@steady
@given(turns=st.lists(pairs, unique=True), joint=st.sampled_from(["; ", " ", ", ", ""]), zeros=st.integers(0, 3))
def test_evidence_is_found_however_it_is_joined(turns: list[tuple[int, int]], joint: str, zeros: int) -> None:
    text = joint.join(f"D{session:0{zeros}}:{turn:0{zeros}}" for session, turn in turns)
    assert evidence_ids([text]) == tuple(f"D{session}:{turn}" for session, turn in turns)
