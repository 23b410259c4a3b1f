"""LongMemEval: evidence, the choice of types, judges, token F1, retrieval, and preferences.

LongMemEval asks questions about a user's chats with an assistant. Questions have types, such as
"multi-session"; a model, the judge, decides whether an answer is right, with another prompt for
each type. An id that ends with "_abs" marks a question that cannot be answered: to decline is
right.

Evidence is the turns that hold the answer: D2:1 is the first turn of session 2.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.longmemeval import JUDGES_BY_TYPE, LongMemEval, LongMemEvalPreference
from mempiler.errors import DataError, UnknownNameError
from mempiler.signatures.judges import JUDGES

from .forms import EXAMPLE_FILES, Change, load, put, unchanged, write_files

[ROW] = EXAMPLE_FILES["longmemeval"]["longmemeval_oracle.json"]
"""A question about three sessions: how many plants the user bought.

In the order of their dates, D1 is a greeting, in D2 the user bought two palms and in D3 a fern. So
the answer is 3, and the evidence D2:1 and D3:1.
"""


def make_unanswerable(row: Any) -> None:
    row["question_id"] = "q1_abs"
    row["answer"] = "You said nothing of plants."


def remove_marks_of_turns(row: Any) -> None:
    """Remove the marks of the turns that hold the answer; their sessions stay named."""
    first_session, _, last_session = row["haystack_sessions"]
    del first_session[0]["has_answer"]
    del last_session[0]["has_answer"]


@pytest.mark.parametrize(
    ("change", "evidence_ids"),
    [
        pytest.param(make_unanswerable, (), id="unanswerable"),
        pytest.param(
            remove_marks_of_turns,
            ("D2:1", "D3:1", "D3:2"),
            id="without marks all turns of the named sessions",
        ),
        # The session with the fern stands first in the file. Without a date it stays there.
        pytest.param(
            put("haystack_dates", 0, value="?"),
            ("D1:1", "D3:1"),
            id="a session without a date stays behind its neighbour",
        ),
        pytest.param(
            put("haystack_dates", 1, value="2023/03/04 22:00"),
            ("D1:1", "D3:1"),
            id="a date without its weekday",
        ),
    ],
)
def test_the_evidence_of_a_question_is_the_turns_that_hold_its_answer(
    tmp_path: Path, change: Change, evidence_ids: tuple[str, ...]
) -> None:
    """A question asks how many plants the user bought: two palms (D2:1) and a fern (D3:1).

    Each case changes the row and with it the evidence.
    """
    [example] = load(tmp_path, "longmemeval", change).examples

    assert example.evidence_ids == evidence_ids
    assert example.evidence == evidence_ids
    is_unanswerable = evidence_ids == ()
    assert example.abstention == is_unanswerable


def test_the_first_questions_of_some_types_are_read_and_the_rest_is_not(tmp_path: Path) -> None:
    """The largest file has gigabytes. With `limit=1` one question of each wanted type is read."""
    question_types = [
        "multi-session",
        "temporal-reasoning",
        "multi-session",
        "temporal-reasoning",
        "knowledge-update",
    ]
    rows = [
        {**ROW, "question_id": f"q{number}", "question_type": question_type}
        for number, question_type in enumerate(question_types)
    ]
    path = write_files(tmp_path, {"s.json": [*rows, "broken"]})

    loaded = LongMemEval.load(path, categories="temporal-reasoning, multi-session", limit=1)

    # One question of each type. The broken entry behind them is not reached.
    assert [example.id for example in loaded.examples] == ["q0", "q1"]


def test_without_types_the_whole_file_is_read(tmp_path: Path) -> None:
    """So the broken second entry is found, although one question would be enough."""
    path = write_files(tmp_path, {"s.json": [ROW, "broken"]})
    with pytest.raises(DataError, match="entry 2"):
        LongMemEval.load(path, limit=1)


def test_the_judge_of_each_type_asks_the_prompt_that_its_hash_is_made_of() -> None:
    """The hash of the judges' prompts tells whether two scores can be compared."""
    signatures = {name: judge_class.signature for name, judge_class in JUDGES_BY_TYPE.items()}
    assert signatures == dict(JUDGES)


def test_an_empty_answer_is_wrong_without_a_call(scripted: Any) -> None:
    """The model would call every answer right."""
    lm = scripted(lambda *call: {"verdict": "yes"})
    loaded = LongMemEval.load().with_judges(lambda judge_class: judge_class(lm))

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=" "))

    assert score.value == 0.0
    assert lm.engine.prompts == []


DECLINING = "You haven\u2019t told me; I don\u2019t know."


@pytest.mark.parametrize(
    ("answer", "value"), [("3", 1.0), ("3 plants", 2 / 3), (DECLINING, 0.0), ("", 0.0)]
)
def test_token_f1_compares_words_where_there_is_an_answer(
    tmp_path: Path, answer: str, value: float
) -> None:
    """The gold answer is "3". With "3 plants", precision is 1/2 and recall 1."""
    loaded = load(tmp_path, "longmemeval", unchanged, metric="f1")
    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=answer))
    assert score.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("answer", "value"), [("3", 0.0), ("3 plants", 0.0), (DECLINING, 1.0), ("", 0.0)]
)
def test_by_token_f1_declining_is_right_where_there_is_no_answer(
    tmp_path: Path, answer: str, value: float
) -> None:
    """The history does not hold the answer to this question, and `DECLINING` says so."""
    loaded = load(tmp_path, "longmemeval", make_unanswerable, metric="f1")
    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=answer))
    assert score.value == pytest.approx(value)


def test_retrieval_is_measured_by_the_sessions_of_the_hits(tmp_path: Path) -> None:
    """A hit is a recalled entry. The evidence is in the sessions D2 and D3.

    The hits here are of the sessions D1, D3, D3 and D2, so both are among the first five. NDCG is
    higher if they stand further in front: here it is 1 / log2(2) + 1 / log2(3), of 2 at most.
    """
    loaded = load(tmp_path, "longmemeval")
    # The turns that each recalled entry comes from, the best entry first.
    sources_of_hits = [("D1:2",), ("D3:2", "D3:1"), ("D3:1",), ("D2:1",)]

    metrics = loaded.scorer.retrieval_metrics(loaded.examples[0], sources_of_hits)

    assert metrics["recall_any@5"] == 1.0
    assert metrics["recall_all@5"] == 1.0
    assert metrics["ndcg@5"] == pytest.approx(1.630930 / 2, abs=1e-6)


def test_several_hits_of_one_session_count_once(tmp_path: Path) -> None:
    """The evidence is in the sessions D2 and D3. As turns the hits would fill all five places."""
    loaded = load(tmp_path, "longmemeval")
    sources_of_hits = [("D2:1",), ("D2:1",), ("D3:1",), ("D2:1",), ("D3:1",)]

    metrics = loaded.scorer.retrieval_metrics(loaded.examples[0], sources_of_hits)

    assert metrics["ndcg@5"] == 1.0
    assert metrics["recall_all@5"] == 1.0


def test_retrieval_of_an_unanswerable_question_is_not_measured(tmp_path: Path) -> None:
    """Nothing that could be recalled holds its answer."""
    loaded = load(tmp_path, "longmemeval", make_unanswerable)
    assert loaded.scorer.retrieval_metrics(loaded.examples[0], [("D2:1",)]) == {}


def test_the_questions_about_preferences_want_a_personal_response() -> None:
    """This benchmark has the questions of LongMemEval about preferences alone."""
    loaded = benchmark("longmemeval.preference")

    assert isinstance(loaded, LongMemEvalPreference)
    assert loaded.task == "personal-response"
    assert {example.category for example in loaded.examples} == {"single-session-preference"}


def test_preferences_count_for_the_judge_and_not_for_token_f1() -> None:
    """The gold answer to such a question describes good answers, so its words prove nothing."""
    judged = LongMemEvalPreference.load()
    assert judged.examples
    for example in judged.examples:
        assert judged.in_headline(example)

    by_token_f1 = LongMemEvalPreference.load(metric="f1")
    for example in by_token_f1.examples:
        assert not by_token_f1.in_headline(example)


def test_the_benchmark_of_preferences_has_no_other_type() -> None:
    with pytest.raises(UnknownNameError):
        LongMemEvalPreference.load(categories="multi-session")
