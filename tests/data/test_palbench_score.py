"""Scores of the three single-turn parts, with and without a judge."""

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.palbench.benchmark import NeedsJudge
from mempiler.programs.adapter import adapter


def _row(parts: dict[str, float]) -> Any:
    return SimpleNamespace(parts=parts, failure=None if parts else "any")


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


def test_the_papers_columns_are_means_over_all_topics_failed_ones_included() -> None:
    select = benchmark("palbench.select")
    rows = [_row({"s_score": 1.0, "valid": 1.0}), _row({"s_score": -0.5, "valid": 1.0})]
    rows += [_row({"s_score": 0.0, "valid": 0.0}), _row({})]
    assert select.scorer.aggregate(rows) == {"S-score": 12.5, "invalid selections": 1}
    restate = benchmark("palbench.restate", metric="g_score")
    rows = [_row({"bleu1": 0.2, "g_score": 0.75}), _row({"bleu1": 0.0, "g_score": 0.0}), _row({}), _row({})]
    assert restate.scorer.aggregate(rows) == pytest.approx({"BLEU-1": 5.0, "G-score": 18.75})


@pytest.mark.parametrize("said", [1.3, -4, 7.5])
def test_points_beyond_the_papers_are_asked_for_again(said: float, scripted: Any) -> None:
    lm = scripted(lambda kind, text, n: {"score": {"points": said if n == 1 else 1}})
    topic = benchmark("palbench.restate").examples[0].asked.topic
    assert (NeedsJudge(lm, adapter())(topic, "a need")[0], len(lm.engine.prompts)) == (1.0, 2)


def test_an_empty_restatement_gets_nothing_without_a_call(scripted: Any) -> None:
    lm = scripted(lambda *call: {"analysis": "", "score": {"points": 2}})
    judge = NeedsJudge(lm, adapter())
    assert judge(benchmark("palbench.restate").examples[0].asked.topic, " ")[0] == 0
    assert lm.engine.prompts == []
