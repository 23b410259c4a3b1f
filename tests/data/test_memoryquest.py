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

from .conftest import judge_of_references
from .forms import EXAMPLE_FILES, history_lines, load, put, write_files

USER = EXAMPLE_FILES["memoryquest"]["user1.json"]
"""A user with three sessions and a query, which rests on D1:3 and on D2:1."""


def recalled(*turns: str) -> dspy.Prediction:
    """Return a prediction for which a fact from each of these turns was recalled."""
    hits = [
        Hit(id=f"f{number}", text=f"fact {number}", sources=(turn,))
        for number, turn in enumerate(turns)
    ]
    return dspy.Prediction(answer="Rest.", context=Context(hits=tuple(hits)))


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
        ("2024-04-04T23:59", 1),
        ("2024-06-05T08:00", 3),
    ],
)
def test_a_history_ends_with_the_day_of_its_query(
    tmp_path: Path, date: str, session_count: int
) -> None:
    """The sessions are on 5 March, 5 April and 5 June 2024. Later ones are not yet known."""
    [example] = load(tmp_path, "memoryquest", put("queries", 0, "date", value=date)).examples
    assert len(example.history.items) == session_count


@pytest.mark.parametrize("date", [None, "soon"])
def test_a_query_without_a_date_is_asked_after_all_sessions(
    tmp_path: Path, date: str | None
) -> None:
    """The user has three sessions."""
    [example] = load(tmp_path, "memoryquest", put("queries", 0, "date", value=date)).examples
    assert len(example.history.items) == 3


def facts_of_queries(folder: Path, *queries: dict[str, Any]) -> list[list[str]]:
    """Return the facts that are known of the user at each query."""
    examples = load(folder, "memoryquest", put("queries", value=list(queries))).examples
    return [example.facts.split("\n") for example in examples]


def test_the_facts_of_a_query_are_the_references_of_all_queries_of_its_user(
    tmp_path: Path,
) -> None:
    """A reference is a fact about the user. One that is named twice is still one fact."""
    plan = {"query": "Plan my week", "references": [{"text": "Cooks"}, {"text": "Runs"}]}
    advise = {"query": "Where to go?", "references": [{"text": "Runs"}]}

    facts_for_plan, facts_for_advice = facts_of_queries(tmp_path, plan, advise)

    assert facts_for_plan == ["Cooks", "Runs"]
    assert facts_for_advice == ["Cooks", "Runs"]


def test_facts_that_are_told_after_a_query_are_not_known_yet(tmp_path: Path) -> None:
    in_june = {"query": "What?", "date": "2024-06-01", "references": [{"text": "Cooks"}]}
    in_december = {
        "query": "Where?",
        "date": "2024-12-01",
        "references": [
            {"text": "Runs", "date": "2024-01-05"},
            {"text": "Moved", "date": "2024-09-01"},
        ],
    }

    facts_in_june, facts_in_december = facts_of_queries(tmp_path, in_june, in_december)

    runs = "(5 January 2024, Friday) Runs"
    moved = "(1 September 2024, Sunday) Moved"
    assert facts_in_june == ["Cooks", runs]
    assert facts_in_december == ["Cooks", runs, moved]


def test_a_reference_that_names_only_its_session_rests_on_all_of_it(tmp_path: Path) -> None:
    """The session "a" of the example has three turns.

    The evidence is the turn with the words of the reference: "My knee hurts since Monday.".
    """
    references = [{"text": "Her knee hurts", "session_id": "a"}]
    change = put("queries", 0, "references", value=references)

    [example] = load(tmp_path, "memoryquest", change).examples

    assert example.references[0].turns == ("D1:1", "D1:2", "D1:3")
    assert example.evidence_ids == ("D1:3",)


@pytest.mark.parametrize(
    ("recalled_turns", "evidence", "evidence_exact"),
    [
        (["D1:1"], 0.0, 0.0),
        (["D1:3"], 0.5, 0.0),
        (["D1:3", "D2:1"], 1.0, 1.0),
    ],
)
def test_the_recall_of_evidence_needs_no_judge(
    tmp_path: Path, recalled_turns: list[str], evidence: float, evidence_exact: float
) -> None:
    """The query rests on the turns D1:3 and D2:1. The exact recall is 1 if both are recalled."""
    loaded = load(tmp_path, "memoryquest", metric="evidence")

    score = loaded.score(loaded.examples[0], recalled(*recalled_turns))

    assert score.value == evidence
    assert score.parts == {"evidence": evidence, "evidence_exact": evidence_exact}
    assert loaded.scorer.judge_hash is None


def test_the_recall_of_evidence_needs_references_that_name_their_session(tmp_path: Path) -> None:
    """Without the session nobody knows which turns tell the reference."""
    change = put("queries", 0, "references", value=[{"text": "A"}])
    with pytest.raises(DataError, match="says of no reference in which session it was"):
        load(tmp_path, "memoryquest", change, metric="evidence")


@pytest.mark.parametrize(
    ("knee", "night", "recall", "recall_exact"),
    [
        ("absent", "absent", 0.0, 0.0),
        ("implicit", "absent", 0.5, 0.0),
        ("explicit", "absent", 0.5, 0.0),
        ("implicit", "explicit", 1.0, 1.0),
    ],
)
def test_judged_recall_is_the_share_of_the_references_that_were_recalled(
    tmp_path: Path, knee: str, night: str, recall: float, recall_exact: float
) -> None:
    """A query rests on two references. A judge says of each whether the recalled entries tell it.

    The exact recall is 1 if they tell both.
    """
    judge = judge_of_references(knee, night)
    loaded = load(tmp_path, "memoryquest", metric="recall").with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], recalled("D1:3"))

    assert score.value == recall
    assert score.parts["recall"] == recall
    assert score.parts["recall_exact"] == recall_exact


def test_the_metric_recall_exact_needs_all_references(tmp_path: Path) -> None:
    """The judge finds the first of the two references only."""
    judge = judge_of_references("explicit", "absent")
    loaded = load(tmp_path, "memoryquest", metric="recall_exact")
    loaded = loaded.with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], recalled("D1:3"))

    assert score.value == 0.0
    assert score.parts["recall"] == 0.5


@pytest.mark.parametrize(
    ("knee", "night", "recall", "recall_explicit"),
    [
        ("absent", "absent", 0.0, 0.0),
        ("implicit", "absent", 0.5, 0.0),
        ("explicit", "absent", 0.5, 0.5),
        ("implicit", "explicit", 1.0, 0.5),
    ],
)
def test_the_strict_metric_tells_explicit_references_from_implicit_ones(
    tmp_path: Path, knee: str, night: str, recall: float, recall_explicit: float
) -> None:
    """A query rests on two references. Both kinds of mentions count as recalled.

    A part of the score is the share of the references that are mentioned explicitly.
    """
    judge = judge_of_references(knee, night)
    loaded = load(tmp_path, "memoryquest", metric="recall_strict")
    loaded = loaded.with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], recalled("D1:3"))

    assert score.value == recall
    assert score.parts["recall_strict"] == recall
    assert score.parts["recall_strict_exact"] == (1.0 if recall == 1.0 else 0.0)
    assert score.parts["recall_explicit"] == recall_explicit


@pytest.mark.parametrize("metric", ["recall", "recall_exact", "recall_strict"])
def test_the_judge_sees_the_recalled_entries_and_no_summary(tmp_path: Path, metric: str) -> None:
    """One entry was recalled. A note beside it, which the program is shown too, is a summary."""
    judge = judge_of_references("absent", "absent")
    loaded = load(tmp_path, "memoryquest", metric=metric).with_judges(lambda judge_class: judge)
    entry = Hit(id="f0", text="My knee hurts.", sources=("D1:3",))
    context = Context(hits=(entry,), notes={"summary": "Notes are not judged."})

    loaded.score(loaded.examples[0], dspy.Prediction(answer="Rest.", context=context))

    references = [
        "(5 March 2024, Tuesday) Has a bad knee",
        "(5 April 2024, Friday) Works at night",
    ]
    assert judge.calls == [("Plan my week", references, "[f0] My knee hurts.")]


@pytest.mark.parametrize("metric", ["recall", "recall_exact", "recall_strict"])
@pytest.mark.parametrize(
    ("verdict", "is_named"), [("absent", True), ("implicit", False), ("explicit", False)]
)
def test_the_feedback_names_missing_references(
    tmp_path: Path, metric: str, verdict: str, is_named: bool
) -> None:
    """Feedback is a text for an optimizer. The first reference of the query is a bad knee."""
    judge = judge_of_references(verdict, "absent")
    loaded = load(tmp_path, "memoryquest", metric=metric).with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], recalled("D1:3"))

    assert ("Has a bad knee" in score.feedback) is is_named


def test_the_users_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """By the letters of its name, user10.json would come before user2.json."""
    write_files(
        tmp_path,
        {"user10.json": {**USER, "user_id": "u10"}, "user2.json": {**USER, "user_id": "u2"}},
    )

    examples = MemoryQuest.load(tmp_path).examples

    assert [example.history.id for example in examples] == ["u2", "u10"]


def test_a_folder_without_users_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no user\*\.json"):
        MemoryQuest.load(tmp_path)
