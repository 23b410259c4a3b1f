"""The guard of a service's models: it refuses calls to a model that is down.

    breaker = Breaker()
    lm = language_model("openai/gpt-4.1-mini", guard=breaker)

While a model is down, questions fail at once instead of waiting for it, and sessions are stored and
stay queued. The guard also keeps the tenants' budgets, where a service limits what they spend.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from dspy.utils.exceptions import LMError, LMInvalidRequestError

from ...async_bridge import disk_off_loop, run_bridged
from ...engines.endpoint.embeddings import EndpointEmbedding
from ...engines.endpoint.errors import AbandonedCallError
from ...engines.limits import DEAD_AFTER, BudgetGuard
from ...engines.usage import Usage
from ...errors import EndpointError
from ...memory.store.owner import Owner
from ...memory.store.tenant_usage import Reservation
from .failure_counts import NameKeys

CALLER: ContextVar[Owner | None] = ContextVar("caller", default=None)
"""The user for whom a model is asked; None if nobody says."""
MAX_CALLERS = 1000
"""The most callers whose failures in a row are counted."""

_NOBODY = b""
"""The key of a call for nobody in particular."""


class TenantBudgets(Protocol):
    """Limits what tenants may spend; `http.tenant_limits.TenantLimiter` does."""

    @property
    def has_budgets(self) -> bool:
        """Whether any tenant has a budget."""
        ...

    def reserve(self, tenant: str, usd: float) -> Reservation | None:
        """Reserve what a call may cost; None for a tenant without a budget. It may block.

        Raises:
            TenantBudgetError: The budget does not suffice.
        """
        ...

    def settle(self, reservation: Reservation, usd: float) -> None:
        """Replace a reservation by what the call has cost. It may block, and raises nothing."""
        ...


@dataclass
class _ReservedCall:
    """A call in progress for which dollars are reserved."""

    reservation: Reservation
    reserved_usd: float
    usd: float | None = None
    """What the call has cost; None until it is answered."""

    def usd_at_end(self, error: BaseException | None) -> float:
        """Return what is counted for the call.

        Args:
            error: Why the call ended without being counted; None if it ended well.
        """
        if self.usd is not None:
            return self.usd
        if error is None:
            # The endpoint answered that it does not serve the request, which costs nothing.
            return 0.0

        # What the endpoint charges for a call that is given up is not known. If it counted as
        # nothing, a tenant that always leaves early could spend without a limit.
        was_refused = isinstance(error, LMError | EndpointError)
        if was_refused and not isinstance(error, AbandonedCallError):
            return 0.0
        return self.reserved_usd


_reserved_call: ContextVar[_ReservedCall | None] = ContextVar("reserved_call", default=None)
"""The call that is in progress. `MeteredLM` counts it by `record_success`, which takes no call."""


class Breaker(BudgetGuard):
    """A guard that survives an outage of its model.

    After `DEAD_AFTER` failures in a row it is open: it refuses all calls for `pause` seconds. After
    that one more failure opens it again. If only the calls of one caller fail, that caller alone is
    refused. A caller is a tenant, or a user where there is one tenant.

    Args:
        pause: Seconds.
        clock: Returns the time in seconds.
        model: What the model is called in the error of a refused call.
    """

    def __init__(
        self,
        pause: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        model: str = "the language model",
    ) -> None:
        super().__init__()
        self.pause = pause
        self.model = model
        self.several: Callable[[], bool] = lambda: False
        """Returns whether there are several tenants at the moment; a service replaces it."""
        self.budgets: TenantBudgets | None = None
        """What tenants may spend; None if they may spend anything. A service sets it."""
        self._clock = clock
        self._open_until = clock()

        self._keys = NameKeys()
        self._failures_by_caller: dict[bytes, int] = {}
        """Failures in a row, by the key of a caller; who failed longest ago comes first."""
        self._failures_since_answer = Counter[bytes]()
        """Failures since any call was answered, by the key of a caller."""
        self._refused_until: dict[bytes, float] = {}
        """Until when callers are refused alone, by their keys."""

    @property
    def open(self) -> bool:
        """Whether all calls are refused at the moment."""
        return self._clock() < self._open_until

    @property
    def is_responding(self) -> bool:
        """Whether one of the last calls was answered, whoever it was for."""
        return self._failures_in_a_row < DEAD_AFTER

    @property
    def has_limits(self) -> bool:
        """Whether what a call may cost matters to anybody."""
        return self.budgets is not None and self.budgets.has_budgets

    # The life of one call, see `BudgetGuard`.

    @contextmanager
    def reserve(self, expected: Usage) -> Generator[None]:
        """Reserve for the block what a call may cost the tenant at most.

        Raises:
            TenantBudgetError: The budget of the tenant does not suffice.
        """
        call = self._begin_call(expected)
        if call is None:
            yield
            return

        error: BaseException | None = None
        outer_call = _reserved_call.get()
        _reserved_call.set(call)
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            _reserved_call.set(outer_call)
            self._end_call(call, error)

    @asynccontextmanager
    async def areserve(self, expected: Usage) -> AsyncGenerator[None]:
        """Reserve as `reserve` does, in a coroutine; the event loop goes on meanwhile."""
        call = await run_bridged(partial(self._begin_call, expected))
        if call is None:
            yield
            return

        error: BaseException | None = None
        outer_call = _reserved_call.get()
        _reserved_call.set(call)
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            # No token of `set` is used: a stream may be closed in another context than this one.
            _reserved_call.set(outer_call)
            await run_bridged(partial(self._end_call, call, error))

    def _begin_call(self, expected: Usage) -> _ReservedCall | None:
        """Reserve what a call may cost; return None if nothing needs to be reserved."""
        owner = CALLER.get()
        if self.budgets is None or owner is None or not self.has_limits:
            return None
        # The call holds a slot at the endpoint, so it must not wait for a thread of `off_loop`.
        reserve = partial(self.budgets.reserve, owner.tenant, expected.cost)
        reservation = disk_off_loop(reserve)
        if reservation is None:
            return None
        return _ReservedCall(reservation, expected.cost)

    def _end_call(self, call: _ReservedCall, error: BaseException | None) -> None:
        assert self.budgets is not None
        usd = call.usd_at_end(error)
        disk_off_loop(partial(self.budgets.settle, call.reservation, usd))

    def admit(self) -> None:
        """Count a call that is about to be made, or refuse it.

        Raises:
            EndpointError: The breaker is open, for the caller or for all.
        """
        is_refused_alone = self._clock() < self._refused_until.get(self._caller(), 0.0)
        if self.open or is_refused_alone:
            raise EndpointError(f"{self.model} does not answer; it is tried again in a few seconds")
        super().admit()

    def record_failure(self, error: Exception) -> None:
        """Count a call that failed; one whose request the model refuses does not count."""
        if not isinstance(error, LMError):
            return
        if isinstance(error, LMInvalidRequestError | AbandonedCallError):
            return

        caller = self._caller()
        until = self._clock() + self.pause
        with self._lock:
            self._failures_in_a_row += 1
            self._failures_since_answer[caller] += 1
            # Taken out and added again, a caller stands behind those who failed before.
            self._failures_by_caller[caller] = self._failures_by_caller.pop(caller, 0) + 1

            if self._failures_in_a_row >= DEAD_AFTER and not self._fails_for_one_alone(caller):
                self._open_until = until
            elif self._failures_by_caller[caller] >= DEAD_AFTER:
                self._refused_until[caller] = until

            while len(self._failures_by_caller) > MAX_CALLERS:
                self._drop(next(iter(self._failures_by_caller)))

    def record_success(self, tokens: int, cost: float | None, calls: int = 1) -> None:
        """Count a call that was answered."""
        super().record_success(tokens, cost, calls)
        call = _reserved_call.get()
        if call is not None:
            # Without a price the call counts as what was reserved.
            call.usd = call.reserved_usd if cost is None else cost

        with self._lock:
            self._failures_since_answer.clear()
            self._failures_by_caller.pop(self._caller(), None)
            self._refused_until.pop(self._caller(), None)

    def forget_user(self, owner: Owner) -> None:
        """Drop the failures of a user, who is forgotten."""
        with self._lock:
            self._drop(self._keys.key_of("user", owner.user))

    def _fails_for_one_alone(self, caller: bytes) -> bool:
        """Return whether the failures since the last answer are those of one caller."""
        if caller == _NOBODY:
            return False
        failures_of_others = self._failures_in_a_row - max(self._failures_since_answer.values())
        # One failure beside those of a single caller says nothing about all the others.
        return failures_of_others <= 1

    def _drop(self, caller: bytes) -> None:
        """Drop the failures of a caller; whoever calls this holds the lock."""
        self._failures_by_caller.pop(caller, None)
        self._refused_until.pop(caller, None)
        # Left among those in a row, they would count as failures of others.
        failures = self._failures_since_answer.pop(caller, 0)
        self._failures_in_a_row = max(0, self._failures_in_a_row - failures)

    def _caller(self) -> bytes:
        """Return the key of the caller of the running call: a tenant, or a user of a single one."""
        owner = CALLER.get()
        if owner is None:
            return _NOBODY
        if self.several():
            return self._keys.key_of("tenant", owner.tenant)
        return self._keys.key_of("user", owner.user)


def breakers_of(lm: Any, embedder: Any) -> list[Breaker]:
    """Return the breakers of a language model, and of an embedder that is behind an endpoint."""
    guards: list[Any] = [getattr(lm, "guard", None)]
    account: EndpointEmbedding | None = getattr(embedder, "account", None)
    if account is not None and account.accounting is not None:
        guards.append(account.accounting.guard)
    return [guard for guard in guards if isinstance(guard, Breaker)]
