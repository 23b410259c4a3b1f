"""LongMemEval: what its reader makes of the files, words and judges, retrieval by sessions, preferences alone."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.longmemeval import JUDGES_BY_TYPE, LongMemEval, LongMemEvalPreference
from mempiler.errors import DataError, UnknownNameError
from mempiler.signatures.judges import JUDGES

from .forms import FORMS, Change, load, put, write

(ROW,) = FORMS["longmemeval"]["longmemeval_oracle.json"]


def unanswerable(row: Any) -> None:
    row.update(question_id="q1_abs", answer="You said nothing of plants.")


def unmark(row: Any) -> None:
    for said in (row["haystack_sessions"][0][0], row["haystack_sessions"][2][0]):
        del said["has_answer"]


@pytest.mark.parametrize(
    ("change", "evidence_ids"),
    [
        (unanswerable, ()),
        (unmark, ("D2:1", "D3:1", "D3:2")),  # all turns of the evidence sessions
        (
            put("haystack_dates", 0, value="?"),
            ("D1:1", "D3:1"),
        ),  # an undated session stays behind its neighbour
        (
            put("haystack_dates", 1, value="2023/03/04 22:00"),
            ("D1:1", "D3:1"),
        ),  # a weekday may be missing
    ],
)
def test_the_evidence_of_a_question(
    tmp_path: Path, change: Change, evidence_ids: tuple[str, ...]
) -> None:
    (example,) = load(tmp_path, "longmemeval", change).examples
    assert example.evidence_ids == evidence_ids
    assert example.evidence == evidence_ids
    assert example.abstention == (not evidence_ids)


def test_types_and_limit_choose_and_end_the_reading(tmp_path: Path) -> None:
    kinds = [
        "multi-session",
        "temporal-reasoning",
        "multi-session",
        "temporal-reasoning",
        "knowledge-update",
    ]
    rows = [{**ROW, "question_id": f"q{n}", "question_type": kind} for n, kind in enumerate(kinds)]
    path = write(tmp_path, {"s.json": [*rows, "broken"]})
    chosen = LongMemEval.load(path, categories="temporal-reasoning, multi-session", limit=1)
    assert [example.id for example in chosen.examples] == ["q0", "q1"]
    with pytest.raises(DataError, match="entry 6"):
        LongMemEval.load(path, limit=1)


def test_the_judge_of_each_type_asks_the_prompt_that_its_hash_is_made_of() -> None:
    assert {name: judge_class.signature for name, judge_class in JUDGES_BY_TYPE.items()} == dict(
        JUDGES
    )


def test_an_empty_answer_is_wrong_without_a_call(scripted: Any) -> None:
    lm = scripted(lambda kind, text, n: {"verdict": "yes"})
    loaded = LongMemEval.load().with_judges(lambda kind: kind(lm))
    assert loaded.score(loaded.examples[0], dspy.Prediction(answer=" ")).value == 0.0
    assert lm.engine.prompts == []


@pytest.mark.parametrize(
    ("answer", "known", "unknown"),
    [
        ("3", 1.0, 0.0),
        ("3 plants", 2 / 3, 0.0),
        ("You haven\u2019t told me; I don\u2019t know.", 0.0, 1.0),
        ("", 0.0, 0.0),
    ],
)
def test_token_f1_asks_nobody_and_declining_is_right_where_there_is_no_answer(
    tmp_path, answer, known, unknown
) -> None:
    for change, value in ((lambda row: None, known), (unanswerable, unknown)):
        loaded = load(tmp_path, "longmemeval", change, metric="f1")
        assert loaded.score(
            loaded.examples[0], dspy.Prediction(answer=answer)
        ).value == pytest.approx(value)


def test_retrieval_of_a_question_is_by_sessions_of_its_hits(tmp_path: Path) -> None:
    loaded = load(tmp_path, "longmemeval")
    hits = [("D1:2",), ("D3:2", "D3:1"), ("D3:1",), ("D2:1",)]
    found = loaded.scorer.retrieval_metrics(loaded.examples[0], hits)
    assert found["recall_any@5"] == 1.0
    assert found["recall_all@5"] == 1.0
    # D1, D3, D2: 1/log2(2) + 1/log2(3), over 2.
    assert found["ndcg@5"] == pytest.approx(1.630930 / 2, abs=1e-6)
    # Facts that rest on the same turns: as sessions D2 and D3, the best order; as turns they would fill more places.
    found = loaded.scorer.retrieval_metrics(
        loaded.examples[0], [("D2:1",), ("D2:1",), ("D3:1",), ("D2:1",), ("D3:1",)]
    )
    assert found["ndcg@5"] == 1.0
    assert found["recall_all@5"] == 1.0
    loaded = load(tmp_path, "longmemeval", unanswerable)
    assert loaded.scorer.retrieval_metrics(loaded.examples[0], [("D2:1",)]) == {}


def test_preferences_alone_want_a_personal_response() -> None:
    loaded = benchmark("longmemeval.preference")
    assert isinstance(loaded, LongMemEvalPreference)
    assert loaded.task == "personal-response"
    assert all(map(loaded.in_headline, loaded.examples))
    assert not any(map(LongMemEvalPreference.load(metric="f1").in_headline, loaded.examples))
    assert {example.category for example in loaded.examples} == {"single-session-preference"}
    with pytest.raises(UnknownNameError):
        LongMemEvalPreference.load(categories="multi-session")
