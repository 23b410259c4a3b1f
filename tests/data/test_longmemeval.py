"""LongMemEval: evidence, the choice of types, judges, token F1, retrieval, and preferences.

LongMemEval asks questions about a user's chats with an assistant. Questions have types, such as
"multi-session"; a model, the judge, decides whether an answer is right, with another prompt for
each type. An id that ends with "_abs" marks a question that cannot be answered: to decline is
right.

Evidence is the turns that hold the answer: D2:1 is the first turn of session 2.
"""

import math
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark
from mempiler.data.longmemeval import JUDGES_BY_TYPE, LongMemEval, LongMemEvalPreference
from mempiler.errors import DataError
from mempiler.signatures.judges import JUDGES

from .conftest import prompts_to
from .forms import EXAMPLE_FILES, load, put, unchanged, write_files

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


def test_a_question_that_cannot_be_answered_has_no_evidence(tmp_path: Path) -> None:
    """The id of such a question ends in "_abs". To decline is the right answer."""
    [example] = load(tmp_path, "longmemeval", make_unanswerable).examples

    assert example.abstention is True
    assert example.evidence_ids == ()


def test_without_marks_all_turns_of_the_answer_s_sessions_are_evidence(tmp_path: Path) -> None:
    """The file names the sessions with the answer, D2 and D3, which have one turn and two."""
    [example] = load(tmp_path, "longmemeval", remove_marks_of_turns).examples
    assert example.evidence_ids == ("D2:1", "D3:1", "D3:2")


@pytest.mark.parametrize("date", ["?", ""])
def test_a_session_without_a_date_keeps_its_place_in_the_file(tmp_path: Path, date: str) -> None:
    """The session with the fern stands first in the file. By its date it would be the last one."""
    [example] = load(tmp_path, "longmemeval", put("haystack_dates", 0, value=date)).examples
    assert example.evidence_ids == ("D1:1", "D3:1")


def test_the_first_questions_of_some_types_are_read_and_the_rest_is_not(tmp_path: Path) -> None:
    """The largest file has gigabytes. With `limit=1` one question of each wanted type is read.

    A broken entry at the end of the file is not reached then.
    """
    question_types = ["multi-session", "temporal-reasoning", "multi-session", "temporal-reasoning"]
    rows = [
        {**ROW, "question_id": f"q{number}", "question_type": question_type}
        for number, question_type in enumerate(question_types)
    ]
    path = write_files(tmp_path, {"s.json": [*rows, "broken"]})

    loaded = LongMemEval.load(path, categories="temporal-reasoning, multi-session", limit=1)

    assert [example.id for example in loaded.examples] == ["q0", "q1"]


def test_without_types_the_whole_file_is_read(tmp_path: Path) -> None:
    """A broken second entry is found, although the limit is one question of each type."""
    path = write_files(tmp_path, {"s.json": [ROW, "broken"]})
    with pytest.raises(DataError, match="entry 2"):
        LongMemEval.load(path, limit=1)


def test_the_judge_of_each_type_asks_the_prompt_that_its_hash_is_made_of() -> None:
    """Questions of different types are judged with different prompts.

    `JUDGES` lists the prompts that go into the hash, by which scores are compared.
    """
    signatures = {name: judge_class.signature for name, judge_class in JUDGES_BY_TYPE.items()}
    assert signatures == dict(JUDGES)


def test_an_empty_answer_is_wrong_without_a_call(model_that_replies: Any) -> None:
    lm = model_that_replies({"verdict": "yes"})
    loaded = LongMemEval.load().with_judges(lambda judge_class: judge_class(lm))

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=" "))

    assert score.value == 0.0
    assert prompts_to(lm) == []


DECLINING = "You haven\u2019t told me; I don\u2019t know."


@pytest.mark.parametrize(
    ("answer", "value"), [("3", 1.0), ("3 plants", 2 / 3), (DECLINING, 0.0), ("", 0.0)]
)
def test_token_f1_compares_words_where_there_is_an_answer(
    tmp_path: Path, answer: str, value: float
) -> None:
    """The gold answer is "3". With "3 plants", precision is 1/2 and recall 1, so F1 is 2/3."""
    loaded = load(tmp_path, "longmemeval", unchanged, metric="f1")
    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=answer))
    assert score.value == pytest.approx(value)


@pytest.mark.parametrize(("answer", "value"), [("3", 0.0), (DECLINING, 1.0), ("", 0.0)])
def test_by_token_f1_declining_is_right_where_there_is_no_answer(
    tmp_path: Path, answer: str, value: float
) -> None:
    """The user has not said what is asked. The gold answer is "You said nothing of plants."."""
    loaded = load(tmp_path, "longmemeval", make_unanswerable, metric="f1")
    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=answer))
    assert score.value == pytest.approx(value)


def retrieval_metrics(loaded: Benchmark, sources_of_hits: list[tuple[str, ...]]) -> Any:
    """Return the retrieval metrics of a search for the only question.

    Args:
        loaded: The benchmark.
        sources_of_hits: The turns that each entry comes from, the best entry first.
    """
    [example] = loaded.examples
    return loaded.scorer.retrieval_metrics(example, sources_of_hits)


def test_ndcg_is_lower_if_the_evidence_stands_further_behind(tmp_path: Path) -> None:
    """The evidence is in the sessions D2 and D3. Here they are the second and third to be found.

    By the formula of NDCG, the first two places have a gain of 1, and the third of 1 / log2(3).
    """
    loaded = load(tmp_path, "longmemeval")

    metrics = retrieval_metrics(loaded, [("D1:1", "D1:2"), ("D3:1", "D3:2"), ("D2:1",)])

    assert metrics["recall_all@5"] == 1.0
    assert metrics["ndcg@5"] == pytest.approx((1 + 1 / math.log2(3)) / 2)


def test_several_hits_of_one_session_count_once(tmp_path: Path) -> None:
    """The evidence is in the sessions D2 and D3. Three of the first five hits are of D2."""
    loaded = load(tmp_path, "longmemeval")

    metrics = retrieval_metrics(loaded, [("D2:1",), ("D2:1",), ("D3:1",), ("D2:1",), ("D3:1",)])

    assert metrics["ndcg@5"] == 1.0
    assert metrics["recall_all@5"] == 1.0


def test_retrieval_of_an_unanswerable_question_is_not_measured(tmp_path: Path) -> None:
    """Nothing that could be recalled holds its answer."""
    loaded = load(tmp_path, "longmemeval", make_unanswerable)
    assert retrieval_metrics(loaded, [("D2:1",)]) == {}


def test_a_benchmark_of_its_own_has_the_questions_about_preferences() -> None:
    loaded = benchmark("longmemeval.preference")

    assert isinstance(loaded, LongMemEvalPreference)
    assert {example.category for example in loaded.examples} == {"single-session-preference"}


def test_preferences_count_for_the_judge_and_not_for_token_f1() -> None:
    """A gold answer about a preference describes good answers, so its words prove nothing."""
    judged = LongMemEvalPreference.load()
    assert judged.examples
    for example in judged.examples:
        assert judged.in_headline(example)

    by_token_f1 = LongMemEvalPreference.load(metric="f1")
    for example in by_token_f1.examples:
        assert not by_token_f1.in_headline(example)
