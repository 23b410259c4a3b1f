"""Counting what language models are asked and what it costs, at the LM boundary.

Every model of a run is a `MeteredLM` with a role (task, prompt, judge) and shares the run's `Meter`. Copies that
optimizers make (other temperature, rollout id) keep counting into the same meter; answers from DSPy's cache are
counted apart, with no tokens and no cost.

Example:
    >>> meter = Meter()
    >>> lm = language_model("offline", meter=meter)
    >>> before = meter.read(); lm("question: Where?"); (meter.read() - before).calls["task"]
    1
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import dspy
from dspy.clients.execution import execute, finalize, prepare
from dspy.utils.callback import with_callbacks

Role = Literal["task", "prompt", "judge"]
ROLES: tuple[Role, ...] = ("task", "prompt", "judge")


@dataclass(frozen=True)
class Usage:
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

    def __sub__(self, other: Usage) -> Usage:
        calls = Counter({role: self.calls[role] - other.calls[role] for role in self.calls})
        return Usage(
            calls,
            self.cached - other.cached,
            self.failed - other.failed,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cost - other.cost,
            self.unpriced - other.unpriced,
        )

    def by_role(self) -> dict[str, int]:
        """Calls by role with zeros, and the cached ones: what reports print."""
        return {**{role: self.calls[role] for role in ROLES}, "cached": self.cached}


class Meter:
    """Thread-safe counters of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage = Usage()

    def read(self) -> Usage:
        """The counters now; subtract two readings to get what lies between them."""
        with self._lock:
            return self._usage

    def add(self, role: Role, usage: dict[str, Any], cost: float | None) -> None:
        """Counts one call that reached a model."""
        with self._lock:
            old = self._usage
            self._usage = Usage(
                old.calls + Counter({role: 1}),
                old.cached,
                old.failed,
                old.input_tokens + int(usage.get("prompt_tokens") or 0),
                old.output_tokens + int(usage.get("completion_tokens") or 0),
                old.cost + (cost or 0.0),
                old.unpriced + (cost is None),
            )

    def add_cached(self) -> None:
        """Counts one call that the cache answered."""
        self._bump("cached")

    def add_failed(self) -> None:
        """Counts one call that raised."""
        self._bump("failed")

    def _bump(self, name: str) -> None:
        with self._lock:
            self._usage = Usage(**{**vars(self._usage), name: getattr(self._usage, name) + 1})

    def __deepcopy__(self, memo: object = None) -> Meter:
        return self

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return Meter, ()


class MeteredLM(dspy.LM):
    """A `dspy.LM` that counts its calls into a meter.

    Args:
        model: As `dspy.LM` takes it.
        meter: Where calls are counted.
        role: What the model is used for.
        **settings: Everything else that `dspy.LM` takes.
    """

    def __init__(self, model: str, meter: Meter, role: Role = "task", **settings: Any) -> None:
        self.meter = meter
        self.role: Role = role
        super().__init__(model, **settings)

    @with_callbacks
    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        # The three steps of dspy.BaseLM.__call__, because only their result tells cache hits and cost.
        call = prepare(self, prompt, messages, kwargs)
        try:
            result = execute(self, call)
        except Exception:
            self.meter.add_failed()
            raise
        self._count(result)
        return finalize(self, call, result)

    @with_callbacks
    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        from dspy.clients.execution import aexecute

        call = prepare(self, prompt, messages, kwargs, asynchronous=True)
        try:
            result = await aexecute(self, call)
        except Exception:
            self.meter.add_failed()
            raise
        self._count(result)
        return finalize(self, call, result)

    def _count(self, result: Any) -> None:
        if result.cache_hit:
            self.meter.add_cached()
        else:
            self.meter.add(self.role, result.usage or {}, result.cost)
