"""Tell which language models asyncio can await: `can_be_awaited`."""

from __future__ import annotations

from typing import Any

import dspy


def can_be_awaited(lm: Any) -> bool:
    """Return whether a language model can be asked by `acall`, and answers as it does to a call.

    It cannot where its class defines calls or answers for plain calls alone, or where it has an
    engine of its own without one for asyncio.
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


def async_engine_of(lm: dspy.LM) -> Any:
    """Return the engine that a model asks under asyncio; None if it has none of its own."""
    # DSPy shows the engine of a model, but not the one for asyncio.
    return getattr(lm, "_async_engine_spec", None)


def _definition_depth(lm: Any, method: str) -> int:
    """Return how many base classes away from its class a model's method is defined."""
    classes = type(lm).__mro__
    return next(depth for depth, base in enumerate(classes) if method in vars(base))
