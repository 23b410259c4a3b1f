"""Your own metrics: every form of DSPy and GEPA is accepted, and what is no score is refused."""

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
"""What an optimizer tells a metric: the calls of the program, and a predictor with its own calls.

The texts "whole" and "part" stand for calls. The metrics below repeat them in their feedback.
"""


def score_of(result: Any) -> Score:
    """Score the answer "In Lisbon", where "Lisbon" is right, by a function that returns this."""
    return FunctionScorer(lambda gold, pred: result).score(EXAMPLE, PREDICTION)


class ScoreWithFeedback(dspy.Prediction):
    """A stand-in for the type of GEPA that has this name: a prediction of a subclass."""


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (True, 1.0),
        (False, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        ((0.25, None), 0.25),
        (dspy.Prediction(score=0.25), 0.25),
    ],
    ids=repr,
)
def test_a_score_without_feedback_is_explained_by_the_gold_answer(
    result: Any, value: float
) -> None:
    """A function may return a value alone. Optimizers read feedback, so one is made up.

    The gold answer is "Lisbon".
    """
    score = score_of(result)

    assert score.value == value
    assert score.parts == {"metric": value}
    expected_feedback = "Right" if value == 1 else "Lisbon"
    assert expected_feedback in score.feedback


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ((0.25, "Name the city."), 0.25),
        ((False, "Name the city."), 0.0),
        (dspy.Prediction(score=0.25, feedback="Name the city."), 0.25),
        (ScoreWithFeedback(score=0.25, feedback="Name the city."), 0.25),
        ({"score": 0.25, "feedback": "Name the city."}, 0.25),
        (SimpleNamespace(score=0.25, feedback="Name the city."), 0.25),
    ],
    ids=repr,
)
def test_a_score_with_feedback_is_read_in_every_form(result: Any, value: float) -> None:
    """DSPy and GEPA let a metric return a pair, a prediction, or another object with two fields."""
    score = score_of(result)

    assert score.value == value
    assert score.parts == {"metric": value}
    assert score.feedback == "Name the city."


@pytest.mark.parametrize(
    "result",
    [
        None,
        "0.5",
        1.5,
        -0.1,
        float("nan"),
        (0.5, 3),
        (0.5, "a", "b"),
        [0.5, "a"],
        np.zeros(3),
        dspy.Prediction(answer="Lisbon"),
        dspy.Prediction(score="good"),
        {"feedback": "none"},
        {"score": 2},
    ],
    ids=repr,
)
def test_an_invalid_score_is_refused_with_the_value_the_question_and_the_fix(result: Any) -> None:
    """A function of the user scored the question q1, and returned `result`."""
    with pytest.raises(UserError) as refusal:
        score_of(result)

    message = str(refusal.value)
    beginning_of_value = " ".join(repr(result).split())[:20]
    assert beginning_of_value in message
    assert "for 'q1'; it must return a bool or a number from 0 to 1, (score, feedback)" in message


# Metrics that take what an optimizer says of a step in different ways. Their feedback repeats it.


def dspy_metric(gold: Any, pred: Any, trace: Any = None) -> Any:
    return 0.5, f"{trace}"


def gepa_metric(gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> Any:
    return dspy.Prediction(score=0.5, feedback=f"{trace} {pred_name} {pred_trace}")


def gepa_metric_with_other_names(
    example: Any, output: Any, whole: Any, name: Any, part: Any
) -> Any:
    return gepa_metric(example, output, whole, name, part)


def metric_with_keywords(gold: Any, pred: Any, *, pred_trace: Any, pred_name: Any = None) -> Any:
    return 0.5, f"{pred_name} {pred_trace}"


def metric_with_a_setting(gold: Any, pred: Any, least: float = 0.5, trace: Any = None) -> Any:
    return least, f"{trace}"


class CallableMetric:
    """A metric that is an object."""

    def __call__(self, gold: Any, pred: Any, trace: Any = None) -> Any:
        return dspy_metric(gold, pred, trace)


class ModuleMetric(dspy.Module):
    """A metric that is a DSPy module."""

    def forward(self, gold: Any, pred: Any, trace: Any = None) -> Any:
        return dspy_metric(gold, pred, trace)


def feedback_in_an_optimizer(function: Any) -> str:
    """Return the feedback of a metric that an optimizer asks about a step, `STEP`."""
    return FunctionScorer(function).score_step(EXAMPLE, PREDICTION, STEP).feedback


def feedback_otherwise(function: Any) -> str:
    """Return the feedback of a metric that is asked outside of an optimizer."""
    return FunctionScorer(function).score(EXAMPLE, PREDICTION).feedback


@pytest.mark.parametrize(
    "function",
    [
        dspy_metric,
        metric_with_a_setting,
        functools.partial(metric_with_a_setting, least=0.5),
        CallableMetric(),
        ModuleMetric(),
    ],
)
def test_a_metric_of_dspy_gets_the_trace_in_an_optimizer(function: Any) -> None:
    """A metric of DSPy takes `gold`, `pred` and `trace`. Its feedback here is the trace."""
    assert feedback_in_an_optimizer(function) == "['whole']"
    assert feedback_otherwise(function) == "None"


@pytest.mark.parametrize("function", [gepa_metric, gepa_metric_with_other_names])
def test_a_metric_of_gepa_is_told_of_a_predictor_too(function: Any) -> None:
    """GEPA, an optimizer, names a predictor, and gives its own trace beside that of the program."""
    assert feedback_in_an_optimizer(function) == "['whole'] task.answer ['part']"
    assert feedback_otherwise(function) == "None None None"


def test_a_metric_with_keywords_gets_what_they_are_named_for() -> None:
    """This metric has no argument `trace`, and its keywords stand in another order than GEPA's."""
    assert feedback_in_an_optimizer(metric_with_keywords) == "task.answer ['part']"
    assert feedback_otherwise(metric_with_keywords) == "None None"


def test_a_metric_of_any_arguments_gets_the_example_and_the_prediction() -> None:
    """It does not say that it wants more, such as a trace."""

    def count_arguments(*args: Any) -> Any:
        return 0.5, f"{len(args)} arguments"

    assert feedback_in_an_optimizer(count_arguments) == "2 arguments"
    assert feedback_otherwise(count_arguments) == "2 arguments"


def test_a_function_is_combined_with_other_metrics() -> None:
    """The value is that of the function. Other metrics, here exact match, are further parts."""
    scorer = Combined(FunctionScorer(dspy_metric), ExactMatch())

    score = scorer.score(EXAMPLE, PREDICTION)

    assert score.value == 0.5
    assert score.parts == {"dspy_metric": 0.5, "exact": 0.0}


def test_a_combined_function_is_told_of_a_step_of_an_optimizer() -> None:
    """The function repeats in its feedback what the optimizer tells: a trace, here ["whole"]."""
    scorer = Combined(FunctionScorer(dspy_metric), ExactMatch())

    score = scorer.score_step(EXAMPLE, PREDICTION, STEP)

    assert score.value == 0.5
    assert score.feedback == "['whole']"


def test_feedback_is_about_one_predictor_if_the_function_takes_its_name() -> None:
    """GEPA, an optimizer, asks a metric about a predictor: one prompt of the program."""

    def judge_predictor(gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> Any:
        return 0.5, f"{pred_name} did well"

    step = OptimizerStep(trace=[], pred_name="task.answer", pred_trace=[])

    score = FunctionScorer(judge_predictor).score_step(EXAMPLE, PREDICTION, step)

    assert score.feedback == "task.answer did well"
    assert score.judged_predictor == "task.answer"


def test_feedback_is_about_the_whole_program_if_the_function_takes_no_predictor() -> None:
    def judge_program(gold: Any, pred: Any, trace: Any = None) -> Any:
        return 0.5, "done well"

    step = OptimizerStep(trace=[], pred_name="task.answer", pred_trace=[])

    score = FunctionScorer(judge_program).score_step(EXAMPLE, PREDICTION, step)

    assert score.judged_predictor is None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (dspy_metric, "dspy_metric"),
        (CallableMetric(), "CallableMetric"),
        (functools.partial(metric_with_a_setting, least=0.1), "metric_with_a_setting"),
    ],
)
def test_a_metric_is_called_by_its_module_and_name(function: Any, name: str) -> None:
    """Reports show the title of a metric."""
    assert FunctionScorer(function).title == f"{__name__}:{name}"


async def coroutine_metric(gold: Any, pred: Any) -> float:
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
        (coroutine_metric, "is a coroutine function; give a plain one"),
        (3, "is 3, not a function"),
    ],
)
def test_a_function_that_could_only_fail_later_is_refused_at_once(
    function: Any, problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        FunctionScorer(function)
