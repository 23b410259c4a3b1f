"""The circuit breaker of a service: refuses calls to a model that is down, for whom it is down."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from dspy.utils.exceptions import LMError, LMInvalidRequestError

from ...engines.endpoint.embeddings import EndpointEmbedding
from ...engines.endpoint.errors import AbandonedCallError
from ...engines.limits import DEAD_AFTER, BudgetGuard
from ...errors import EndpointError
from ...memory.store.owner import Owner
from .failure_counts import NameKeys

CALLER: ContextVar[Owner | None] = ContextVar("caller", default=None)
"""The user for whom a model is asked; None if nobody says."""
MOST_CALLERS = 1000
"""Callers whose failures in a row are counted."""


class Breaker(BudgetGuard):
    """A guard that survives an outage: after `DEAD_AFTER` failures in a row it refuses calls for `pause` seconds.

    While it is open, questions fail at once instead of holding a thread, and sessions are stored and stay queued.
    After the pause one failure opens it again. Where the calls of one caller alone fail, that one is refused alone: a
    tenant, or a user where there is one tenant.

    Args:
        pause: Seconds.
        clock: Tells the time.
        model: What the model is called in the error of a refused call.
    """

    def __init__(
        self, pause: float = 10.0, clock: Callable[[], float] = time.monotonic, model: str = "the language model"
    ) -> None:
        super().__init__()
        self._clock, self._closed_from = clock, clock()
        self.pause = pause
        self.model = model
        self.several: Callable[[], bool] = lambda: False
        """Whether there are several tenants at the moment; who knows sets it."""
        self._keys = NameKeys()
        self._failures: dict[bytes, int] = {}
        """Failures in a row, by the key of a caller."""
        self._failing = Counter[bytes]()
        """Failures since the last call that was answered, by the key of a caller."""
        self._refused: dict[bytes, float] = {}
        """Until when callers are refused alone, by their keys."""

    @property
    def open(self) -> bool:
        """Whether all calls are refused at the moment."""
        return self._clock() < self._closed_from

    @property
    def is_responding(self) -> bool:
        """Whether one of the last calls was answered, whoever they were for."""
        return self._failures_in_a_row < DEAD_AFTER

    def admit(self) -> None:
        """Called before a call; refuses it while the breaker is open, for its caller or for all."""
        if self.open or self._clock() < self._refused.get(self._caller(), 0.0):
            raise EndpointError(f"{self.model} does not answer; it is tried again in a few seconds")
        super().admit()

    def record_failure(self, error: Exception) -> None:
        """Called after a call that failed; a request that the model refuses does not count."""
        if not isinstance(error, LMError) or isinstance(error, LMInvalidRequestError | AbandonedCallError):
            return
        caller, until = self._caller(), self._clock() + self.pause
        with self._lock:
            self._failures_in_a_row += 1
            self._failing[caller] += 1
            self._failures[caller] = self._failures.pop(caller, 0) + 1
            # One failure beside those of a single caller is nothing that all have.
            failures_of_others = self._failures_in_a_row - max(self._failing.values())
            if self._failures_in_a_row >= DEAD_AFTER and (not caller or failures_of_others > 1):
                self._closed_from = until
            elif self._failures[caller] >= DEAD_AFTER:
                self._refused[caller] = until
            for oldest in list(self._failures)[:-MOST_CALLERS]:
                self._drop(oldest)

    def record_success(self, tokens: int, cost: float | None, calls: int = 1) -> None:
        """Called after a call that was answered."""
        super().record_success(tokens, cost, calls)
        with self._lock:
            self._failing.clear()
            self._failures.pop(self._caller(), None)
            self._refused.pop(self._caller(), None)

    def forget_user(self, owner: Owner) -> None:
        """Drop the failures of a user, who is forgotten."""
        with self._lock:
            self._drop(self._keys.key_of("user", owner.user))

    def _drop(self, caller: bytes) -> None:
        self._failures.pop(caller, None)
        self._refused.pop(caller, None)
        # Left in the row, they would count as failures of others.
        self._failures_in_a_row = max(0, self._failures_in_a_row - self._failing.pop(caller, 0))

    def _caller(self) -> bytes:
        """The key of who is refused alone: a tenant, or a user where there is one tenant; empty if nobody is named."""
        owner = CALLER.get()
        if owner is None:
            return b""
        return self._keys.key_of("tenant", owner.tenant) if self.several() else self._keys.key_of("user", owner.user)


def breakers_of(lm: Any, embedder: Any) -> list[Breaker]:
    """Return the breakers of a service: that of its language model, and that of an embedder behind an endpoint."""
    guards: list[Any] = [getattr(lm, "guard", None)]
    account: EndpointEmbedding | None = getattr(embedder, "account", None)
    if account is not None and account.accounting is not None:
        guards.append(account.accounting.guard)
    return [guard for guard in guards if isinstance(guard, Breaker)]
