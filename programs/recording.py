"""Record the calls of predictors in a block of code: inputs, predictions and failures.

    with recording() as recorder:
        program(history=history, question="Where does Ada live?")
    [call.outcome for call in recorder.calls]           # ["ok", "repaired", "ok"]

Calls come in program order, those of `gather` too, so that two rollouts can be compared. An inner
recording keeps its calls to itself, and recording costs nothing while none is active.
"""

from __future__ import annotations

import contextvars
import sysconfig
import time
import traceback
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import dspy

from ..engines.call_context import call_context, current_context, measure_usage, record_usage
from ..engines.usage import Usage
from ..errors import UserError
from ..memory.search.timing import SearchTime
from ..reading.failures import failure_kind
from ..records import Failure, Hit
from ..records.context_variables import set_context
from ..secret_values import Secrets, secrets_of_environment, secrets_of_settings
from ..text import one_line
from .call_order import CALL_ORDER, CallOrder
from .pending import Recalled

MAX_ERROR_LENGTH = 300
"""Most characters of an error message that is kept."""

_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
"""Folders of Python and of installed packages."""
_PACKAGE = __name__.partition(".")[0]

Prompt = str | Sequence[Mapping[str, Any]] | None
"""What a model is asked: messages of role and content, or a text."""


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


@dataclass(frozen=True)
class Completion:
    """One raw completion of a language model."""

    messages: tuple[dict[str, str], ...]
    """The prompt as messages of role and content."""
    text: str
    sample: Any = None
    """The engine's record of it (token ids, log-probabilities), if the engine keeps one."""


@dataclass
class PredictorCall:
    """One call of a predictor."""

    predictor: Any
    inputs: dict[str, Any]
    prediction: dspy.Prediction | None = None
    """What was parsed; None if nothing could be."""
    completions: list[Completion] = field(default_factory=list[Completion])
    """Raw completions, if the recorder keeps them."""
    error: str | None = None
    """Why the last completion could not be read."""
    rejected_operations: int = 0
    """How many operations of the answer code refused, such as those on an unknown id."""
    fault_counts: Counter[str] = field(default_factory=Counter[str])
    """What was wrong with the answers, by kind: repairs, retries, and why the call failed."""
    retried: bool = False
    failed: bool = False
    order: tuple[int, ...] = ()
    """Place in program order."""
    started: float = field(default_factory=time.perf_counter)
    """When it began, on the clock of `time.perf_counter`."""
    usage: Usage = field(default_factory=Usage)
    """What all attempts together used."""

    @property
    def outcome(self) -> Literal["ok", "repaired", "retried", "lost"]:
        """How the answer was read: at once, after repairs, at the second attempt, or not at all."""
        if self.failed:
            return "lost"
        if self.retried:
            return "retried"
        if self.fault_counts:
            return "repaired"
        return "ok"

    def add_completions(
        self, prompt: Prompt, answers: Sequence[Any], samples: Sequence[Any] = ()
    ) -> None:
        """Keep the raw completions of a prompt.

        Args:
            prompt: What the model was asked.
            answers: The answers as DSPy has them, texts or dictionaries with a "text".
            samples: The engine's records of the answers, if it keeps any; they replace the answers.
        """
        messages = _plain_messages(prompt)
        if samples:
            for sample in samples:
                self.completions.append(Completion(messages, sample.text, sample))
            return
        for answer in answers:
            text = answer.get("text") if isinstance(answer, dict) else answer
            self.completions.append(Completion(messages, str(text or "")))


class RecordedRecall(NamedTuple):
    """What was recalled for a question, and when."""

    at: float
    """On the clock of `time.perf_counter`."""
    recalled: Recalled


class RankedHits(NamedTuple):
    """The hits of a plain search, at least as many as a recorder asked for."""

    reader: Any
    """The reader that searched."""
    hits: list[Hit]


@dataclass
class CallRecorder:
    """What one recording holds; several threads may add to it at the same time."""

    keep_completions: bool = False
    """Whether raw completions are kept, with the records of a local model."""
    ranking_depth: int = 0
    """How many hits of a plain search are wanted, beside those that are recalled."""
    calls: list[PredictorCall] = field(default_factory=list[PredictorCall])
    """The calls; in program order once the recording has ended."""
    failures: list[Failure] = field(default_factory=list[Failure])
    """Failures that methods recorded instead of raising; sorted once the recording has ended."""
    recalled: list[RecordedRecall] = field(default_factory=list[RecordedRecall])
    """What was recalled, also where no answer came of it."""
    searches: list[SearchTime] = field(default_factory=list[SearchTime])
    """What the parts of each search took."""
    ranked: RankedHits | None = None
    """The last ranking of a plain search."""


CURRENT_RECORDING: contextvars.ContextVar[CallRecorder | None] = contextvars.ContextVar(
    "recording", default=None
)
"""The innermost recording that is active."""
CURRENT_CALL: contextvars.ContextVar[PredictorCall | None] = contextvars.ContextVar(
    "call", default=None
)
"""The call of a predictor that is running."""


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
            set_context(CURRENT_RECORDING, recorder),
            set_context(CURRENT_CALL, None),
            set_context(CALL_ORDER, CallOrder()),
            call_context(on_call=None),
        ):
            yield recorder
    finally:
        recorder.calls.sort(key=lambda call: call.order)
        recorder.failures.sort(key=lambda failure: (failure.where, failure.message))


@contextmanager
def record_call(predictor: Any, inputs: dict[str, Any]) -> Generator[PredictorCall]:
    """Record one call of a predictor, which is made in the block.

    The meter of the language model counts how the call ended, even while nothing records.

    Raises:
        UserError: No language model is set.
    """
    call_order = CALL_ORDER.get()
    order = () if call_order is None else call_order.next_position()
    call = PredictorCall(predictor, dict(inputs), order=order)
    lm = call.inputs.get("lm") or getattr(predictor, "lm", None) or dspy.settings.lm
    try:
        with set_context(CURRENT_CALL, call), _record_in_current(call):
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
    recorder = CURRENT_RECORDING.get()
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


def _count_answer(lm: Any, call: PredictorCall) -> None:
    """Tell the meter of the language model how a call ended, if it has one."""
    meter = getattr(lm, "meter", None)
    if meter is not None:
        meter.add_answer(call.predictor.label, call.outcome, call.fault_counts)


def _hide_secrets(lm: Any, error: Exception) -> None:
    """Remove keys from an error: a model that the user made repeats what its server says."""
    secrets = [*secrets_of_settings(getattr(lm, "kwargs", {})), *secrets_of_environment()]
    Secrets(secrets).hide_in_error(error)


def record_failure(failure: Failure) -> None:
    """Add a failure to the current recording, if there is one."""
    recorder = CURRENT_RECORDING.get()
    if recorder is not None:
        recorder.failures.append(failure)


def record_rejected(predictor: Any, count: int) -> None:
    """Record that code refused operations in the answer of the predictor's latest call."""
    recorder = CURRENT_RECORDING.get()
    if recorder is None:
        return
    for call in reversed(recorder.calls):
        if call.predictor is predictor:
            call.rejected_operations += count
            return


def _plain_messages(prompt: Prompt) -> tuple[dict[str, str], ...]:
    """Return a prompt as messages whose content is a text."""
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)

    messages: list[dict[str, str]] = []
    for message in prompt or ():
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(_text_of_part(part) for part in content)
        messages.append({"role": str(message["role"]), "content": str(content or "")})
    return tuple(messages)


def _text_of_part(part: Any) -> str:
    """Return the text of one part of a message; an image has none."""
    if isinstance(part, dict):
        return part.get("text", "")
    return str(part)
