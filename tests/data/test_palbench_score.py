"""Scores of the three single-turn parts, with and without a judge."""

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.palbench.judges import NeedsJudge
from mempiler.data.palbench.metrics import bleu
from mempiler.programs.adapter import adapter


def _row(parts: dict[str, float]) -> Any:
    return SimpleNamespace(parts=parts, failure=None if parts else "any")


@pytest.mark.parametrize("metric", [None, "bleu4"])
def test_restating_is_scored_by_bleu_of_the_requirement(metric: str | None) -> None:
    found = benchmark("palbench.restate", **({"metric": metric} if metric else {}))
    example = found.examples[0]
    answer = example.answer[: len(example.answer) // 2]
    score = found.score(example, dspy.Prediction(answer=answer))
    expected = bleu(answer, [example.answer])
    assert list(score.parts.values()) == pytest.approx(expected)
    assert score.value == pytest.approx(expected[3 if metric else 0])
    assert found.score(example, dspy.Prediction(answer=example.answer)).value == pytest.approx(1.0)
    assert found.score(example, dspy.Prediction(answer=None)).value == 0
    assert all(need in score.feedback for need in example.asked.topic.needs)


def test_generating_takes_the_better_of_two_references() -> None:
    found = benchmark("palbench.generate")
    example = found.examples[0]
    second = example.asked.topic.positives[1]
    assert found.score(example, dspy.Prediction(answer=second)).value == pytest.approx(1.0)
    disliked = example.asked.topic.negatives[0]
    assert found.score(example, dspy.Prediction(answer=disliked)).value < 1


@pytest.mark.parametrize(
    ("kinds", "value"),
    [
        (("pos", "pos"), 1.0),
        (("pos", "neu"), 0.5),
        (("pos", "neg"), 0.0),
        (("neg", "neg"), -1.0),
    ],
)
def test_selecting_counts_liked_and_disliked(kinds: tuple[str, str], value: float) -> None:
    found = benchmark("palbench.select")
    example = found.examples[0]
    left = list(example.asked.topic.feedback.items())
    chosen = []
    for kind in kinds:
        pick = next(pair for pair in left if pair[1] == kind)
        left.remove(pick)
        chosen.append(pick[0])
    for answer in (chosen, f"I take {chosen[1]} and {chosen[0].lower()}."):
        score = found.score(example, dspy.Prediction(answer=answer))
        assert (score.value, score.parts["s_score"], score.parts["valid"]) == (value, value, 1.0)
        assert all(id in score.feedback for id in example.answer)


@pytest.mark.parametrize("answer", ["", "none", ["S1"], ["S1", "S2", "S3"], ["S1", "S9"], "S12, S13"])
def test_other_than_two_candidates_score_nothing(answer: Any) -> None:
    found = benchmark("palbench.select")
    score = found.score(found.examples[0], dspy.Prediction(answer=answer))
    assert (score.value, score.parts["valid"]) == (0.0, 0.0)
    assert "exactly two" in score.feedback


def test_the_papers_columns_are_means_over_all_topics_failed_ones_included() -> None:
    select = benchmark("palbench.select")
    rows = [_row({"s_score": 1.0, "valid": 1.0}), _row({"s_score": -0.5, "valid": 1.0})]
    rows += [_row({"s_score": 0.0, "valid": 0.0}), _row({})]
    assert select.scorer.aggregate(rows) == {"S-score": 12.5, "invalid selections": 1}
    restate = benchmark("palbench.restate", metric="g_score")
    rows = [_row({"bleu1": 0.2, "g_score": 0.75}), _row({"bleu1": 0.0, "g_score": 0.0}), _row({}), _row({})]
    assert restate.scorer.aggregate(rows) == pytest.approx({"BLEU-1": 5.0, "G-score": 18.75})


@pytest.mark.parametrize(
    ("said", "points"),
    [({"points": 1.5}, 1.5), ({"points": "2"}, 2.0), ("0", 0.0), ({"points": 0.5}, 0.5), ("1", 1.0), ("1.5", 1.5)],
)
def test_the_judges_points_are_the_papers(said: Any, points: float, scripted: Any) -> None:
    found = benchmark("palbench.restate", metric="g_score")
    lm = scripted(lambda *call: {"analysis": "one is met", "score": said})
    found = found.bound(lambda kind: kind(lm, adapter()))
    score = found.score(found.examples[0], dspy.Prediction(answer="a need"))
    assert (score.value, score.parts["g_score"]) == (points / 2, points / 2)
    assert "bleu4" in score.parts
    (_, text), topic = lm.engine.prompts[0], found.examples[0].asked.topic
    assert all(part in text for part in (topic.user_query, topic.requirement, *topic.needs, "a need"))


@pytest.mark.parametrize("said", [1.3, -4, 7.5])
def test_points_beyond_the_papers_are_asked_for_again(said: float, scripted: Any) -> None:
    lm = scripted(lambda kind, text, n: {"score": {"points": said if n == 1 else 1}})
    topic = benchmark("palbench.restate").examples[0].asked.topic
    assert (NeedsJudge(lm, adapter())(topic, "a need").points, len(lm.engine.prompts)) == (1.0, 2)


def test_an_empty_restatement_gets_nothing_without_a_call(scripted: Any) -> None:
    lm = scripted(lambda *call: {"analysis": "", "score": {"points": 2}})
    judge = NeedsJudge(lm, adapter())
    assert judge(benchmark("palbench.restate").examples[0].asked.topic, " ").points == 0
    assert lm.engine.prompts == []
