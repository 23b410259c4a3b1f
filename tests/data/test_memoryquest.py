"""MemoryQuest: sessions, references and facts of a query, recall with and without a judge.

MemoryQuest asks an assistant for something, such as "Plan my week". A good response needs
references: facts that the user told in earlier sessions. What counts is how many of them a memory
recalls. The metric "evidence" compares the turns that recalled entries come from. The metrics
"recall" ask a model, the judge, whether the recalled entries tell each reference.

D1:3 is the third turn of session 1.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Context, DataError, Hit
from mempiler.data.memoryquest import MemoryQuest

from .conftest import reference_judge
from .forms import EXAMPLE_FILES, history_lines, load, put, write_files

USER = EXAMPLE_FILES["memoryquest"]["user1.json"]
"""A user with three sessions and a query, which rests on D1:3 and on D2:1."""


def recalled(*sources: str, **notes: str) -> dspy.Prediction:
    """Return a prediction for which facts from these turns were recalled."""
    hits = [
        Hit(id=f"f{number}", text=f"fact {number}", sources=(source,))
        for number, source in enumerate(sources)
    ]
    return dspy.Prediction(answer="Rest.", context=Context(hits=tuple(hits), notes=notes))


def reverse_sessions(user: dict[str, Any]) -> None:
    user["sessions"].reverse()


def test_sessions_come_in_the_order_of_their_dates(tmp_path: Path) -> None:
    """In the changed file the newest session stands first."""
    [example] = load(tmp_path, "memoryquest", reverse_sessions).examples

    assert list(example.history.turns) == ["D1:1", "D1:2", "D1:3", "D2:1"]
    assert history_lines(example)[-1].endswith("I work at night.")


@pytest.mark.parametrize(
    ("date", "session_count"),
    [
        ("2024-03-04", 0),
        ("2024-03-05", 1),
        ("2024-06-05T08:00", 3),
        ("2024-04-04T23:59", 1),
        (None, 3),
        ("soon", 3),
    ],
)
def test_a_history_ends_with_the_day_of_its_query(
    tmp_path: Path, date: str | None, session_count: int
) -> None:
    """The sessions are on 5 March, 5 April and 5 June 2024; later ones are not yet known.

    A query whose date is missing or cannot be read is asked after all sessions.
    """
    [example] = load(tmp_path, "memoryquest", put("queries", 0, "date", value=date)).examples
    assert len(example.history.items) == session_count


QUERY_IN_JUNE = {"query": "What?", "date": "2024-06-01", "references": [{"text": "Cooks"}]}
QUERY_IN_DECEMBER = {
    "query": "Where?",
    "date": "2024-12-01",
    "references": [
        {"text": "Runs", "date": "2024-01-05"},
        {"text": "Moved", "date": "2024-09-01"},
        {"text": "Sings"},
        {"text": "Runs", "date": "2024-01-05"},
    ],
}


def test_the_facts_of_a_query_are_all_references_of_its_user_up_to_its_date(
    tmp_path: Path,
) -> None:
    """A reference is a fact about the user. One query of the user is in June, one in December.

    In June, what is told in September is not yet known.
    """
    change = put("queries", value=[QUERY_IN_JUNE, QUERY_IN_DECEMBER])

    in_june, in_december = load(tmp_path, "memoryquest", change).examples

    # References without a date are known at any time. A repeated one is a fact once.
    assert in_june.facts.split("\n") == ["Cooks", "(5 January 2024, Friday) Runs", "Sings"]
    assert len(in_december.facts.split("\n")) == 4
    assert "facts" not in in_june.inputs()


def test_a_reference_that_names_only_its_session_rests_on_all_of_it(tmp_path: Path) -> None:
    """The session "a" of the example has three turns."""
    references = [{"text": "Her knee hurts", "session_id": "a"}]
    change = put("queries", 0, "references", value=references)

    [example] = load(tmp_path, "memoryquest", change).examples

    assert example.references[0].turns == ("D1:1", "D1:2", "D1:3")
    # One turn is the evidence, "My knee hurts since Monday.": its words are closest.
    assert example.evidence_ids == ("D1:3",)


@pytest.mark.parametrize(
    ("sources", "parts"),
    [
        (["D1:1"], {"evidence": 0.0, "evidence_exact": 0.0}),
        (["D2:1", "D1:3"], {"evidence": 1.0, "evidence_exact": 1.0}),
    ],
)
def test_the_recall_of_evidence_needs_no_judge(
    tmp_path: Path, sources: list[str], parts: dict[str, float]
) -> None:
    """The query rests on the turns D1:3 and D2:1; `sources` are the turns of recalled facts."""
    loaded = load(tmp_path, "memoryquest", metric="evidence")

    score = loaded.score(loaded.examples[0], recalled(*sources))

    assert dict(score.parts) == parts
    assert score.value == parts["evidence"]
    assert loaded.scorer.judge_hash is None


def test_the_recall_of_evidence_needs_references_that_name_their_session(tmp_path: Path) -> None:
    """Without the session nobody knows which turns tell the reference."""
    change = put("queries", 0, "references", value=[{"text": "A"}])
    with pytest.raises(DataError, match="says of no reference in which session it was"):
        load(tmp_path, "memoryquest", change, metric="evidence")


@pytest.mark.parametrize("metric", ["recall", "recall_exact"])
@pytest.mark.parametrize(
    ("levels", "recall", "recall_exact"),
    [
        (["not", "not"], 0.0, 0.0),
        (["implicitly", "not"], 0.5, 0.0),
        (["explicitly", "not"], 0.5, 0.0),
        (["implicitly", "explicitly"], 1.0, 1.0),
    ],
)
def test_judged_recall_is_the_share_of_the_references_that_are_there(
    tmp_path: Path, metric: str, levels: list[str], recall: float, recall_exact: float
) -> None:
    """A query rests on two references; a judge says of each whether the recalled entries have it.

    The exact recall is 1 if both are there.
    """
    judge = reference_judge(*levels)
    loaded = load(tmp_path, "memoryquest", metric=metric).with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], recalled("D1:3"))

    # The evidence is in D1:3 and D2:1, so half of it was recalled.
    assert dict(score.parts) == {
        "evidence": 0.5,
        "evidence_exact": 0.0,
        "recall": recall,
        "recall_exact": recall_exact,
    }
    assert score.value == score.parts[metric]


@pytest.mark.parametrize(
    ("levels", "recall", "recall_exact", "recall_explicit"),
    [
        (["not", "not"], 0.0, 0.0, 0.0),
        (["implicitly", "not"], 0.5, 0.0, 0.0),
        (["explicitly", "not"], 0.5, 0.0, 0.5),
        (["implicitly", "explicitly"], 1.0, 1.0, 0.5),
    ],
)
def test_the_strict_judge_tells_explicit_references_from_implicit_ones(
    tmp_path: Path,
    levels: list[str],
    recall: float,
    recall_exact: float,
    recall_explicit: float,
) -> None:
    """Both kinds count as recalled; a part of the score tells how many are explicit."""
    judge = reference_judge(*levels)
    loaded = load(tmp_path, "memoryquest", metric="recall_strict")
    loaded = loaded.with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], recalled("D1:3"))

    assert score.value == recall
    assert dict(score.parts) == {
        "evidence": 0.5,
        "evidence_exact": 0.0,
        "recall_strict": recall,
        "recall_strict_exact": recall_exact,
        "recall_explicit": recall_explicit,
    }


@pytest.mark.parametrize("metric", ["recall", "recall_exact", "recall_strict"])
def test_the_judge_sees_the_recalled_entries_and_no_summary(tmp_path: Path, metric: str) -> None:
    """The context has one entry, and a summary among its notes."""
    judge = reference_judge("not", "not")
    loaded = load(tmp_path, "memoryquest", metric=metric).with_judges(lambda judge_class: judge)

    loaded.score(loaded.examples[0], recalled("D1:3", summary="Notes are not judged."))

    references = [
        "(5 March 2024, Tuesday) Has a bad knee",
        "(5 April 2024, Friday) Works at night",
    ]
    assert judge.calls == [("Plan my week", references, "[f0] fact 0")]


@pytest.mark.parametrize("metric", ["recall", "recall_exact", "recall_strict"])
@pytest.mark.parametrize(
    ("first_level", "is_missing"), [("not", True), ("implicitly", False), ("explicitly", False)]
)
def test_the_feedback_names_missing_references(
    tmp_path: Path, metric: str, first_level: str, is_missing: bool
) -> None:
    """Feedback is a text for an optimizer. The first reference is "Has a bad knee"."""
    judge = reference_judge(first_level, "not")
    loaded = load(tmp_path, "memoryquest", metric=metric).with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], recalled("D1:3"))

    assert ("Has a bad knee" in score.feedback) is is_missing


@pytest.fixture
def folder_of_users(tmp_path: Path) -> Path:
    """A folder with the files of the users u2 and u10."""
    files = {
        "user10.json": {**USER, "user_id": "u10"},
        "user2.json": {**USER, "user_id": "u2"},
    }
    write_files(tmp_path / "data", files)
    return tmp_path / "data"


def users_in(path: Path) -> list[str]:
    """Return the users of the questions that a path holds."""
    return [example.history.id for example in MemoryQuest.load(path).examples]


def test_the_users_of_a_folder_come_in_the_order_of_their_numbers(folder_of_users: Path) -> None:
    """The folder has the files user10.json and user2.json, of the users u10 and u2."""
    assert users_in(folder_of_users) == ["u2", "u10"]


def test_a_file_holds_one_user(folder_of_users: Path) -> None:
    """Beside the file user2.json there is one of another user."""
    assert users_in(folder_of_users / "user2.json") == ["u2"]


def test_a_folder_without_users_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no user\*\.json"):
        MemoryQuest.load(tmp_path)
