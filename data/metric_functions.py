"""Your own function as a metric, in the forms that DSPy and GEPA take.

    def names_the_city(gold, pred):
        return gold.answer in pred.answer

    # DSPy sets `trace` while it makes demonstrations.
    def strict_in_demos(gold, pred, trace=None):
        score = overlap(gold.answer, pred.answer)
        return score if trace is None else score > 0.9

    # GEPA asks about one predictor.
    def coach(gold, pred, trace, pred_name, pred_trace):
        return dspy.Prediction(score=0.5, feedback=f"{pred_name}: name the city.")

A function returns a bool, a number from 0 to 1, `(score, feedback)`, or an object or mapping with
`score` and perhaps `feedback`. It is called from many threads, also under asyncio. It may block
there, since it does not run in the event loop.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError, LMError

from ..async_bridge import off_loop
from ..errors import MempilerError, UserError
from ..records.import_object import import_object
from ..text import one_line
from .common_scorers import explained
from .scorer import OptimizerStep, Score, Scorer, answer_of

STEP_PARAMETERS = ("trace", "pred_name", "pred_trace")
"""What a function may take beside the example and the prediction, in DSPy's order."""
EXPECTED_PARAMETERS = "(example, prediction) and, if it likes, trace, pred_name and pred_trace"
EXPECTED_RESULT = (
    "a bool or a number from 0 to 1, (score, feedback), or an object with `score` and `feedback`"
)
MAX_QUOTED = 80
"""Characters of a wrong value that an error message quotes."""


class FunctionScorer(Scorer):
    """Score answers by a function of the user's own, and check what it returns.

    Args:
        function: The function, or any other callable such as a `dspy.Module`; or its address,
            `module:function`.

    Raises:
        UserError: It cannot be imported, is not callable, is a class or a coroutine function, or
            takes other arguments.
    """

    def __init__(self, function: str | Callable[..., Any]) -> None:
        self.title = function if isinstance(function, str) else _address(function)
        self._function: Any = (
            import_object("metric", function) if isinstance(function, str) else function
        )
        _refuse_uncallable(self.title, self._function)
        self._step_parameters = _step_parameters(self.title, self._function)
        self._part = _part_name(self.title)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Score one answer; errors as of `score_step`."""
        return self.score_step(example, prediction, OptimizerStep())

    def score_step(
        self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep
    ) -> Score:
        """Score one answer; give the function those fields of the step that it has parameters for.

        Raises:
            UserError: The function raised, or returned something that is no score.
        """
        result = self._call(example, prediction, step)
        value, feedback = _unpack(result)
        number = _as_number(value)

        if number is None or not 0 <= number <= 1 or not isinstance(feedback, str | None):
            returned = one_line(repr(result), MAX_QUOTED)
            raise UserError(
                f"metric {self.title!r} returned {returned} for {example.id!r}; "
                f"it must return {EXPECTED_RESULT}"
            )

        # GEPA asks for feedback about one predictor, `step.pred_name`. A function that receives the
        # name writes about that predictor; any other function writes about the whole answer.
        receives_predictor = "pred_name" in self._step_parameters.values()
        judged_predictor: str | None = None
        if receives_predictor and feedback:
            judged_predictor = step.pred_name
        return Score(
            value=number,
            feedback=feedback or explained(example, answer_of(prediction), number),
            parts={self._part: number},
            judged_predictor=judged_predictor,
        )

    def _call(self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep) -> Any:
        """Call the user's function with an answer, and return its result.

        The function also gets each field of the optimizer's step that it has a parameter for.

        Raises:
            UserError: The function raised. Limits and errors of models are raised as they are.
        """
        arguments: dict[str, Any] = {}
        for parameter, step_field in self._step_parameters.items():
            arguments[parameter] = getattr(step, step_field)
        try:
            # The function may block, so it does not run in an event loop.
            return off_loop(functools.partial(self._function, example, prediction, **arguments))
        except (MempilerError, LMError, AdapterParseError):
            # The function is not to blame: a limit was reached, or a model failed that it asked.
            raise
        except (Exception, SystemExit) as error:
            # SystemExit: a function that calls `exit` would end the process without a message.
            reason = one_line(f"{type(error).__name__}: {error}")
            raise UserError(f"metric {self.title!r} failed on {example.id!r}: {reason}") from error


def _step_parameters(title: str, function: Callable[..., Any]) -> dict[str, str]:
    """Map a function's further parameters to the fields of `OptimizerStep` that they receive.

    A parameter that is called like a field receives it. One that has another name and no default
    receives what DSPy passes at its position. One that has another name and a default keeps it.
    """
    try:
        # A DSPy module shows in `forward` what its `__call__` passes on.
        signature = inspect.signature(
            function.forward if isinstance(function, dspy.Module) else function
        )
    except (TypeError, ValueError):
        # Some callables in C have no signature; they are asked in the simplest way.
        return {}

    parameters = list(signature.parameters.values())
    positional = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    keyword_only = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    has_varargs = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    wrong_parameters = UserError(
        f"metric {title!r} takes {signature}; it must take {EXPECTED_PARAMETERS}"
    )
    if len(positional) < 2 and not has_varargs:
        raise wrong_parameters

    further = positional[2:]
    received: dict[str, str] = {}
    for position, parameter in enumerate([*further, *keyword_only]):
        is_required = parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY:
            # Arguments are passed by name, which this one forbids.
            if is_required:
                raise wrong_parameters
        elif parameter.name in STEP_PARAMETERS:
            received[parameter.name] = parameter.name
        elif is_required:
            if position >= min(len(further), len(STEP_PARAMETERS)):
                raise wrong_parameters
            received[parameter.name] = STEP_PARAMETERS[position]
    return received


def _refuse_uncallable(title: str, function: Any) -> None:
    """Refuse what could only fail at the first question, when memories are already paid for."""
    if not callable(function):
        value = one_line(repr(function), MAX_QUOTED)
        raise UserError(
            f"metric {title!r} is {value}, not a function; it must take {EXPECTED_PARAMETERS}"
        )
    if inspect.isclass(function):
        raise UserError(
            f"metric {title!r} is a class; give an instance that takes {EXPECTED_PARAMETERS}"
        )
    if inspect.iscoroutinefunction(function):
        raise UserError(f"metric {title!r} is a coroutine function; give a plain one")


def _address(function: Any) -> str:
    """Return `module:qualname` of a function, or of the type of any other callable."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def _part_name(title: str) -> str:
    """Return what tables call the score: the last name of the function's address.

    A lambda has no name, so its score is called "metric".
    """
    name = title.rpartition(":")[2].rpartition(".")[2]
    return name if name.isidentifier() else "metric"


def _unpack(result: Any) -> tuple[Any, Any]:
    """Return the score and the feedback of what a metric returned.

    The feedback is None if there is none.
    """
    if isinstance(result, tuple) and len(result) == 2:
        return result
    if isinstance(result, Mapping) and "score" in result:
        return result["score"], result.get("feedback")
    return getattr(result, "score", result), getattr(result, "feedback", None)


def _as_number(value: Any) -> float | None:
    """Return a score as a float, also a scalar of NumPy or torch; None for what is no number."""
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (TypeError, ValueError, RuntimeError):
            return None
    return float(value) if isinstance(value, Real) else None
