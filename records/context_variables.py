"""Set a context variable for a block of code."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def set_context(variable: ContextVar[T], value: T) -> Generator[None]:
    """Give a context variable a value in the block, and its former value afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
