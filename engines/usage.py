"""What calls of language models use: calls, tokens, US dollars and seconds.

There are two counts of the same calls:

- A `UsageReport` says what a run paid for. A meter keeps one (`engines.meter`), and a call that a
  cache answered counts there as cached.
- A `Usage` says what a piece of work needs, wherever its answers came from: the same work takes the
  same, however often a run was interrupted and resumed. `call_context.measure_usage` sums it up:

    with measure_usage() as tracker:
        lm("When did Ada move?")
    tracker.usage          # Usage(calls=1, input_tokens=6, output_tokens=3, ...)
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Self

Role = Literal["task", "prompt", "judge", "answer"]
"""What a language model is used for in a run."""

ROLES: tuple[Role, ...] = ("task", "prompt", "judge")
"""The roles that every report lists; "answer" is listed only where a run has such a model."""


class _FieldwiseArithmetic:
    """Add and subtract dataclasses field by field."""

    def __add__(self, other: Self) -> Self:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return type(self)(**sums)

    def __sub__(self, other: Self) -> Self:
        differences = {name: value - getattr(other, name) for name, value in vars(self).items()}
        return type(self)(**differences)


@dataclass(frozen=True)
class Usage(_FieldwiseArithmetic):
    """What some calls used, or what is reserved for them."""

    calls: int | float = 0
    input_tokens: int | float = 0
    output_tokens: int | float = 0
    cost: float = 0.0
    """US dollars of the calls whose price is known."""
    unpriced: int = 0
    """Calls whose price is not known."""
    seconds: float = 0.0

    @property
    def tokens(self) -> float:
        """Tokens of prompts and answers together."""
        return self.input_tokens + self.output_tokens

    @property
    def minutes(self) -> float:
        """The time in minutes."""
        return self.seconds / 60


@dataclass(frozen=True)
class UsageReport(_FieldwiseArithmetic):
    """What a run used up to one moment, or between two."""

    calls: Counter[str] = field(default_factory=Counter)
    """Calls that reached a model, by role."""
    cached: int = 0
    """Calls that the answers of the run or DSPy's cache answered."""
    failed: int = 0
    """Calls that raised; retries of one call are not counted."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """US dollars of the calls whose price is known."""
    unpriced: int = 0
    """Calls whose price is not known (offline and local engines among them)."""
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Predictor calls by predictor and outcome: ok, repaired, retried, lost."""
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What was wrong with answers, by predictor and kind."""
    cache_reported_tokens: int = 0
    """Input tokens of those calls for which the server reported how many it had in its cache."""
    cached_tokens: int = 0
    """Input tokens that the server had in its cache."""
    estimated: int = 0
    """Calls with estimated tokens: the endpoint reported none, or fewer than the texts can take."""

    def by_role(self) -> dict[str, int]:
        """Return the calls by role, zeros included, and the cached ones.

        Calls of an embedding endpoint are listed as "embedding", where there are any.
        """
        zeros = dict.fromkeys(ROLES, 0)
        return {**zeros, **self.calls, "cached": self.cached}


@dataclass
class UsageTracker:
    """The usage of one piece of work; all threads of the work may add to it."""

    started: float = field(default_factory=time.perf_counter)
    """When the work began, on the clock of `time.perf_counter`."""
    ended: float | None = None
    """When it ended; None while it runs."""
    calls: list[Usage] = field(default_factory=list)
    """The usage of each call."""

    @property
    def usage(self) -> Usage:
        """The sum of all calls, with the time up to the end of the work, or up to now."""
        ended = time.perf_counter() if self.ended is None else self.ended
        return sum(self.calls, Usage(seconds=ended - self.started))
