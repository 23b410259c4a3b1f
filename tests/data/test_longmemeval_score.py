"""LongMemEval: its judges' hash, declining, retrieval by session, and preferences alone."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.longmemeval.benchmark import LongMemEval, LongMemEvalPreference
from mempiler.data.longmemeval.metrics import declines
from mempiler.data.longmemeval.reader import TYPES
from mempiler.errors import UnknownNameError
from mempiler.signatures.judges import judge_hash
from mempiler.signatures.judges_longmemeval import JUDGES, judges_hash

from .test_longmemeval_reading import ROW, load

# Judging -------------------------------------------------------------------------------------------------------------


def test_there_are_five_prompts_and_the_hash_is_of_all() -> None:
    assert set(JUDGES) == {*TYPES, "abstention"}
    assert len({judge_hash(prompt) for prompt in JUDGES.values()}) == 5
    assert LongMemEval.load().scorer.judge_hash == judges_hash()
    assert LongMemEval.load(metric="f1").scorer.judge_hash is None


def test_the_hash_changes_with_any_of_the_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = judges_hash()
    for kind, prompt in JUDGES.items():
        other = {**JUDGES, kind: prompt.with_instructions(f"{prompt.instructions} Be kind.")}
        with monkeypatch.context() as patch:
            patch.setattr("mempiler.signatures.judges_longmemeval.JUDGES", other)
            assert judges_hash() != before


def test_an_empty_answer_is_wrong_without_a_call(scripted: Any) -> None:
    loaded = LongMemEval.load()
    lm = scripted(lambda kind, text, n: {"verdict": "yes"})
    loaded = loaded.bound(lambda kind: kind(lm))
    assert loaded.score(loaded.examples[0], dspy.Prediction(answer=" ")).value == 0.0
    assert lm.engine.prompts == []


# Sums and words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "value"), [("3", 1.0), ("3 plants", 2 / 3), ("Not mentioned in the conversation.", 0.0), ("", 0.0)]
)
def test_token_f1_asks_nobody(tmp_path: Path, answer: str, value: float) -> None:
    loaded = load(tmp_path, ROW, metric="f1")
    assert loaded.score(loaded.examples[0], dspy.Prediction(answer=answer)).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Not mentioned in the conversation.", 1.0),
        ("You haven\u2019t told me; I don\u2019t know.", 1.0),
        ("There is not enough information.", 1.0),
        ("Three plants.", 0.0),
        ("", 0.0),
    ],
)
def test_declining_is_right_where_there_is_no_answer(tmp_path: Path, answer: str, value: float) -> None:
    loaded = load(tmp_path, {**ROW, "question_id": "q1_abs", "answer": "You said nothing of plants."}, metric="f1")
    assert declines(answer) == bool(value)
    assert loaded.score(loaded.examples[0], dspy.Prediction(answer=answer)).value == value


def test_preferences_are_no_part_of_a_score_without_a_judge() -> None:
    judged, words = LongMemEval.load(), LongMemEval.load(metric="f1")
    assert all(map(judged.counts, judged.examples))
    left_out = {example.category for example in words.examples if not words.counts(example)}
    assert left_out == {"single-session-preference"}


# Retrieval -----------------------------------------------------------------------------------------------------------


def test_retrieval_of_a_question_is_by_sessions_of_its_hits(tmp_path: Path) -> None:
    loaded = load(tmp_path, ROW)
    hits = [("D1:2",), ("D3:2", "D3:1"), ("D3:1",), ("D2:1",)]
    found = loaded.scorer.retrieval(loaded.examples[0], hits)
    assert (found["recall_any@5"], found["recall_all@5"]) == (1.0, 1.0)
    # D1, D3, D2: 1/log2(2) + 1/log2(3), over 2.
    assert found["ndcg@5"] == pytest.approx(1.630930 / 2, abs=1e-6)


def test_facts_that_rest_on_the_same_turns_are_no_turns(tmp_path: Path) -> None:
    """As sessions they are D2 and D3, the best order; as turns they would fill more places than there are turns."""
    loaded = load(tmp_path, ROW)
    found = loaded.scorer.retrieval(loaded.examples[0], [("D2:1",), ("D2:1",), ("D3:1",), ("D2:1",), ("D3:1",)])
    assert (found["ndcg@5"], found["recall_all@5"]) == (1.0, 1.0)


def test_unanswerable_questions_are_left_out_of_retrieval(tmp_path: Path) -> None:
    loaded = load(tmp_path, {**ROW, "question_id": "q_abs"})
    assert loaded.scorer.retrieval(loaded.examples[0], [("D2:1",)]) == {}


def test_an_evaluation_reports_retrieval_and_sums(scripted: Any) -> None:
    from mempiler.programs.catalog import build
    from mempiler.runs.evaluate import evaluate

    loaded = LongMemEval.load(metric="f1")
    lm = scripted(lambda kind, text, n: {"answer": "Not mentioned."})
    with dspy.context(lm=lm):
        found = evaluate(build("session-rag"), loaded, loaded.examples, lm.meter, threads=1)
    assert found.failures == 0
    assert found.aggregate["abstention F1"] == 1.0
    assert found.retrieval()["recall_any@5"] > 0.8
    assert all(not r.recall for r in found.rows if "_abs" in r.id)
    assert "(asked on 2 June 2023, Friday 18:10)" in lm.engine.prompts[0][1]


# Preferences ---------------------------------------------------------------------------------------------------------


def test_preferences_alone_want_a_personal_response() -> None:
    loaded = benchmark("longmemeval.preference")
    assert isinstance(loaded, LongMemEvalPreference)
    assert loaded.task == "personal-response"
    assert {example.category for example in loaded.examples} == {"single-session-preference"}
    with pytest.raises(UnknownNameError):
        LongMemEvalPreference.load(categories="multi-session")


def test_a_personal_response_sees_the_date(scripted: Any) -> None:
    from mempiler.programs.catalog import build

    loaded = LongMemEvalPreference.load()
    lm = scripted(lambda kind, text, n: {"reasoning": "-", "answer": "Beans."})
    with dspy.context(lm=lm):
        build("no-memory", task=loaded.task)(**loaded.examples[0].inputs())
    assert f"[[ ## date ## ]]\n{loaded.examples[0].date}" in lm.engine.prompts[0][1]
