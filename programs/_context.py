"""The program context: what predictors and adapters know about the work that calls them.

DSPy calls predictors and adapters from deep inside a program, so what they have to know about their
surroundings cannot be passed to them. It stands in one frozen `ProgramContext`, in the only context
variable of `programs`. The calls of `gather` and the tasks of asyncio see the same one, except that
every call of `gather` has a `call_order` of its own.

Example:
    with program_context(max_text_length=4000):
        extract(dialogue=dialogue)     # a longer text in its answer is an error

A block changes only the fields that it names. After it, the context is what it was before.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from ..memory.search.embedder import Embedder
from ._call_order import CallOrder
from .answer_stream import AnswerStream
from .call_recorder import CallRecorder, PredictorCall


@dataclass(frozen=True)
class ProgramContext:
    """What predictors and adapters know about the work that calls them."""

    recorder: CallRecorder | None = None
    """The innermost recording that is active."""
    running_call: PredictorCall | None = None
    """The call of a predictor that is running."""
    call_order: CallOrder | None = None
    """Numbers the calls of the running work; None if nothing is recorded."""
    runs_in_order: bool = False
    """Whether `gather` makes its calls one after another."""
    demo_embedder: Embedder | None = None
    """The embedding model that helps to choose demos; None if words alone are compared."""
    max_text_length: int | None = None
    """Most characters of a text in an answer; None if there is no limit."""
    rollout: str = ""
    """The rollout of a reinforcement-learning group; memories are not shared across rollouts."""
    answer_stream: AnswerStream | None = None
    """Takes the words of the answer that is asked for; None if nobody waits for them."""
    predictor_stream: AnswerStream | None = None
    """Takes the words of the predictor that is called: the one that writes the answer."""


class ContextChanges(TypedDict, total=False):
    """The fields of a `ProgramContext` that a block changes."""

    recorder: CallRecorder | None
    running_call: PredictorCall | None
    call_order: CallOrder | None
    runs_in_order: bool
    demo_embedder: Embedder | None
    max_text_length: int | None
    rollout: str
    answer_stream: AnswerStream | None
    predictor_stream: AnswerStream | None


_OUTSIDE = ProgramContext()
"""The context of code in no `program_context` block."""

_current: ContextVar[ProgramContext] = ContextVar("mempiler_program_context", default=_OUTSIDE)


def current_program_context() -> ProgramContext:
    """Return the program context of the running code."""
    return _current.get()


@contextmanager
def program_context(**changes: Unpack[ContextChanges]) -> Generator[None]:
    """Change fields of the program context for the code in a `with` block.

    After the block, the context is what it was before.

    Args:
        **changes: The new values, by the names of the fields. Other fields stay as they are.
    """
    token = _current.set(replace(_current.get(), **changes))
    try:
        yield
    finally:
        _current.reset(token)
