"""What the predictors of one rollout were asked and what came back, whatever became of it.

DSPy's trace holds only calls that could be read. For reinforcement learning the others matter most, so here every call
of a predictor is kept with its raw completions: one that was read, one that was half read, an empty one. Recording
costs nothing where nobody records.

    with recording() as calls:
        memory = method.write(memory, item, prepared)
    calls[0].predictor, calls[0].completions[0].text, calls[0].error

The calls come in program order, also those of `gather`, so that two rollouts can be laid side by side.

Limits: only calls of `programs.predictor.Predictor` are seen, and only synchronous ones.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from .gather import Place, place

Capture = Callable[[], AbstractContextManager[list[Any]]]
"""Opens a list into which an engine puts its own record of every raw completion; `engines.local.capture` has one."""


@dataclass(frozen=True)
class Completion:
    """One raw completion of a language model."""

    messages: tuple[dict[str, str], ...]
    """The prompt as messages of role and content."""
    text: str
    sample: Any = None
    """The engine's record of it (token ids, log-probabilities), where the engine keeps one."""


@dataclass
class Call:
    """One call of a predictor."""

    predictor: Any
    inputs: dict[str, Any]
    completions: list[Completion] = field(default_factory=list)
    error: str | None = None
    """Why the last completion could not be read."""
    refused: int = 0
    """Operations of the output that code had to refuse, e.g. on an id that is not there."""
    at: tuple[int, ...] = ()
    """Place in program order."""
    thread: int = 0


class _Recorder:
    """The calls of one recording; calls of several threads may be added at once."""

    def __init__(self, capture: Capture) -> None:
        self.calls: list[Call] = []
        self.capture = capture
        self.started: dict[str, tuple[dict[str, str], ...]] = {}


_recorder: contextvars.ContextVar[_Recorder | None] = contextvars.ContextVar("recorder", default=None)
_open: contextvars.ContextVar[Call | None] = contextvars.ContextVar("open_call", default=None)


@contextmanager
def recording(capture: Capture = lambda: nullcontext([])) -> Iterator[list[Call]]:
    """Records every predictor call inside the block; a recording inside another one keeps its calls to itself.

    Args:
        capture: Opens the engine's own record of raw completions; without one only texts are kept.

    Yields:
        A list that holds the calls, in program order, once the block has ended.
    """
    recorder = _Recorder(capture)
    tokens = _recorder.set(recorder), _open.set(None), place.set(Place())
    callbacks = [each for each in dspy.settings.callbacks or [] if not isinstance(each, _Listener)]
    try:
        with dspy.context(callbacks=[*callbacks, _Listener(recorder)]):
            yield recorder.calls
    finally:
        _recorder.reset(tokens[0])
        _open.reset(tokens[1])
        place.reset(tokens[2])
        recorder.calls.sort(key=lambda call: call.at)


@contextmanager
def recorded(predictor: Any, inputs: dict[str, Any]) -> Iterator[None]:
    """Records one call, if anybody records; predictors wrap their call in it."""
    recorder, here = _recorder.get(), place.get()
    if recorder is None or here is None:
        yield
        return
    call = Call(predictor, dict(inputs), at=here.tick(), thread=threading.get_ident())
    recorder.calls.append(call)
    token = _open.set(call)
    try:
        with recorder.capture() as samples:
            try:
                yield
            finally:
                _join(call, samples)
    except Exception as error:
        call.error = " ".join(str(error).split())[:300] or type(error).__name__
        raise
    finally:
        _open.reset(token)


def refuse(predictor: Any, count: int) -> None:
    """Says that code refused operations which the latest call of a predictor, in this thread, asked for."""
    recorder, thread = _recorder.get(), threading.get_ident()
    if recorder is None or count < 1:
        return
    own = [call for call in recorder.calls if call.predictor is predictor and call.thread == thread]
    if own:
        own[-1].refused += count


def _join(call: Call, samples: list[Any]) -> None:
    """Puts the engine's records beside the texts: one each, in order; the engine's text is the raw one."""
    if len(samples) == len(call.completions):
        pairs = zip(call.completions, samples, strict=True)
        call.completions = [Completion(heard.messages, sample.text, sample) for heard, sample in pairs]
    elif samples:
        call.completions = [Completion(_plain(sample.messages), sample.text, sample) for sample in samples]


class _Listener(BaseCallback):
    """Hears what language models are asked and answer."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Keeps the prompt."""
        if _open.get() is not None:
            asked = inputs.get("messages") or [{"role": "user", "content": inputs.get("prompt") or ""}]
            self._recorder.started[call_id] = _plain(asked)

    def on_lm_end(self, call_id: str, outputs: Any | None, exception: BaseException | None = None) -> None:
        """Keeps the raw completions; a call that reached no model has none."""
        call, messages = _open.get(), self._recorder.started.pop(call_id, ())
        if call is not None and outputs is not None:
            call.completions += [Completion(messages, _text(output)) for output in outputs]


def _plain(messages: Any) -> tuple[dict[str, str], ...]:
    return tuple({"role": str(message["role"]), "content": _content(message.get("content"))} for message in messages)


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") if isinstance(part, dict) else str(part) for part in content)
    return str(content or "")


def _text(output: Any) -> str:
    return str(output.get("text") or "") if isinstance(output, dict) else str(output or "")
