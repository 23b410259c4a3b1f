"""What a block of code and copies of a program share: context variables, also of threads, and things."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Self, TypeVar

T = TypeVar("T")


@contextmanager
def set_context(variable: ContextVar[T], value: T) -> Generator[None]:
    """Gives a variable a value in the block, and afterwards the one it had."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class SharedByCopies:
    """Something that copies of a program share: a deep copy of it is itself."""

    def __deepcopy__(self, memo: object = None) -> Self:
        return self


@dataclass(frozen=True)
class Place:
    """A place in program order, from which the steps and gathers that follow take their numbers."""

    path: tuple[int, ...] = ()
    steps: Iterator[int] = field(default_factory=itertools.count)

    def tick(self) -> tuple[int, ...]:
        """The place of the next step; places compare in program order, not in that of execution."""
        return (*self.path, next(self.steps))


place: ContextVar[Place | None] = ContextVar("place", default=None)
"""The path of the running call; None if the order is not recorded."""
