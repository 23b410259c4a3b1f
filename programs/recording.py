"""Record the calls of predictors in a block of code: inputs, predictions and failures.

Example:
    with recording() as recorder:
        program(history=history, question="Where does Ada live?")
    [call.outcome for call in recorder.calls]           # ["ok", "repaired", "ok"]

Calls come in program order, those of `gather` too, so that two rollouts can be compared. An inner
recording keeps its calls to itself, and recording costs nothing while none is active.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import dspy

from ..engines.call_context import call_context, measure_part
from ..engines.usage import Usage
from ..errors import UserError
from ..reading.failures import failure_kind
from ..records import Failure
from ..records.context import FailureKind
from ..secret_values import Secrets, secrets_of_environment, secrets_of_settings
from ..text import one_line
from ._call_order import CallOrder
from ._context import current_program_context, program_context
from .call_recorder import CallRecorder, PredictorCall

MAX_ERROR_LENGTH = 300
"""Most characters of an error message that is kept."""

_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
"""Folders of Python and of installed packages."""
_PACKAGE = __name__.partition(".")[0]


class ExternalError(Exception):
    """Raised if something outside Mempiler failed; the questions that need it fail with it.

    Args:
        message: What failed.
        usage: Model calls that were made in vain and are counted nowhere else.
    """

    def __init__(self, message: str = "", usage: Usage | None = None) -> None:
        super().__init__(message)
        self.usage = usage or Usage()


@contextmanager
def exits_as_errors() -> Generator[None]:
    """Raise an ExternalError in place of a SystemExit in the block.

    Code of the user's, such as a model or a method, may call `exit`. That is a failure of the
    question that needs it, and must neither end the process nor a thread that others wait for.
    """
    try:
        yield
    except SystemExit as error:
        message = f"SystemExit: {error}{user_code_location(error)}"
        raise ExternalError(message) from error


def failure_of(where: str, error: BaseException) -> Failure:
    """Return a `Failure` that describes an error, for methods that go on after recording it.

    Args:
        where: What failed, e.g. the name of a predictor.
        error: The error.
    """
    kind = failure_kind(error)
    message = one_line(error, MAX_ERROR_LENGTH)
    # No language model caused an error of the kind "error". Unless it is external, it is probably a
    # mistake in code, which the class of the error and its place help to find.
    if kind == "error" and not isinstance(error, ExternalError):
        message = f"{type(error).__name__}: {message}{user_code_location(error)}"
    return Failure(kind=kind, where=where, message=message)


def user_code_location(error: BaseException | None) -> str:
    """Return the innermost line of the user's own code that led to an error: " (mine.py:12)".

    The result is "" if no code of the user's is involved.
    """
    # An error of Mempiler may have been raised because of an error in the user's code.
    while error is not None:
        frames = list(traceback.walk_tb(error.__traceback__))
        for frame, line in reversed(frames):
            if _is_user_code(frame):
                return f" ({Path(frame.f_code.co_filename).name}:{line})"
        error = error.__cause__ or error.__context__
    return ""


def _is_user_code(frame: FrameType) -> bool:
    """Return whether a frame of a traceback runs the user's code.

    That is a Python file that belongs neither to Mempiler, nor to Python or an installed package.
    """
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    file = Path(frame.f_code.co_filename)
    if package == _PACKAGE or file.suffix != ".py":
        return False
    return not any(str(folder) in _INSTALLED for folder in file.parents)


@contextmanager
def recording(keep_completions: bool = False, ranking_depth: int = 0) -> Generator[CallRecorder]:
    """Record every call of a predictor and every failure in the block.

    The recorder is yielded. A recording around the block records nothing of what happens in it.

    Args:
        keep_completions: Whether the texts of the model's answers are kept as they came.
        ranking_depth: How many hits of a search are recorded, if more than the program recalls.
    """
    recorder = CallRecorder(keep_completions, ranking_depth)
    try:
        with (
            program_context(recorder=recorder, running_call=None, call_order=CallOrder()),
            # A recording around this one may listen to calls of models; it must not hear these.
            call_context(on_call=None),
        ):
            yield recorder
    finally:
        # Concurrent calls have ended in any order.
        recorder.sort()


@contextmanager
def record_call(predictor: Any, inputs: dict[str, Any]) -> Generator[PredictorCall]:
    """Record one call of a predictor, which the code in the block makes.

    The record is yielded, and the block sets its prediction. If no recording is active, nobody sees
    the record, but the meter of the language model still counts how the call ended.

    Args:
        predictor: The predictor.
        inputs: The arguments of the call.

    Raises:
        UserError: No language model is set.
    """
    call_order = current_program_context().call_order
    # Calls are only numbered while a recording is active.
    order = () if call_order is None else call_order.next_position()
    call = PredictorCall(predictor, dict(inputs), order=order)

    # DSPy asks the model of the call, or else that of the predictor, or else that of its settings.
    lm = call.inputs.get("lm") or getattr(predictor, "lm", None) or dspy.settings.lm
    try:
        with program_context(running_call=call), _record_in_current(call):
            # Checked in here, so that the recording shows the call even if there is no model.
            if lm is None:
                raise UserError(
                    "no language model: pass lm=dspy.LM(...), or call dspy.configure(lm=...)"
                )
            yield call
    except Exception as error:
        _hide_secrets(lm, error)
        _set_error(call, error)
        # `failed` stays False for a mistake in code, which says nothing about the model.
        if call.failed:
            _count_answer(lm, call)
        raise
    _count_answer(lm, call)


def record_call_of_system(
    predictor: dspy.Predict, inputs: dict[str, Any], prediction: dspy.Prediction
) -> None:
    """Add a call to the active recording that no predictor made, but somebody else's system.

    If no recording is active, nothing happens. The usage of the call is measured elsewhere.

    Args:
        predictor: Stands for the text of the system that had a part in the call.
        inputs: The inputs of the call by the names of the predictor's fields.
        prediction: What the model answered.
    """
    context = current_program_context()
    if context.recorder is None:
        return
    order = () if context.call_order is None else context.call_order.next_position()
    call = PredictorCall(predictor, inputs, prediction, order=order)
    context.recorder.calls.append(call)


@contextmanager
def _record_in_current(call: PredictorCall) -> Generator[None]:
    """Add a predictor call to the active recording, and measure what the block uses for it.

    If no recording is active, the block just runs.
    """
    recorder = current_program_context().recorder
    if recorder is None:
        yield
        return

    recorder.calls.append(call)
    keep_completions: AbstractContextManager[None] = nullcontext()
    if recorder.keep_completions:
        # While the block runs, every answer of a model is passed to the record of the call.
        keep_completions = call_context(on_call=call.add_completions)
    with _measure_usage_of(call), keep_completions:
        yield


@contextmanager
def _measure_usage_of(call: PredictorCall) -> Generator[None]:
    """Set the usage of a predictor call to what the block uses: model calls, tokens, cost and time.

    It is set even if the block raises an error, since a call that fails has used something too.
    """
    with measure_part() as tracker:
        try:
            yield
        finally:
            call.usage = tracker.usage


def _set_error(call: PredictorCall, error: Exception) -> None:
    """Record why a call raised an error.

    The call counts as failed only if the model or its endpoint is to blame, and not for a mistake
    in code, which has the kind "error".
    """
    kind = failure_kind(error)
    call.error = one_line(error, MAX_ERROR_LENGTH) or type(error).__name__
    if kind != "error":
        call.failed = True
        call.fault_counts[kind] += 1


def _count_answer(lm: dspy.BaseLM | None, call: PredictorCall) -> None:
    """Count in the meter of a language model how a call ended.

    Models that the user made have no meter, so nothing is counted for them.
    """
    meter = getattr(lm, "meter", None)
    if meter is not None:
        meter.add_answer(call.predictor.label, call.outcome, call.fault_counts)


def _hide_secrets(lm: dspy.BaseLM | None, error: Exception) -> None:
    """Remove API keys from the message of an error.

    A server may repeat a key in its answer, and a model that the user made raises that as it is.
    """
    secrets = [*secrets_of_settings(getattr(lm, "kwargs", {})), *secrets_of_environment()]
    Secrets(secrets).hide_in_error(error)


def record_failure(failure: Failure) -> None:
    """Add a failure to the current recording, if there is one."""
    recorder = current_program_context().recorder
    if recorder is not None:
        recorder.failures.append(failure)


def record_rejected(predictor: Any, count: int) -> None:
    """Record that code refused operations that the predictor's latest answer asked for.

    Args:
        predictor: The predictor.
        count: How many operations were refused, e.g. the update of an unknown fact.
    """
    recorder = current_program_context().recorder
    if recorder is not None:
        recorder.add_rejected(predictor, count)


def record_retry(fault: FailureKind) -> None:
    """Mark the running predictor call as retried: the model is asked for its answer once more.

    Args:
        fault: What was wrong with the first answer.
    """
    call = current_program_context().running_call
    if call is not None:
        call.retried = True
        call.fault_counts[fault] += 1


def record_faults(faults: Iterable[str]) -> None:
    """Add faults to the running predictor call: what had to be repaired to read its answer."""
    call = current_program_context().running_call
    if call is not None:
        call.fault_counts.update(faults)
