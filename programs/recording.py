"""Records what the predictors of a piece of work were asked, what came back, and what failed.

Calls come in program order, also those of `gather`, so that two rollouts can be compared. It costs nothing while no
recording is active; an inner recording keeps its calls to itself. A failure that concerns one prompt alone
(`reading.failures`) is counted and skipped. Only `endpoint` says something of other prompts.
"""

from __future__ import annotations

import contextvars
import sysconfig
import time
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import dspy

from ..engines.call_context import call_context, measure_usage, record_usage
from ..engines.usage import Usage
from ..errors import UserError
from ..reading.failures import failure_kind
from ..records import Failure, Hit
from ..records.context_variables import set_context
from ..secret_values import Secrets, secrets_of_environment, secrets_of_settings
from ..text import one_line
from .call_order import CALL_ORDER, CallOrder
from .pending import Recalled


class ExternalError(Exception):
    """Raised if something external failed to do what it was asked: the failure of the questions that hang on it."""


def failure_of(where: str, error: BaseException) -> Failure:
    """The failure that stands for an error in tables."""
    kind, message = failure_kind(error), one_line(error, 300)
    if kind == "error" and not isinstance(error, ExternalError):
        message = f"{type(error).__name__}: {message}{user_code_location(error)}"
    return Failure(kind=kind, where=where, message=message)


def user_code_location(error: BaseException | None) -> str:
    """Where in the user's own code an error was raised, e.g. " (mine.py:12)"; empty where it was not raised in it."""
    while error is not None:
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            file = Path(frame.f_code.co_filename)
            ours = frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]
            if not ours and file.suffix == ".py" and not _INSTALLED & {*map(str, file.parents)}:
                return f" ({file.name}:{line})"
        error = error.__cause__ or error.__context__
    return ""


_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
"""Folders of Python and of installed packages."""


@dataclass(frozen=True)
class Completion:
    """One raw completion of a language model."""

    messages: tuple[dict[str, str], ...]
    """The prompt as messages of role and content."""
    text: str
    sample: Any = None
    """The engine's record of it (token ids, log-probabilities), where the engine keeps one."""


@dataclass
class PredictorCall:
    """One call of a predictor."""

    predictor: Any
    inputs: dict[str, Any]
    prediction: Any = None
    """What was parsed; None if nothing could be."""
    completions: list[Completion] = field(default_factory=list[Completion])
    """Raw completions, where the recording keeps them."""
    error: str | None = None
    """Why the last completion could not be read."""
    rejected_operations: int = 0
    """Operations of the output that code had to refuse, e.g. on an id that is not there."""
    fault_counts: Counter[str] = field(default_factory=Counter[str])
    """What was wrong with its answers by kind: repairs, what was asked for again, why it was lost."""
    retried: bool = False
    failed: bool = False
    order: tuple[int, ...] = ()
    """Place in program order."""
    started: float = field(default_factory=time.perf_counter)
    """When it began, on the clock of `time.perf_counter`."""
    usage: Usage = field(default_factory=Usage)
    """What it took, all attempts together."""

    @property
    def outcome(self) -> Literal["ok", "repaired", "retried", "lost"]:
        """How it ended: read as it came, read after repairs, read the second time, not read."""
        if self.failed:
            return "lost"
        return "retried" if self.retried else "repaired" if self.fault_counts else "ok"

    def add_completions(self, asked: Any, answers: Sequence[Any], samples: Sequence[Any] = ()) -> None:
        """Keeps the raw completions of a prompt, messages or a text; answers are as DSPy has them."""
        messages: list[dict[str, str]] = []
        for message in [{"role": "user", "content": asked}] if isinstance(asked, str) else asked or ():
            content = message.get("content")
            if isinstance(content, list):
                content = "".join(part.get("text", "") if isinstance(part, dict) else str(part) for part in content)
            messages.append({"role": str(message["role"]), "content": str(content or "")})
        texts = (each.get("text") if isinstance(each, dict) else each for each in answers)
        found = [Completion(tuple(messages), str(text or "")) for text in texts]
        self.completions += [Completion(tuple(messages), each.text, each) for each in samples] or found


@dataclass
class CallRecorder:
    """What one recording has heard; several threads may add at once."""

    keep_completions: bool = False
    """Whether raw completions are kept, with what a local model records of them."""
    ranking_depth: int = 0
    """How many hits of a plain search are wanted, beside those that are recalled."""
    calls: list[PredictorCall] = field(default_factory=list[PredictorCall])
    """In program order, once the recording has ended."""
    failures: list[Failure] = field(default_factory=list[Failure])
    """What methods recorded instead of raising, by place and words once the recording has ended."""
    recalled: list[tuple[float, Recalled]] = field(default_factory=list[tuple[float, Recalled]])
    """What was recalled, also where no answer came of it, and when, on the clock of `time.perf_counter`."""
    searches: list[tuple[float, float]] = field(default_factory=list[Any])
    """Seconds of what was searched to recall it, and those of CPU; see `memory.indexes.SEARCH_TIMES`."""
    ranked: tuple[Any, list[Hit]] | None = None
    """The reader that last recalled the best hits of its plain search, and `depth` of these at least."""


CURRENT_RECORDING: contextvars.ContextVar[CallRecorder | None] = contextvars.ContextVar("recording", default=None)
"""The innermost recording that is active."""
CURRENT_CALL: contextvars.ContextVar[PredictorCall | None] = contextvars.ContextVar("call", default=None)
"""The call of a predictor that is running."""


@contextmanager
def recording(raw: bool = False, depth: int = 0) -> Generator[CallRecorder]:
    """Records every predictor call and failure of the block; arguments as the fields of `CallRecorder`."""
    record = CallRecorder(raw, depth)
    try:
        with (
            set_context(CURRENT_RECORDING, record),
            set_context(CURRENT_CALL, None),
            set_context(CALL_ORDER, CallOrder()),
            call_context(on_call=None),
        ):
            yield record
    finally:
        record.calls.sort(key=lambda call: call.order)
        record.failures.sort(key=lambda failure: (failure.where, failure.message))


@contextmanager
def record_call(predictor: Any, inputs: dict[str, Any]) -> Generator[PredictorCall]:
    """Records one call; predictors wrap their call in it and hand it what they read.

    How the call ended is counted by the meter of its language model, also where nothing records. What it took, the
    piece of work around it takes too.

    Raises:
        UserError: No language model is set.
    """
    record, here = CURRENT_RECORDING.get(), CALL_ORDER.get()
    call = PredictorCall(predictor, dict(inputs), order=here.next_position() if here else ())
    lm = call.inputs.get("lm") or getattr(predictor, "lm", None) or dspy.settings.lm
    meter = getattr(lm, "meter", None)
    try:
        with ExitStack() as stack:
            stack.enter_context(set_context(CURRENT_CALL, call))
            if record is not None:
                record.calls.append(call)
                stack.callback(lambda: record_usage(replace(call.usage, seconds=0.0)))
                work = stack.enter_context(measure_usage())
                stack.callback(lambda: setattr(call, "usage", work.usage))
                if record.keep_completions:
                    stack.enter_context(call_context(on_call=call.add_completions))
            if lm is None:  # what is recorded is what would have been asked
                raise UserError("no language model: pass lm=dspy.LM(...), or call dspy.configure(lm=...)")
            yield call
    except Exception as error:
        # A model that the user made tells its errors as its server does.
        secrets = [*secrets_of_settings(getattr(lm, "kwargs", {})), *secrets_of_environment()]
        Secrets(secrets).hide_in_error(error)
        kind = failure_kind(error)
        call.error, call.failed = one_line(error, 300) or type(error).__name__, kind != "error"
        if call.failed:
            call.fault_counts[kind] += 1
            if meter is not None:
                meter.add_answer(predictor.label, call.outcome, call.fault_counts)
        raise
    if meter is not None:
        meter.add_answer(predictor.label, call.outcome, call.fault_counts)


def record_failure(failure: Failure) -> None:
    """Adds a failure to the running recording; dropped if nothing is recording."""
    if record := CURRENT_RECORDING.get():
        record.failures.append(failure)


def record_rejected(predictor: Any, count: int) -> None:
    """Says that code refused operations which the latest call of a predictor asked for."""
    record = CURRENT_RECORDING.get()
    own = [call for call in record.calls if call.predictor is predictor] if record else []
    if own:
        own[-1].rejected_operations += count
