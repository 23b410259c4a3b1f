"""One metric, and the views of it: true booleans, numbers, and feedback."""

from typing import Any

import dspy
import numpy as np
import pytest
from mempiler.data.dataset import Source
from mempiler.data.locomo.benchmark import Locomo
from mempiler.data.scorer import Score
from mempiler.optimizers.metric_views import MetricViews


class Graded(Locomo):
    """Gives the score that the answer names, as a numpy number: its comparisons are no true booleans."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return Score(np.float64(prediction.answer), "it was graded")


@pytest.fixture
def views(make_history) -> MetricViews:
    return MetricViews(Graded([question(make_history)], Source("x", "0", sample=True)), threshold=0.5)


def question(make_history: Any) -> dspy.Example:
    history = make_history(1)
    return dspy.Example(
        id="q", history=history, question="Where?", answer="x", category="4", focus=(), evidence=()
    ).with_inputs("history", "question", "focus")


@pytest.mark.parametrize(("answer", "passed"), [("0", False), ("0.49", False), ("0.5", True), ("1", True)])
def test_passed_is_a_true_boolean(views, make_history, answer, passed):
    found = views.passed(question(make_history), dspy.Prediction(answer=answer), trace=[])
    assert found is passed
