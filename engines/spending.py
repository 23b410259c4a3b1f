"""A piece of work: what it takes (calls, tokens, US dollars, seconds), and for whom it is.

A meter counts what a run pays. Here a call counts wherever its answer came from, so the same work takes the same
however often it was broken off. Of pieces within one another the inner one takes what it asks.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Generator, Hashable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from ..records.scope import holding


@dataclass(frozen=True)
class Spending:
    """What was taken, of a budget too."""

    calls: float = 0
    input_tokens: float = 0
    output_tokens: float = 0
    cost: float = 0.0
    """US dollars of the calls whose price is known."""
    unpriced: int = 0
    """Calls whose price is not."""
    seconds: float = 0.0

    @property
    def tokens(self) -> float:
        """Those of prompts and answers."""
        return self.input_tokens + self.output_tokens

    @property
    def minutes(self) -> float:
        """The time in minutes."""
        return self.seconds / 60

    def __add__(self, other: Spending) -> Spending:
        return Spending(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def __sub__(self, other: Spending) -> Spending:
        return Spending(**{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)})


@dataclass
class Work:
    """A piece of work that is going on; its threads may all tell of their calls."""

    started: float = field(default_factory=time.perf_counter)
    ended: float | None = None
    calls: list[Spending] = field(default_factory=list)

    @property
    def taken(self) -> Spending:
        """What it took up to now, or up to its end."""
        ended = time.perf_counter() if self.ended is None else self.ended
        return sum(self.calls, Spending(seconds=ended - self.started))


_work: contextvars.ContextVar[Work | None] = contextvars.ContextVar("work", default=None)


@contextmanager
def taking() -> Generator[Work]:
    """Hears of every call of the block that no piece of work within it takes."""
    work = Work()
    with holding(_work, work):
        yield work
        work.ended = time.perf_counter()


def note_call(input_tokens: float, output_tokens: float, cost: float | None) -> None:
    """Tells the running piece of work of a call; nothing happens where there is none."""
    note(Spending(1, input_tokens, output_tokens, cost or 0.0, int(cost is None)))


def note(taken: Spending) -> None:
    """Tells the running piece of work of what was taken for it elsewhere, or at another time."""
    work = _work.get()
    if work is not None:
        work.calls.append(taken)


_for: contextvars.ContextVar[tuple[Hashable, Any]] = contextvars.ContextVar("mempiler_for", default=(None, None))


def working_for(whose: Hashable, shelf: Any = None) -> AbstractContextManager[None]:
    """Makes the block, gathered calls included, work for one user, or question.

    Args:
        whose: Names them; others have their turn at an endpoint between two of their calls.
        shelf: An `engines.vectors.Shelf`, where embedders keep the vectors of their texts.
    """
    return holding(_for, (whose, shelf))


def working_now() -> tuple[Hashable, Any]:
    """For whom this is, and their shelf; None where that was not said."""
    return _for.get()
