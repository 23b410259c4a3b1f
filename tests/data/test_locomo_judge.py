"""LoCoMo by a judge: the label is the score, category 5 is left out, and the prompt is named by its hash."""

import dspy
import pytest
from mempiler.data.benchmark import Benchmark
from mempiler.data.locomo.benchmark import Locomo
from mempiler.errors import UserError


@pytest.fixture
def judged(scripted) -> tuple[Benchmark, list[str]]:
    """The sample with a judge that calls everything right that says "certainly", and what it was asked."""
    asked: list[str] = []

    def label(kind: str, text: str, n: int) -> dict[str, str]:
        asked.append(text)
        return {"label": "CORRECT" if "certainly" in text else "WRONG"}

    benchmark = Locomo.load(metric="judge")
    benchmark = benchmark.bound(lambda kind: kind(scripted(label), dspy.ChatAdapter(use_json_adapter_fallback=False)))
    return benchmark, asked


@pytest.mark.parametrize(("answer", "value"), [("certainly so", 1.0), ("never", 0.0)])
def test_the_label_is_the_score_and_token_f1_stands_beside_it(judged, answer, value):
    benchmark, asked = judged
    example = next(example for example in benchmark.examples if example.category == "4")
    found = benchmark.score(example, dspy.Prediction(answer=answer))
    assert (found.value, found.parts["judge"]) == (value, value)
    assert 0.0 <= found.parts["f1"] < 1.0
    assert example.question in asked[0]
    assert example.answer in asked[0]


def test_the_judge_sees_the_whole_gold_answer_of_an_open_question(judged):
    """Token F1 cuts category 3 at the first semicolon; the judge reads the reason behind it too."""
    benchmark, asked = judged
    example = next(example for example in benchmark.examples if example.category == "3").copy(answer="Yes; she paints")
    benchmark.score(example, dspy.Prediction(answer="Yes"))
    assert "Yes; she paints" in asked[0]


def test_category_five_is_left_out_of_a_judged_score_only():
    assert {example.category for example in Locomo.load(metric="judge").examples} == {"1", "2", "3", "4"}
    assert "5" in {example.category for example in Locomo.load().examples}


def test_asking_a_judge_for_category_five_is_refused():
    with pytest.raises(UserError, match="category 5 has no gold answer"):
        Locomo.load(metric="judge", categories="4,5")
