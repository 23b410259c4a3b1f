"""Metrics of one's own are taken in every form that DSPy and GEPA have, and what is no score is refused in one line."""

import functools
from types import SimpleNamespace
from typing import Any

import dspy
import numpy as np
import pytest
from mempiler.data.common_scorers import Combined, ExactMatch
from mempiler.data.metric_functions import FunctionScorer
from mempiler.data.scorer import OptimizerStep, Score
from mempiler.errors import UserError

EXAMPLE = dspy.Example(id="q1", question="Where?", answer="Lisbon")
PREDICTION = dspy.Prediction(answer="In Lisbon")
STEP = OptimizerStep(trace=["whole"], pred_name="task.answer", pred_trace=["part"])


def score_of(result: Any) -> Score:
    """The score by a function that returns this."""
    return FunctionScorer(lambda gold, pred: result).score(EXAMPLE, PREDICTION)


class Feedback(dspy.Prediction):
    """As GEPA's own type of a score with feedback."""


@pytest.mark.parametrize(
    ("result", "value", "feedback"),
    [
        (True, 1.0, None),
        (False, 0.0, None),
        (1, 1.0, None),
        (0.25, 0.25, None),
        (np.float32(0.5), 0.5, None),
        (np.bool_(True), 1.0, None),
        ((0.25, "Name the city."), 0.25, "Name the city."),
        ((0.25, None), 0.25, None),
        ((False, "Name the city."), 0.0, "Name the city."),
        (dspy.Prediction(score=0.25, feedback="Name the city."), 0.25, "Name the city."),
        (dspy.Prediction(score=0.25), 0.25, None),
        (Feedback(score=0.25, feedback="Name the city."), 0.25, "Name the city."),
        ({"score": 0.25, "feedback": "Name the city."}, 0.25, "Name the city."),
        (SimpleNamespace(score=0.25, feedback="Name the city."), 0.25, "Name the city."),
    ],
    ids=repr,
)
def test_every_form_of_a_score_is_read(result: Any, value: float, feedback: str | None) -> None:
    found = score_of(result)
    assert found.value == value
    assert found.parts == {"metric": value}
    if feedback is not None:
        assert found.feedback == feedback
    else:
        # A metric without feedback is explained by the gold answer.
        assert found.feedback
        if value != 1:
            assert "Lisbon" in found.feedback


@pytest.mark.parametrize(
    "result",
    [
        *(None, "0.5", 1.5, -0.1, float("nan"), (0.5, 3), (0.5, "a", "b"), [0.5, "a"], np.zeros(3)),
        *(
            dspy.Prediction(answer="Lisbon"),
            dspy.Prediction(score="good"),
            {"feedback": "none"},
            {"score": 2},
        ),
    ],
    ids=repr,
)
def test_an_invalid_score_is_refused_with_the_value_the_question_and_the_fix(result: Any) -> None:
    with pytest.raises(UserError) as refusal:
        score_of(result)
    message = str(refusal.value)
    assert " ".join(repr(result).split())[:20] in message
    assert "for 'q1'; it must return a bool or a number from 0 to 1, (score, feedback)" in message


def dspy_metric(gold: Any, pred: Any, trace: Any = None) -> Any:
    return 0.5, f"{trace}"


def gepa_metric(gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> Any:
    return dspy.Prediction(score=0.5, feedback=f"{trace} {pred_name} {pred_trace}")


def gepa_metric_with_other_names(
    example: Any, output: Any, whole: Any, name: Any, part: Any
) -> Any:
    return gepa_metric(example, output, whole, name, part)


def by_name_alone(gold: Any, pred: Any, *, pred_trace: Any, pred_name: Any = None) -> Any:
    return 0.5, f"{pred_name} {pred_trace}"


def with_a_setting(gold: Any, pred: Any, least: float = 0.5, trace: Any = None) -> Any:
    return least, f"{trace}"


class CallableMetric:
    def __call__(self, gold: Any, pred: Any, trace: Any = None) -> Any:
        return dspy_metric(gold, pred, trace)


class ModuleMetric(dspy.Module):
    def forward(self, gold: Any, pred: Any, trace: Any = None) -> Any:
        return dspy_metric(gold, pred, trace)


def unwrapped(*args: Any) -> Any:
    assert len(args) == 2
    return 0.5, "two"


@pytest.mark.parametrize(
    ("function", "in_a_step", "plainly"),
    [
        (dspy_metric, "['whole']", "None"),
        (gepa_metric, "['whole'] task.answer ['part']", "None None None"),
        (gepa_metric_with_other_names, "['whole'] task.answer ['part']", "None None None"),
        (by_name_alone, "task.answer ['part']", "None None"),
        (with_a_setting, "['whole']", "None"),
        (CallableMetric(), "['whole']", "None"),
        (ModuleMetric(), "['whole']", "None"),
        (functools.partial(with_a_setting, least=0.5), "['whole']", "None"),
        (unwrapped, "two", "two"),
    ],
)
def test_a_function_is_given_what_it_takes(function: Any, in_a_step: str, plainly: str) -> None:
    scorer = Combined(FunctionScorer(function), ExactMatch())
    assert scorer.score_step(EXAMPLE, PREDICTION, STEP).feedback == in_a_step
    found = scorer.score(EXAMPLE, PREDICTION)
    assert found.value == 0.5
    assert found.feedback == plainly
    assert found.parts["exact"] == 0.0


def test_feedback_is_that_of_one_predictor_where_the_function_asks_for_its_name() -> None:
    judged = [
        FunctionScorer(each).score_step(EXAMPLE, PREDICTION, STEP)
        for each in (gepa_metric, dspy_metric)
    ]
    assert [score.judged_predictor for score in judged] == ["task.answer", None]


def test_a_function_is_called_by_its_module_and_name() -> None:
    assert FunctionScorer(dspy_metric).title == f"{__name__}:dspy_metric"
    assert FunctionScorer(CallableMetric()).title == f"{__name__}:CallableMetric"
    assert (
        FunctionScorer(functools.partial(with_a_setting, least=0.1)).title
        == f"{__name__}:with_a_setting"
    )
    assert FunctionScorer(dspy_metric).score(EXAMPLE, PREDICTION).parts == {"dspy_metric": 0.5}


async def awaited(gold: Any, pred: Any) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda: 1.0, r"takes \(\); it must take \(example, prediction\)"),
        (lambda example: 1.0, r"takes \(example\); it must take"),
        (lambda a, b, c, d, e, f: 1.0, "it must take"),
        (lambda gold, pred, *, judge: 1.0, "it must take"),
        (lambda gold, pred, trace, /: 1.0, "it must take"),
        (CallableMetric, "is a class; give an instance"),
        (awaited, "is a coroutine function; give a plain one"),
        (3, "is 3, not a function"),
    ],
)
def test_a_function_that_could_only_fail_later_is_refused_at_once(
    function: Any, problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        FunctionScorer(function)
