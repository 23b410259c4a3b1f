"""Measures what a piece of work costs (calls, tokens, US dollars, seconds), and knows the prices of tokens.

A meter counts what a run pays. Here a call counts wherever its answer came from, so the same work takes the same
however often it was broken off. Of pieces within one another the inner one takes what it asks.
"""

from __future__ import annotations

import contextvars
import os
import time
from collections import Counter
from collections.abc import Generator, Hashable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from ..errors import UserError
from ..records.context_variables import set_context

Role = Literal["task", "prompt", "judge", "answer"]
ROLES: tuple[Role, ...] = ("task", "prompt", "judge")
"""Those that are counted everywhere; "answer" is where one is named apart."""
_FREE = ("offline", "local:", "local/", "gguf:")


class Counted:
    """Numbers of a dataclass that are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def __sub__(self, other: Self) -> Self:
        return type(self)(**{name: value - getattr(other, name) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Usage(Counted):
    """What was taken, of a budget too."""

    calls: int | float = 0
    input_tokens: int | float = 0
    output_tokens: int | float = 0
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


@dataclass(frozen=True)
class UsageReport(Counted):
    """What was used up to one moment, or between two."""

    calls: Counter[str] = field(default_factory=Counter)
    """Calls that reached a model, by role."""
    cached: int = 0
    """Calls that DSPy's LM cache answered."""
    failed: int = 0
    """Calls that raised, retries of the client library not counted."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """US dollars, of those calls whose price is known."""
    unpriced: int = 0
    """Calls whose price is not known (offline and local engines among them)."""
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Predictor calls by predictor and outcome: ok, repaired, retried, lost."""
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What was wrong with answers, by predictor and kind."""
    cache_reported_tokens: int = 0
    """Those of `input_tokens` of which the server said how many it had in its own cache."""
    cached_tokens: int = 0
    """Those that it had."""
    estimated: int = 0
    """Calls whose tokens are estimated: the endpoint reported none, or fewer than their texts can take."""

    def by_role(self) -> dict[str, int]:
        """Calls by role with zeros, and the cached ones: what reports print; "embedding" where an endpoint was."""
        return {**{role: self.calls[role] for role in ROLES}, **self.calls, "cached": self.cached}


@dataclass
class UsageTracker:
    """A piece of work that is going on; its threads may all tell of their calls."""

    started: float = field(default_factory=time.perf_counter)
    ended: float | None = None
    calls: list[Usage] = field(default_factory=list)

    @property
    def usage(self) -> Usage:
        """What it took up to now, or up to its end."""
        ended = time.perf_counter() if self.ended is None else self.ended
        return sum(self.calls, Usage(seconds=ended - self.started))


_work: contextvars.ContextVar[UsageTracker | None] = contextvars.ContextVar("work", default=None)


@contextmanager
def measure_usage() -> Generator[UsageTracker]:
    """Hears of every call of the block that no piece of work within it takes."""
    work = UsageTracker()
    with set_context(_work, work):
        yield work
        work.ended = time.perf_counter()


def record_usage(taken: Usage) -> None:
    """Tells the running piece of work of a call, or of what was taken for it elsewhere or at another time."""
    work = _work.get()
    if work is not None:
        work.calls.append(taken)


WORK_CONTEXT: contextvars.ContextVar[tuple[Hashable, Any, Any]] = contextvars.ContextVar(
    "working_for", default=(None, None, None)
)
"""For whom a piece of work is, their shelf, and where they wait; None where that was not said."""


def call_context(caller: Hashable, vector_cache: Any = None, slots: Any = None) -> AbstractContextManager[None]:
    """Makes the block, gathered calls included, work for one user, or question.

    Args:
        caller: Names them, tenant first where there are several; others have their turn between two of their calls.
        vector_cache: An `engines.vectors.VectorCache`, where embedders keep the vectors of their texts.
        slots: An `engines.guard.FairSemaphore`, of whose places embedding and reranking take one.
    """
    return set_context(WORK_CONTEXT, (caller, vector_cache, slots))


@contextmanager
def computing() -> Generator[None]:
    """Hold a place for embedding or reranking; what is computed within the block needs no further one.

    Raises:
        AbandonedCallError: The deadline of the work that wants it has passed.
    """
    from .endpoint.loop import check_deadline  # imports DSPy, which not everybody who counts needs

    check_deadline()
    whose, shelf, lane = WORK_CONTEXT.get()
    with nullcontext() if lane is None else lane.slot(), call_context(whose, shelf):
        yield


def litellm_module() -> Any:
    """Litellm itself, which otherwise fetches a price list over the network when it is imported, and advertises."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def token_prices(name: str) -> tuple[float, float] | None:
    """US dollars per input and per output token, by litellm's table; None where it does not know the model.

    Args:
        name: A model name as `language_model` takes it; engines of rules, local and GGUF models are free.
    """
    if name.startswith(_FREE):
        return 0.0, 0.0
    table = litellm_module().model_cost
    found = table.get(name) or table.get(name.partition("/")[2])
    if not found or found.get("input_cost_per_token") is None:
        return None
    return float(found["input_cost_per_token"]), float(found.get("output_cost_per_token") or 0.0)


def needed_prices(name: str, max_usd: float | None) -> tuple[float, float] | None:
    """`token_prices` where a cost limit is set, else None.

    Raises:
        UserError: The price is unknown: the limit could not be enforced.
    """
    prices = None if max_usd is None else token_prices(name)
    if max_usd is not None and prices is None:
        raise UserError(f"the price of {name} is not known, so --max-usd cannot hold; use --max-calls or --max-tokens")
    return prices
