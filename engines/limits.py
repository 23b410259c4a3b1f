"""Limits of a run, and the guard that keeps them.

Optimizers catch failures, and would spend a whole budget on a dead endpoint. So a run stops in two
cases: a limit is reached, or the endpoint is found dead. From then on, every call is refused before
it is made.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from dspy.utils.exceptions import (
    LMAuthError,
    LMConfigurationError,
    LMError,
    LMInvalidRequestError,
    LMUnsupportedModelError,
)

from ..async_bridge import run_bridged
from ..errors import BudgetError, EndpointError, MempilerError, UserError
from ..records.shared_by_copies import SharedByCopies
from ..text import one_line
from .endpoint.errors import AbandonedCallError
from .fair_semaphore import IN_FLIGHT, FairSemaphore, wait_within_deadline
from .spending_limits import Limits
from .usage import Usage

DEAD_AFTER = 5
"""Failures in a row after which an endpoint is dead."""
SHARE_FROM = 20
"""Calls from which on an endpoint is dead if more than half of them failed."""

_USAGE_FIELDS = {
    "max_usd": "cost",
    "max_calls": "calls",
    "max_tokens": "tokens",
    "max_minutes": "minutes",
}
"""What of a `Usage` each limit is compared with."""


class BudgetGuard(SharedByCopies):
    """Admit or refuse calls; one guard is shared by all models of a run, and safe under threads.

    The life of one call:

        with guard.slots(address).slot():          # wait for a slot at the endpoint
            with guard.reserve(expected_usage):    # wait while others may use up all that is left
                guard.admit()                      # count the call, or refuse it
                try:
                    answer = ask()
                except LMError as error:
                    guard.record_failure(error)    # find out whether the endpoint is dead
                    raise
                guard.record_success(answer.tokens, answer.cost)

    A call is counted before it is made, so `max_calls` is exact. What it uses of the other limits
    is known only afterwards. Therefore a guess is reserved while it is in flight, and further calls
    wait while those in flight could reach a limit. So a limit is overrun by one call at most. A
    call that uses more than its guess may overrun it by that difference, too; time may be overrun
    by more.

    Args:
        limits: What may be spent at most; nothing is limited if None.
        in_flight: Calls that one endpoint is asked at the same time.
    """

    def __init__(self, limits: Limits | None = None, in_flight: int = IN_FLIGHT) -> None:
        self.limits = limits or Limits()
        self.in_flight = in_flight
        self.tenant_share: Callable[[], float] = lambda: 1.0
        """Returns the part of an endpoint's slots for one tenant; a service replaces it."""
        self.fatal_error: MempilerError | None = None
        """Why every call is refused, e.g. a dead endpoint or a refused key; None while none is."""
        self.limit_hit: str | None = None
        """The limit that was reached, e.g. "max-calls 100"; None while there is none.

        In a phase that leaves something for scoring: "max-calls 100, less what scoring needs".
        """
        self.refused_calls = 0
        """Calls refused because of a limit, of the whole run or of a phase."""

        self._lock = threading.Lock()
        self._change: Future[None] = Future()
        """Done when reservations or spending change next; calls that have to wait, wait for it."""
        self._slots: dict[str, FairSemaphore] = {}
        self._started = time.monotonic()
        self._spent = Usage()
        self._reservations: list[Usage] = []
        self._phase_limits = Limits()
        self._failures_in_a_row = 0
        self._failed_calls = 0
        self._finished_calls = 0

    @property
    def has_limits(self) -> bool:
        """Whether anything is limited."""
        return bool(self.limits.as_dict())

    def slots(self, endpoint: str) -> FairSemaphore:
        """Return the semaphore that limits how many calls an endpoint gets at the same time.

        Args:
            endpoint: Its address, or whatever else names it.
        """
        with self._lock:
            if endpoint not in self._slots:
                # A lambda, so that `tenant_share` is looked up at each call: a service sets it
                # after this semaphore was made.
                self._slots[endpoint] = FairSemaphore(self.in_flight, lambda: self.tenant_share())
            return self._slots[endpoint]

    # The life of one call.

    @contextmanager
    def reserve(self, expected: Usage) -> Iterator[None]:
        """Reserve what a call may use, for the block.

        While the calls in flight may use all that is left of a limit, it waits first.

        Raises:
            AbandonedCallError: The deadline of the call context passed meanwhile.
        """
        if not self.has_limits:
            yield
            return

        self._wait_for_room(expected)
        try:
            yield
        finally:
            self._release(expected)

    @asynccontextmanager
    async def areserve(self, expected: Usage) -> AsyncGenerator[None]:
        """Reserve as `reserve` does, in a coroutine; the event loop goes on meanwhile."""
        if not self.has_limits:
            yield
            return

        await run_bridged(partial(self._wait_for_room, expected))
        try:
            yield
        finally:
            self._release(expected)

    def _wait_for_room(self, expected: Usage) -> None:
        """Wait while the calls in flight may use all that is left, then add a reservation."""
        while True:
            with self._lock:
                # After a fatal error nobody waits: `admit` will refuse the call.
                if self.fatal_error is not None or not self._is_all_reserved():
                    self._reservations.append(expected)
                    return
                change = self._change
            # Reservations or spending have to change before there can be room.
            wait_within_deadline(change)

    def _release(self, reservation: Usage) -> None:
        """Take a reservation away, and let waiting calls look whether there is room."""
        with self._lock:
            self._reservations.remove(reservation)
            self._announce_change()

    def _announce_change(self) -> None:
        """Let all calls look again that wait for room; the lock is held."""
        self._change.set_result(None)
        self._change = Future()

    def admit(self) -> None:
        """Count a call that is about to be made, or refuse it.

        Raises:
            EndpointError: The endpoint is dead.
            UserError: The endpoint refuses the key.
            BudgetError: A limit is reached.
        """
        with self._lock:
            if self.fatal_error is not None:
                raise type(self.fatal_error)(str(self.fatal_error))
            self._check_phase_limits()
            self._check_limits()
            self._spent += Usage(calls=1)

    def record_success(self, tokens: int, cost: float | None, calls: int = 1) -> None:
        """Add what an answered call used.

        Args:
            tokens: Of its prompt and answers.
            cost: US dollars; None if its price is not known.
            calls: More than 1 where it asked for several candidates.
        """
        with self._lock:
            self._failures_in_a_row = 0
            self._finished_calls += 1
            # `admit` counted one of the calls already. The limit of tokens is one of the sum of
            # input and output, so all of them are entered as input.
            self._spent += Usage(calls - 1, input_tokens=tokens, cost=cost or 0.0)

    def record_failure(self, error: Exception) -> None:
        """Count a call that failed after its retries, if the endpoint is to blame.

        Raises:
            UserError: The run has to stop, because the endpoint refuses the key.
            EndpointError: The run has to stop, because the endpoint is dead.
        """
        if not _is_failure_of_endpoint(error):
            return

        with self._lock:
            self._failures_in_a_row += 1
            self._failed_calls += 1
            self._finished_calls += 1

            # The first reason stands; later failures are of calls that were in flight.
            if self.fatal_error is None:
                self.fatal_error = self._fatal_error_of(error)
            if self.fatal_error is not None:
                raise type(self.fatal_error)(str(self.fatal_error)) from error

    def stop(self, error: MempilerError) -> None:
        """Refuse all further calls for another reason, e.g. a store that cannot be written."""
        with self._lock:
            if self.fatal_error is None:
                self.fatal_error = error

    # The breaker: when is an endpoint dead?

    def _fatal_error_of(self, error: Exception) -> MempilerError | None:
        """Return the error that ends the run after a failure that was just counted.

        None if the run goes on: neither the key nor the endpoint has failed for good.
        """
        reason = _reason_of(error)

        # A key that is not set is as final as one that is refused.
        if isinstance(error, LMAuthError | LMConfigurationError):
            return UserError(f"the model's endpoint refuses the key: {reason}")
        if self._failures_in_a_row >= DEAD_AFTER:
            in_a_row = f"{self._failures_in_a_row} times in a row"
            return EndpointError(f"the model's endpoint failed {in_a_row}, stopped: {reason}")
        if self._has_mostly_failed():
            share = f"{self._failed_calls} of {self._finished_calls} calls"
            return EndpointError(f"the model's endpoint failed {share}, stopped: {reason}")
        return None

    def _has_mostly_failed(self) -> bool:
        """Tell whether more than half of the calls failed, once there are enough of them."""
        if self._finished_calls < SHARE_FROM:
            return False
        return self._failed_calls * 2 > self._finished_calls

    # The budget.

    def spent(self) -> Usage:
        """Return what has been spent so far."""
        with self._lock:
            return self._spent_until_now()

    def remaining(self, share: float) -> Limits:
        """Return a share of what is left, as the limits of another process.

        Of the time it gets all: time passes for all processes together.
        """
        spent = self.spent()
        phase_limits = self._phase_limits.as_dict()

        parts: dict[str, Any] = {}
        for name, limit in self.limits.as_dict().items():
            effective_limit = min(limit, phase_limits.get(name, limit))
            rest = max(0, effective_limit - _amount(spent, name))
            if name == "max_minutes":
                parts[name] = rest
            elif name == "max_usd":
                parts[name] = rest * share
            else:
                parts[name] = int(rest * share)
        return Limits(**parts)

    def add_usage(self, usage: Usage) -> None:
        """Add what another process of the run has spent, except its time.

        A worker's whole share of the budget is added when it starts. When it ends, what it did not
        spend is added as a negative usage. Time passes for all processes together.
        """
        with self._lock:
            self._spent += replace(usage, seconds=0)
            self._announce_change()

    @contextmanager
    def phase(self, reserved: Usage) -> Iterator[None]:
        """Keep a part of each limit back during the block, for the scoring that comes after it."""
        phase_limits: dict[str, Any] = {}
        for name, limit in self.limits.as_dict().items():
            phase_limit = max(0, limit - _amount(reserved, name))
            if name in ("max_calls", "max_tokens"):
                # What is reserved is an estimate, with a fraction. Calls are refused from the next
                # whole number on, as they would be from the fraction on.
                phase_limit = math.ceil(phase_limit)
            phase_limits[name] = phase_limit

        self._phase_limits = Limits(**phase_limits)
        try:
            yield
        finally:
            self._phase_limits = Limits()

    def _spent_until_now(self) -> Usage:
        return replace(self._spent, seconds=time.monotonic() - self._started)

    def _check_phase_limits(self) -> None:
        """Refuse a call if a limit of the phase is reached.

        In a `phase` a limit is that of the run less a reserve, which the scoring after it needs.
        """
        reached = _reached_limit(self._phase_limits, self._spent_until_now())
        if reached is None:
            return

        self.refused_calls += 1
        # If a limit of the whole run was reached before, that stays the reason in reports.
        if self.limit_hit is None:
            whole_limit = self.limits.as_dict()[reached]
            self.limit_hit = f"{_option(reached)} {whole_limit:g}, less what scoring needs"
        raise _budget_error(self._phase_limits, reached)

    def _check_limits(self) -> None:
        """Refuse a call if a limit of the run is reached."""
        reached = _reached_limit(self.limits, self._spent_until_now())
        if reached is None:
            return

        self.refused_calls += 1
        self.limit_hit = f"{_option(reached)} {self.limits.as_dict()[reached]:g}"
        raise _budget_error(self.limits, reached)

    def _committed(self) -> Usage:
        """Return what has been spent, and what the calls in flight may use beside it."""
        return sum(self._reservations, self._spent)

    def _is_all_reserved(self) -> bool:
        """Tell whether the calls in flight may use all that is left of a limit.

        A limit that is reached already is no reason to wait: `admit` refuses the call.
        """
        committed = self._committed()
        for limits in (self._phase_limits, self.limits):
            for name, limit in limits.as_dict().items():
                is_reached = _amount(self._spent, name) >= limit
                may_be_reached = _amount(committed, name) >= limit
                if may_be_reached and not is_reached:
                    return True
        return False

    def __reduce__(self) -> tuple[type[BudgetGuard], tuple[Limits, int]]:
        return BudgetGuard, (self.limits, self.in_flight)


def _amount(usage: Usage, limit_name: str) -> float:
    """Return the part of a usage that a limit is compared with, e.g. the cost for "max_usd"."""
    return getattr(usage, _USAGE_FIELDS[limit_name])


def _reached_limit(limits: Limits, usage: Usage) -> str | None:
    """Return the name of the first limit that a usage reaches, or None."""
    for name, limit in limits.as_dict().items():
        if _amount(usage, name) >= limit:
            return name
    return None


def _budget_error(limits: Limits, limit_name: str) -> BudgetError:
    limit = limits.as_dict()[limit_name]
    return BudgetError(f"budget reached: {_option(limit_name)} {limit:g}")


def _option(limit_name: str) -> str:
    """Return a limit as the command line spells it, without the two dashes."""
    return limit_name.replace("_", "-")


def _is_failure_of_endpoint(error: Exception) -> bool:
    """Tell whether an error says something about the endpoint, rather than about one call."""
    if not isinstance(error, LMError) or isinstance(error, AbandonedCallError):
        return False
    # A prompt may be refused for its content or length; then the endpoint is well.
    is_refused_prompt = isinstance(error, LMInvalidRequestError)
    return not is_refused_prompt or isinstance(error, LMUnsupportedModelError)


def _reason_of(error: Exception) -> str:
    """Return an error in one line; for a missing key, the variables that could hold it."""
    if isinstance(error, LMConfigurationError):
        variables = " or ".join(getattr(error, "env_keys", ()))
        if variables:
            return f"there is none; set {variables}"
    return one_line(error, 300)
