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
from ...engines.endpoint.errors import AbandonedCallError, may_be_charged
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

    def reserve(self, tenant: str, usd: float | None) -> Reservation | None:
        """Reserve what a call may cost; None for a tenant without a budget. It may block.

        Args:
            tenant: Who pays.
            usd: What the call may cost at most; None if its price was not known.

        Raises:
            TenantBudgetError: The budget does not suffice, or the price was not known.
        """
        ...

    def settle(self, reservation: Reservation, usd: float) -> None:
        """Replace a reservation by what the call has cost. It may block, and raises nothing."""
        ...


@dataclass
class _ReservedCall:
    """A call in progress for which dollars are reserved."""

    budgets: TenantBudgets
    """What reserved the dollars, and counts what the call has cost."""
    reservation: Reservation
    reserved_usd: float
    usd: float | None = None
    """What the call has cost; None until it is answered."""

    def usd_at_end(self, error: BaseException | None) -> float:
        """Return the dollars that are counted for the call when it has ended.

        Args:
            error: What the call raised; None if it returned.
        """
        if self.usd is not None:
            return self.usd
        if error is None:
            # It returned, but nothing was answered: the endpoint has said that it does not serve
            # such requests, which costs nothing.
            return 0.0

        if isinstance(error, EndpointError):
            # The breaker refused the call, so it was not made.
            return 0.0
        if isinstance(error, LMError) and not may_be_charged(error):
            # The endpoint refused the call or failed, and charges nothing.
            return 0.0
        # The call was given up, or its answer broke off. What the endpoint charges for it is not
        # known. If it counted as nothing, a tenant that always leaves early could spend without a
        # limit.
        return self.reserved_usd


_reserved_call: ContextVar[_ReservedCall | None] = ContextVar("reserved_call", default=None)
"""The innermost call in progress for which dollars are reserved.

`record_success` sets its cost: `MeteredLM` calls that method without saying which call it means.
"""


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
        """Returns whether there are several tenants at the moment; a service replaces it.

        It decides who a caller is, see the class.
        """
        self.budgets: TenantBudgets | None = None
        """What tenants may spend; None if they may spend anything. A service sets it."""
        self._clock = clock
        self._open_until = clock()

        self._keys = NameKeys()
        self._failures_by_caller: dict[bytes, int] = {}
        """Failures since a call of the same caller was answered; who failed longest ago is first.

        They decide whether one caller is refused.
        """
        self._failures_since_answer = Counter[bytes]()
        """Failures since any call was answered, by the key of a caller.

        They tell whether the failures in a row are those of one caller alone.
        """
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
        """Set aside what a call may cost at most, from the budget of its tenant, during the block.

        When the block ends, what the call has cost is counted in its place. A block without a
        tenant, or whose tenant has no budget, just runs.

        Raises:
            TenantBudgetError: The budget of the tenant does not suffice.
        """
        call = self._begin_call(expected)
        if call is None:
            yield
            return

        error: BaseException | None = None
        # A model may ask another one inside of its call, so the outer call is put back.
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
        """Set aside what a call may cost, and count its true cost afterwards.

        This is `reserve` for coroutines. The event loop goes on while the store is asked.

        Raises:
            TenantBudgetError: The budget of the tenant does not suffice.
        """
        # `_begin_call` and `_end_call` are plain functions that wait for the store. `run_bridged`
        # awaits the store for them.
        call = await run_bridged(partial(self._begin_call, expected))
        if call is None:
            # No budget limits this call, so there is nothing to reserve.
            yield
            return

        error: BaseException | None = None
        # A model may ask another one inside of its call. After the inner call the outer one is the
        # innermost again.
        outer_call = _reserved_call.get()
        _reserved_call.set(call)
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            # `reset` with the token of `set` would fail here: a stream may be closed in another
            # context than the one in which it began.
            _reserved_call.set(outer_call)
            await run_bridged(partial(self._end_call, call, error))

    def _begin_call(self, expected: Usage) -> _ReservedCall | None:
        """Reserve what a call may cost.

        Return the reservation, which `_end_call` replaces by what the call has cost. Return None if
        the call is for no tenant, or no budget limits the tenant.
        """
        owner = CALLER.get()
        budgets = self.budgets
        if owner is None or budgets is None or not budgets.has_budgets:
            return None

        # A call holds a slot at the endpoint by now. All threads of `off_loop` may be taken by
        # calls that wait for such a slot; those of `disk_off_loop` wait for a disk only.
        usd = None if expected.unpriced else expected.cost
        reservation = disk_off_loop(partial(budgets.reserve, owner.tenant, usd))
        if reservation is None:
            return None
        return _ReservedCall(budgets, reservation, expected.cost)

    def _end_call(self, call: _ReservedCall, error: BaseException | None) -> None:
        usd = call.usd_at_end(error)
        disk_off_loop(partial(call.budgets.settle, call.reservation, usd))

    def admit(self) -> None:
        """Count a call that is about to be made, or refuse it.

        Raises:
            EndpointError: Calls are refused because of failures, for this caller or for everybody.
            MempilerError: `BudgetGuard.admit` refuses the call.
        """
        refused_until = self._refused_until.get(self._caller(), 0.0)
        is_caller_refused = self._clock() < refused_until
        if self.open or is_caller_refused:
            raise EndpointError(f"{self.model} does not answer; it is tried again in a few seconds")
        super().admit()

    def record_failure(self, error: Exception) -> None:
        """Count a failed call, and refuse further calls for `pause` seconds if many have failed.

        - `DEAD_AFTER` failures in a row, of more than one caller, mean that the model is down: the
          breaker opens for all.
        - `DEAD_AFTER` failures of one caller, while others' calls do not fail, mean that this
          caller's requests are to blame: the caller alone is refused.

        Errors that say nothing of the model do not count: a request that it refuses as invalid, and
        a call whose answer nobody waits for any more.
        """
        if not isinstance(error, LMError):
            return
        if isinstance(error, LMInvalidRequestError | AbandonedCallError):
            return

        caller = self._caller()
        refused_until = self._clock() + self.pause
        with self._lock:
            self._failures_in_a_row += 1
            self._failures_since_answer[caller] += 1
            # Taken out and added again, a caller stands behind those who failed before.
            caller_failures = self._failures_by_caller.pop(caller, 0) + 1
            self._failures_by_caller[caller] = caller_failures

            is_model_down = self._failures_in_a_row >= DEAD_AFTER
            if is_model_down and not self._fails_for_one_alone(caller):
                self._open_until = refused_until
            elif caller_failures >= DEAD_AFTER:
                self._refused_until[caller] = refused_until

            while len(self._failures_by_caller) > MAX_CALLERS:
                failed_longest_ago = next(iter(self._failures_by_caller))
                self._drop(failed_longest_ago)

    def record_success(self, tokens: int, cost: float | None, calls: int = 1) -> None:
        """Count a call that was answered, with its cost: the model works for the caller."""
        super().record_success(tokens, cost, calls)
        call = _reserved_call.get()
        if call is not None:
            # Without a price the call counts as what was reserved.
            call.usd = call.reserved_usd if cost is None else cost

        caller = self._caller()
        with self._lock:
            # An answer to anybody ends the failures in a row of all. It does not show that calls of
            # other callers are answered as well.
            self._failures_since_answer.clear()
            self._failures_by_caller.pop(caller, None)
            self._refused_until.pop(caller, None)

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
        """Return the key of the caller of the running call.

        With several tenants the caller is the tenant. With one tenant, it is the user: to
        refuse the tenant would be to refuse everybody.
        """
        owner = CALLER.get()
        if owner is None:
            return _NOBODY
        has_several_tenants = self.several()
        if has_several_tenants:
            return self._keys.key_of("tenant", owner.tenant)
        return self._keys.key_of("user", owner.user)


def breakers_of(lm: Any, embedder: Any) -> list[Breaker]:
    """Return the breakers of a language model, and of an embedder that is behind an endpoint."""
    guards: list[Any] = [getattr(lm, "guard", None)]
    account: EndpointEmbedding | None = getattr(embedder, "account", None)
    if account is not None and account.accounting is not None:
        guards.append(account.accounting.guard)
    return [guard for guard in guards if isinstance(guard, Breaker)]
