"""Language models under asyncio: which of them can be awaited, and how bridged code asks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import dspy

from ..async_bridge import is_bridged, off_loop, wait_for
from .dspy_internals import async_engine_of

T = TypeVar("T")


def can_be_awaited(lm: Any) -> bool:
    """Return whether `await lm.acall(...)` works, and gives what `lm(...)` gives.

    It does not work for a `dspy.LM` that has an engine of its own for plain calls alone. It may
    give something else for a class that overrides `__call__` but not `acall`, or `forward` but not
    `aforward`.

    A `MeteredLM` can always be awaited: its `acall` uses a thread if its engine cannot be awaited.
    """
    if not isinstance(lm, dspy.BaseLM):
        return False
    if isinstance(lm, dspy.LM) and _is_asked_by_engine_object(lm):
        return async_engine_of(lm) is not None
    return _async_method_is_current(lm, "__call__", "acall") and _async_method_is_current(
        lm, "forward", "aforward"
    )


def _is_asked_by_engine_object(lm: dspy.LM) -> bool:
    """Return whether DSPy's own methods ask a model by an engine object.

    Otherwise `engine` is the name of one of DSPy's engines, or the class asks in its own way.
    """
    has_own_acall = type(lm).acall is not dspy.BaseLM.acall
    return not isinstance(lm.engine, str) and not has_own_acall


def _async_method_is_current(lm: dspy.BaseLM, method: str, async_method: str) -> bool:
    """Return whether no subclass overrides a method without its twin for asyncio.

    If one overrides `forward` alone, the inherited `aforward` does not do what `forward` does.
    """
    return _inheritance_distance(lm, async_method) <= _inheritance_distance(lm, method)


def _inheritance_distance(lm: dspy.BaseLM, method: str) -> int:
    """Return how many steps up from a model's class a method is defined; 0 is the class itself."""
    classes = type(lm).__mro__
    return next(steps for steps, base in enumerate(classes) if method in vars(base))


def ask_model(lm: Any, call: Callable[[], T], acall: Callable[[], Awaitable[T]]) -> T:
    """Make a call that asks a model, without blocking the event loop if the code runs in one.

    Plain code waits for the answer. Bridged code is a plain function that runs inside asyncio, see
    `async_bridge`: if it waited, all other work of its event loop would stand still. There the loop
    awaits the model, or, if the model cannot be awaited, a thread asks it.

    Args:
        lm: The model.
        call: Makes the call, and blocks until it is answered.
        acall: Makes the same call for asyncio.
    """
    if not is_bridged():
        return call()
    if can_be_awaited(lm):
        return wait_for(acall())
    return ask_in_thread(call)


def ask_in_thread(call: Callable[[], T]) -> T:
    """Make a call that asks a model from bridged code, in a thread; its answer is not streamed."""
    # DSPy's stream belongs to the loop, and cannot be written to from another thread.
    with dspy.context(send_stream=None):
        return off_loop(call)
