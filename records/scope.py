"""Values that hold in a block of code, and in what it starts with a copy of its context."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Generator[None]:
    """Gives a variable a value in the block, and afterwards the one it had."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
