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
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import dspy

from ..engines.call_context import call_context, current_context, measure_usage, record_usage
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
    """Raised if something outside Mempiler failed; the questions that need it fail with it."""


def failure_of(where: str, error: BaseException) -> Failure:
    """Return the failure that stands for an error in tables."""
    kind = failure_kind(error)
    message = one_line(error, MAX_ERROR_LENGTH)
    if kind == "error" and not isinstance(error, ExternalError):
        message = f"{type(error).__name__}: {message}{user_code_location(error)}"
    return Failure(kind=kind, where=where, message=message)


def user_code_location(error: BaseException | None) -> str:
    """Return where in the user's code an error was raised, such as " (mine.py:12)".

    It is empty if the error was not raised there.
    """
    while error is not None:
        frames = list(traceback.walk_tb(error.__traceback__))
        for frame, line in reversed(frames):
            if _is_user_code(frame):
                return f" ({Path(frame.f_code.co_filename).name}:{line})"
        error = error.__cause__ or error.__context__
    return ""


def _is_user_code(frame: FrameType) -> bool:
    """Return whether a frame runs a file that is neither ours nor installed."""
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    file = Path(frame.f_code.co_filename)
    if package == _PACKAGE or file.suffix != ".py":
        return False
    return not any(str(folder) in _INSTALLED for folder in file.parents)


@contextmanager
def recording(keep_completions: bool = False, ranking_depth: int = 0) -> Generator[CallRecorder]:
    """Record every predictor call and failure of the block.

    Args:
        keep_completions: Whether raw completions are kept.
        ranking_depth: How many hits of a plain search are wanted.
    """
    recorder = CallRecorder(keep_completions, ranking_depth)
    try:
        with (
            program_context(recorder=recorder, running_call=None, call_order=CallOrder()),
            call_context(on_call=None),
        ):
            yield recorder
    finally:
        recorder.sort()


@contextmanager
def record_call(predictor: Any, inputs: dict[str, Any]) -> Generator[PredictorCall]:
    """Record one call of a predictor, which is made in the block.

    The meter of the language model counts how the call ended, even while nothing records.

    Raises:
        UserError: No language model is set.
    """
    call_order = current_program_context().call_order
    order = () if call_order is None else call_order.next_position()
    call = PredictorCall(predictor, dict(inputs), order=order)
    lm = call.inputs.get("lm") or getattr(predictor, "lm", None) or dspy.settings.lm
    try:
        with program_context(running_call=call), _record_in_current(call):
            # Checked inside the recording, so that it holds what would have been asked.
            if lm is None:
                raise UserError(
                    "no language model: pass lm=dspy.LM(...), or call dspy.configure(lm=...)"
                )
            yield call
    except Exception as error:
        _hide_secrets(lm, error)
        _note_error(call, error)
        if call.failed:
            _count_answer(lm, call)
        raise
    _count_answer(lm, call)


@contextmanager
def _record_in_current(call: PredictorCall) -> Generator[None]:
    """Add a call to the current recording, with what the block uses."""
    recorder = current_program_context().recorder
    if recorder is None:
        yield
        return

    recorder.calls.append(call)
    listener = call.add_completions if recorder.keep_completions else current_context().on_call
    try:
        with measure_usage() as tracker, call_context(on_call=listener):
            try:
                yield
            finally:
                call.usage = tracker.usage
    finally:
        # The block around the call used it too. Its clock runs already.
        record_usage(replace(call.usage, seconds=0.0))


def _note_error(call: PredictorCall, error: Exception) -> None:
    """Keep why a call failed; an error of ours or of the user's code is no failure of the model."""
    kind = failure_kind(error)
    call.error = one_line(error, MAX_ERROR_LENGTH) or type(error).__name__
    if kind != "error":
        call.failed = True
        call.fault_counts[kind] += 1


def _count_answer(lm: dspy.BaseLM | None, call: PredictorCall) -> None:
    """Tell the meter of the language model how a call ended, if it has one."""
    meter = getattr(lm, "meter", None)
    if meter is not None:
        meter.add_answer(call.predictor.label, call.outcome, call.fault_counts)


def _hide_secrets(lm: dspy.BaseLM | None, error: Exception) -> None:
    """Remove keys from an error: a model that the user made repeats what its server says."""
    secrets = [*secrets_of_settings(getattr(lm, "kwargs", {})), *secrets_of_environment()]
    Secrets(secrets).hide_in_error(error)


def record_failure(failure: Failure) -> None:
    """Add a failure to the current recording, if there is one."""
    recorder = current_program_context().recorder
    if recorder is not None:
        recorder.failures.append(failure)


def record_rejected(predictor: Any, count: int) -> None:
    """Record that code refused operations in the answer of the predictor's latest call."""
    recorder = current_program_context().recorder
    if recorder is not None:
        recorder.add_rejected(predictor, count)


def record_retry(fault: FailureKind) -> None:
    """Record in the running call that its answer is asked for again.

    Args:
        fault: What was wrong with the answer.
    """
    call = current_program_context().running_call
    if call is not None:
        call.retried = True
        call.fault_counts[fault] += 1


def record_faults(faults: Iterable[str]) -> None:
    """Record in the running call what was wrong with an answer that could be read all the same."""
    call = current_program_context().running_call
    if call is not None:
        call.fault_counts.update(faults)
