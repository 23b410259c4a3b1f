"""MemoryQuest: reading its form, what was before a query, and recall on what was retrieved."""

import json
import tempfile
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.acknowledgement import Level
from mempiler.data.cells import read_date
from mempiler.data.check import check
from mempiler.data.memoryquest.benchmark import MemoryQuest
from mempiler.errors import DataError, UnknownNameError
from mempiler.records import Context, Hit

from .conftest import FixedJudge

USER: dict[str, Any] = {
    "user_id": "ann",
    "demographics": {"age": "40"},
    "domain_summaries": {"food": "Cooks."},
    "sessions": [
        {
            "session_id": "a",
            "date": "2024-03-05",
            "turns": [
                {"speaker": "user", "text": "Which tea is best?"},
                {"speaker": "assistant", "text": "Which do you like?"},
                {"speaker": "user", "text": "My knee hurts since Monday."},
            ],
        },
        {"session_id": "b", "date": "2024-04-05", "turns": [{"speaker": "user", "text": "I work at night."}]},
        {"session_id": "c", "date": "2024-06-05", "turns": [{"speaker": "user", "text": "I adopted a cat."}]},
    ],
    "queries": [
        {
            "query_id": "q1",
            "query": "Plan my week",
            "date": "2024-06-01",
            "reasoning": "Both limit it.",
            "references": [
                {"text": "Has a bad knee", "date": "2024-03-05", "session_id": "a", "turns": [3]},
                {"text": "Works at night", "date": "2024-04-05", "session_id": "b"},
            ],
        }
    ],
}


def changed(**values: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(USER)), **values}


def query(**values: Any) -> list[dict[str, Any]]:
    return [{**USER["queries"][0], **values}]


def written(folder: Path, value: Any, name: str = "user1.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def load(folder: Path, value: Any = USER, **options: Any) -> MemoryQuest:
    return MemoryQuest.load(written(folder, value), **options)


def retrieved(*sources: str, **notes: str) -> dspy.Prediction:
    hits = tuple(Hit(id=f"f{n}", text=f"fact {n}", sources=(source,)) for n, source in enumerate(sources))
    return dspy.Prediction(answer="Rest.", context=Context(hits=hits, notes=notes))


def test_an_example_holds_what_was_before_the_query(tmp_path: Path) -> None:
    (example,) = load(tmp_path).examples
    assert (example.id, example.question, example.date) == ("ann:q1", "Plan my week", "1 June 2024, Saturday")
    assert [session.id for session in example.history.items] == ["D1", "D2"]
    assert example.answer.splitlines()[0] == "(5 March 2024, Tuesday) Has a bad knee"
    assert (example.focus, example.profile) == (("D1:3", "D2:1"), "age: 40\nfood: Cooks.")
    assert set(example.inputs()) == {"history", "question", "date", "focus"}


@pytest.mark.parametrize(
    ("date", "sessions"),
    [("2024-03-04", 0), ("2024-03-05", 1), ("2024-06-05T08:00", 3), ("2024-04-04T23:59", 1), (None, 3), ("soon", 3)],
)
def test_a_history_ends_with_the_day_of_its_query(tmp_path: Path, date: str | None, sessions: int) -> None:
    (example,) = load(tmp_path, changed(queries=query(date=date))).examples
    assert len(example.history.items) == sessions


def test_the_facts_of_a_query_are_all_references_of_its_user_up_to_its_date(tmp_path: Path) -> None:
    said = [{"text": "Runs", "date": "2024-01-05"}, {"text": "Moved", "date": "2024-09-01"}, {"text": "Sings"}]
    other = {"query": "Where?", "date": "2024-12-01", "references": [*said, {"text": "Runs", "date": "2024-01-05"}]}
    first = {"query": "What?", "date": "2024-06-01", "references": [{"text": "Cooks"}]}
    earlier, later = load(tmp_path, changed(queries=[first, other])).examples
    assert earlier.facts.split("\n") == ["Cooks", "(5 January 2024, Friday) Runs", "Sings"]
    assert later.facts.count("\n") == 3
    assert "facts" not in earlier.inputs()


@given(st.permutations(range(3)))
def test_sessions_in_any_order_make_the_same_history(order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        value = changed(sessions=[USER["sessions"][n] for n in order])
        shuffled, plain = load(Path(folder), value).examples[0], load(Path(folder)).examples[0]
    assert (shuffled.history, shuffled.focus) == (plain.history, plain.focus)


def test_a_reference_that_names_only_its_session_rests_on_all_of_it_and_focuses_one_turn(tmp_path: Path) -> None:
    references = [{"text": "Her knee hurts", "session_id": "a"}]
    (example,) = load(tmp_path, changed(queries=query(references=references))).examples
    assert example.references[0].turns == ("D1:1", "D1:2", "D1:3")
    assert example.focus == ("D1:3",)


@pytest.mark.parametrize(
    ("sources", "parts"),
    [
        ((), {"evidence": 0.0, "evidence_exact": 0.0}),
        (("D1:1",), {"evidence": 0.0, "evidence_exact": 0.0}),
        (("D1:3", "D1:1"), {"evidence": 0.5, "evidence_exact": 0.0}),
        (("D2:1", "D1:3"), {"evidence": 1.0, "evidence_exact": 1.0}),
    ],
)
def test_evidence_recall_needs_no_judge(tmp_path: Path, sources: tuple[str, ...], parts: dict[str, float]) -> None:
    loaded = load(tmp_path, metric="evidence")
    found = loaded.score(loaded.examples[0], retrieved(*sources))
    assert (dict(found.parts), found.value, loaded.scorer.judge_hash) == (parts, parts["evidence"], None)


@pytest.mark.parametrize(
    ("levels", "recall", "exact", "explicit"),
    [
        (("not", "not"), 0.0, 0.0, 0.0),
        (("implicitly", "not"), 0.5, 0.0, 0.0),
        (("explicitly", "not"), 0.5, 0.0, 0.5),
        (("implicitly", "explicitly"), 1.0, 1.0, 0.5),
    ],
)
def test_judged_recall_of_two_references(
    tmp_path: Path, levels: tuple[Level, ...], recall: float, exact: float, explicit: float
) -> None:
    for metric, value in (("recall", recall), ("recall_exact", exact)):
        loaded = load(tmp_path, metric=metric)
        loaded = loaded.bound(lambda kind: FixedJudge(*levels))
        found = loaded.score(loaded.examples[0], retrieved("D1:3"))
        judged = {"recall": recall, "recall_exact": exact, "recall_explicit": explicit}
        assert dict(found.parts) == {"evidence": 0.5, "evidence_exact": 0.0, **judged}
        assert found.value == value
        assert ("Has a bad knee" in found.feedback) == (levels[0] == "not")


def test_the_judge_sees_what_was_retrieved_and_no_notes(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    judge = FixedJudge("not", "not")
    loaded = loaded.bound(lambda kind: judge)
    loaded.score(loaded.examples[0], retrieved("D1:3", summary="She has a bad knee."))
    assert judge.asked == [("Plan my week", loaded.examples[0].answer.splitlines(), "[f0] fact 0")]


@pytest.mark.parametrize("form", ["folder", "clone", "list", "one"])
def test_users_come_as_a_folder_a_list_or_alone(tmp_path: Path, form: str) -> None:
    users = [changed(user_id=f"u{n}") for n in (2, 10)]
    if form in ("folder", "clone"):
        path = folder = tmp_path / form
        folder = folder / "data" if form == "clone" else folder
        folder.mkdir(parents=True)
        for user in users:
            written(folder, user, f"user{user['user_id'][1:]}.json")
    else:
        value = {"list": users, "one": users[0]}[form]
        path = written(tmp_path, value)
    groups = [example.history.id for example in MemoryQuest.load(path).examples]
    assert groups == (["u2"] if form == "one" else ["u2", "u10"])


@pytest.mark.parametrize(
    ("values", "kind", "fatal"),
    [
        ({"sessions": None}, "missing key", True),
        ({"sessions": []}, "no turns", True),
        ({"queries": "none"}, "wrong type", True),
        ({"queries": [{"query_id": "q1"}]}, "no query", True),
        ({"queries": query(references=[])}, "no references", False),
        ({"queries": query(references=[{"text": "A", "session_id": "z"}])}, "dangling evidence", False),
        ({"queries": query(references=[{"text": "A", "session_id": "a", "turns": [9]}])}, "dangling evidence", False),
        ({"queries": query(references=[{"text": " "}, "Bare text"])}, "empty reference", False),
        ({"queries": query() + query()}, "repeated query", False),
        ({"queries": query(date="soon")}, "unreadable date", False),
        ({"sessions": [*USER["sessions"], {"session_id": "e", "turns": []}]}, "empty session", False),
        ({"sessions": USER["sessions"][::-1]}, "sessions out of order", False),
    ],
)
def test_a_check_names_what_is_odd(tmp_path: Path, values: dict[str, Any], kind: str, fatal: bool) -> None:
    report = check("memoryquest", written(tmp_path, changed(**values)))
    found = {row.kind: row.fatal for row in report.rows}
    assert found.get(kind) is fatal


@pytest.mark.parametrize(
    ("value", "message"),
    [([1], "entry 1: expected an object, got 1"), (changed(sessions=7), "user1: 'sessions' is 7; expected a list")],
)
def test_a_file_of_another_form_is_refused_in_one_line(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(tmp_path, value)


def test_a_folder_without_users_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no user\*\.json"):
        MemoryQuest.load(tmp_path)


def test_metrics_that_do_not_exist_or_cannot_be_had_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="metric"):
        load(tmp_path, metric="f1")
    with pytest.raises(DataError, match="says of no reference in which session it was"):
        load(tmp_path, changed(queries=query(references=["Has a bad knee"])), metric="evidence")


@pytest.mark.parametrize("text", ["2024-03-05", "March 5, 2024", "5 March 2024", "2024/03/05", "2024-03-05T00:00:00Z"])
def test_dates_are_read_in_several_forms(text: str) -> None:
    found = read_date(text)
    assert found is not None
    assert (found.isoformat(), found.tzinfo) == ("2024-03-05T00:00:00", None)
