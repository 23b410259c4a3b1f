"""What a piece of work takes: calls, tokens, US dollars, seconds.

A meter counts what a run pays. Here a call counts wherever its answer came from: the model, a cache, an earlier go at
the same run. So the same work takes the same, however often it was broken off. Of pieces within one another the inner
one takes what it asks: writing a memory is no part of the question that needed it first.

Example:
    >>> from mempiler.engines.models import language_model
    >>> from mempiler.engines.taken import taking
    >>> with taking() as work:
    ...     _ = language_model("offline")("question: Where?")
    >>> work.taken.calls
    1
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

from ..records.scope import holding


@dataclass(frozen=True)
class Taken:
    """What was taken."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """US dollars of the calls whose price is known."""
    unpriced: int = 0
    """Calls whose price is not."""
    seconds: float = 0.0

    def __add__(self, other: Taken) -> Taken:
        return Taken(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})


@dataclass
class Work:
    """A piece of work that is going on; its threads may all tell of their calls."""

    started: float = field(default_factory=time.perf_counter)
    ended: float | None = None
    calls: list[Taken] = field(default_factory=list)

    @property
    def taken(self) -> Taken:
        """What it took up to now, or up to its end."""
        ended = time.perf_counter() if self.ended is None else self.ended
        return sum(self.calls, Taken(seconds=ended - self.started))


_work: contextvars.ContextVar[Work | None] = contextvars.ContextVar("work", default=None)


@contextmanager
def taking() -> Generator[Work]:
    """Hears of every call of the block that no piece of work within it takes."""
    work = Work()
    with holding(_work, work):
        yield work
        work.ended = time.perf_counter()


def note_call(input_tokens: int, output_tokens: int, cost: float | None) -> None:
    """Tells the running piece of work of a call; nothing happens where there is none."""
    note(Taken(1, input_tokens, output_tokens, cost or 0.0, int(cost is None)))


def note(taken: Taken) -> None:
    """Tells the running piece of work of what was taken for it elsewhere, or at another time."""
    work = _work.get()
    if work is not None:
        work.calls.append(taken)
