"""Scores of PAL-Bench's single-turn parts: BLEU, selections, the judge of needs, and the paper's columns."""

import time
from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.data.palbench.benchmark import NeedsJudge, words
from mempiler.programs.adapter import adapter


def test_a_long_run_of_one_sign_is_cut_at_once() -> None:
    words("火")
    started = time.process_time()
    assert "".join(words("火" * 60_000)) == "火" * 60_000
    # 12 s before: jieba takes the square of the length.
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("kinds", "value"), [(("pos", "pos"), 1.0), (("pos", "neu"), 0.5), (("pos", "neg"), 0.0), (("neg", "neg"), -1.0)]
)
def test_selecting_counts_liked_and_disliked(kinds: tuple[str, str], value: float) -> None:
    found = benchmark("palbench.select")
    example = found.examples[0]
    left = dict(example.asked.topic.feedback)
    chosen = [id for kind in kinds for id in [next(id for id, each in left.items() if each == kind)] if left.pop(id)]
    for answer in (chosen, f"I take {chosen[1]} and {chosen[0].lower()}."):
        score = found.score(example, dspy.Prediction(answer=answer))
        assert (score.value, score.parts["s_score"], score.parts["valid"]) == (value, value, 1.0)
        assert all(id in score.feedback for id in example.answer)


def test_the_papers_columns_are_means_over_all_topics_failed_ones_included() -> None:
    def row(parts: dict[str, float]) -> Any:
        return SimpleNamespace(parts=parts, failure=None if parts else "any")

    rows = [{"s_score": 1.0, "valid": 1.0}, {"s_score": -0.5, "valid": 1.0}, {"s_score": 0.0, "valid": 0.0}, {}]
    assert benchmark("palbench.select").scorer.aggregate(list(map(row, rows))) == {
        "S-score": 12.5,
        "invalid selections": 1,
    }
    rows = [{"bleu1": 0.2, "g_score": 0.75}, {"bleu1": 0.0, "g_score": 0.0}, {}, {}]
    found = benchmark("palbench.restate", metric="g_score").scorer.aggregate(list(map(row, rows)))
    assert found == pytest.approx({"BLEU-1": 5.0, "G-score": 18.75})


@pytest.mark.parametrize("said", [1.3, -4, 7.5])
def test_points_beyond_the_papers_are_asked_for_again_and_an_empty_restatement_gets_none(
    said: float, scripted: Any
) -> None:
    lm = scripted(lambda kind, text, n: {"score": {"points": said if n == 1 else 1}})
    topic, judge = benchmark("palbench.restate").examples[0].asked.topic, NeedsJudge(lm, adapter())
    assert (judge(topic, "a need")[0], judge(topic, " ")[0], len(lm.engine.prompts)) == (1.0, 0.0, 2)
