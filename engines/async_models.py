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
    has_own_acall = type(lm).acall is not dspy.BaseLM.acall
    if isinstance(lm, dspy.LM) and not isinstance(lm.engine, str) and not has_own_acall:
        return async_engine_of(lm) is not None
    return all(
        _definition_depth(lm, async_name) <= _definition_depth(lm, name)
        for name, async_name in (("__call__", "acall"), ("forward", "aforward"))
    )


def ask_model(lm: Any, call: Callable[[], T], acall: Callable[[], Awaitable[T]]) -> T:
    """Make a call that asks a model, in the way that suits the model and the running code.

    In bridged code, a model that can be awaited is awaited, and any other is asked in a thread.

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


def _definition_depth(lm: Any, method: str) -> int:
    """Return how many base classes away from its class a model's method is defined."""
    classes = type(lm).__mro__
    return next(depth for depth, base in enumerate(classes) if method in vars(base))
