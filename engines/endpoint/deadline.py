"""Deadlines of work, handed down by the context: a call deep inside a program ends with the request that wants it."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

TIMEOUT = 120.0
"""Seconds without a byte from the server after which a call has failed."""
RETRIES = 2
"""Retries of a call that could not reach its model, after 1 and 2 seconds or as the server asks."""
DEADLINE = 600.0
"""Seconds for a call, its retries and waits included."""


class Deadline:
    """When work must have ended; the deadline it was made within holds for it too.

    Args:
        seconds: From now on.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._at = time.monotonic() + seconds
        self._outer = _current.get()

    @property
    def left(self) -> float:
        """Seconds until then; never below 0."""
        own = max(0.0, self._at - time.monotonic())
        return own if self._outer is None else min(own, self._outer.left)

    @property
    def passed(self) -> bool:
        """Whether the time is over, or nobody waits for the work any more."""
        return self.left <= 0

    def cancel(self) -> None:
        """Ends it now."""
        self._at = -math.inf


_current: ContextVar[Deadline | None] = ContextVar("mempiler_deadline", default=None)


@contextmanager
def within(deadline: Deadline) -> Generator[None]:
    """Puts what the block does under a deadline."""
    # Not by `records.scope`: the command line reads the defaults above, and would load all records with them.
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


def deadline_here() -> Deadline | None:
    """The deadline of the work that asks, if there is one."""
    return _current.get()
