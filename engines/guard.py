"""Stops a run when its budget is spent or its endpoint is dead, and limits the calls in flight.

Optimizers catch failures and would spend a whole budget on a dead endpoint. Once the guard has tripped, every call is
refused before it is made. Calls are counted before they are made, so `max_calls` is exact; what a call may take of the
other limits is reserved while it is in flight, so a limit is overrun by one call at most; time may be overrun by more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from dspy.utils.exceptions import (
    LMAuthError,
    LMConfigurationError,
    LMError,
    LMInvalidRequestError,
    LMUnsupportedModelError,
)

from ..errors import BudgetError, EndpointError, MempilerError, UserError
from ..records.shared_by_copies import SharedByCopies
from ..text import one_line
from ..validation import check_number
from .endpoint.loop import AbandonedCallError, arun, run
from .spending import WORK_CONTEXT, Usage

IN_FLIGHT = 128
"""Calls in flight at one endpoint, unless said otherwise."""

DEAD_AFTER = 5
"""Consecutive failures that trip the breaker."""
SHARE_FROM = 20
"""Calls after which a failure share above one half trips it, too."""
_MOST = 1e18
"""Above this a limit is a slip."""


@dataclass(frozen=True)
class Limits:
    """What a run may spend at most; None is no limit.

    Raises:
        UserError: A limit is negative, infinite or NaN.
    """

    max_usd: float | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_minutes: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name), maximum=_MOST)

    @property
    def given(self) -> dict[str, float]:
        """Those that there are, by name."""
        return {name: limit for name, limit in vars(self).items() if limit is not None}


_SPENT = {"max_usd": "cost", "max_calls": "calls", "max_tokens": "tokens", "max_minutes": "minutes"}
"""What of a `Usage` each limit holds for."""


def spent_of(spending: Usage, limit: str) -> float:
    """What a spending is in the units of a limit, e.g. "max_minutes"."""
    return getattr(spending, _SPENT[limit])


class FairSemaphore:
    """The places of one endpoint: so many calls are in flight at most.

    Whoever has one call waiting is served before the second of another, however many that one has; first come those of
    the tenant that holds fewest places.

    Args:
        places: How many.
        share: The part of them that one tenant may hold at the moment.
    """

    def __init__(self, places: int = IN_FLIGHT, share: Callable[[], float] = lambda: 1.0) -> None:
        self._lock = threading.Lock()
        self._places, self._share = places, share
        self.free = places
        """Places that nobody holds."""
        self._held = Counter[Hashable]()
        self._waiting: OrderedDict[Hashable, deque[Future[None]]] = OrderedDict()

    @contextmanager
    def slot(self) -> Generator[None]:
        """Holds a place; waits for one no longer than the deadline of the work that wants it.

        Raises:
            AbandonedCallError: The deadline passed.
        """
        with self._turn() as turn:
            if not turn.done():
                run(_come(turn))
            yield

    @asynccontextmanager
    async def aslot(self) -> AsyncGenerator[None]:
        """`place` for asyncio; no thread waits."""
        with self._turn() as turn:
            if not turn.done():
                await arun(_come(turn))
            yield

    @contextmanager
    def _turn(self) -> Generator[Future[None]]:
        """A turn that comes when there is a place, at once where one is free; the place is given on in the end."""
        turn, whose = Future[None](), WORK_CONTEXT.get()[0]
        with self._lock:
            self._waiting.setdefault(whose, deque()).append(turn)
            self._give()
        try:
            yield turn
        finally:
            with self._lock:
                if turn.done() and not turn.cancelled():
                    self.free += 1
                    self._held[_tenant(whose)] -= 1
                    self._give()
                else:
                    self._waiting[whose].remove(turn)
                    if not self._waiting[whose]:
                        del self._waiting[whose]

    def _give(self) -> None:
        """Hands free places to the next in turn, so that no newcomer takes them."""
        while self.free and self._waiting:
            whose = min(self._waiting, key=lambda one: self._held[_tenant(one)])
            if self._held[_tenant(whose)] >= max(1, int(self._places * self._share())):
                return
            self.free -= 1
            self._held[_tenant(whose)] += 1
            turns = self._waiting.pop(whose)
            turn = turns.popleft()
            if turns:
                self._waiting[whose] = turns  # behind all others
            turn.set_result(None)


def _tenant(whose: Hashable) -> Hashable:
    return whose[0] if isinstance(whose, tuple) else whose


async def _come(turn: Future[None]) -> None:
    # A turn is never cancelled: it might be just given.
    await asyncio.shield(asyncio.wrap_future(turn))


class BudgetGuard(SharedByCopies):
    """Admits or refuses calls; shared by all models of a run and safe under threads.

    Args:
        limits: What may be spent at most.
        in_flight: Calls that one endpoint is asked at the same time.
    """

    def __init__(self, limits: Limits | None = None, in_flight: int = IN_FLIGHT) -> None:
        self.limits, self.in_flight = limits or Limits(), in_flight
        self.tenant_share: Callable[[], float] = lambda: 1.0
        """The part of an endpoint's places that one of several tenants may hold; who knows of them sets it."""
        self._lanes: dict[str, FairSemaphore] = {}
        self._phase = Limits()
        self._lock = threading.Condition()
        self._in_flight: list[Usage] = []
        self._started = time.monotonic()
        self._spent = Usage()
        self._row = self._failed = self._done = 0
        self.dead: MempilerError | None = None
        """Why the run must end: a dead endpoint, a refused key, a store that fails; None while it need not."""
        self.limit_hit: str | None = None
        """The limit that was reached, e.g. "max-calls 100", or None; in a phase, "max-calls 100, less ..."."""
        self.refused = 0
        """Calls refused because of a budget, of the whole run or of a phase."""

    def spent(self) -> Usage:
        """What has been spent so far."""
        with self._lock:
            return self._until_now()

    def remaining(self, share: float) -> Limits:
        """A share of what is left of limits and phase, for another process; all of the time, which passes for all."""
        spent, left, phase = self.spent(), dict[str, Any](), self._phase.given
        for each, limit in self.limits.given.items():
            rest = max(0, min(limit, phase.get(each, limit)) - spent_of(spent, each))
            part = rest if each == "max_minutes" else rest * share
            left[each] = part if each in ("max_minutes", "max_usd") else int(part)
        return Limits(**left)

    def add_usage(self, spent: Usage) -> None:
        """Counts what another process has spent but for the time; what it gives back is below 0."""
        with self._lock:
            self._spent += replace(spent, seconds=0)
            self._lock.notify_all()

    def admit(self) -> None:
        """Called before a call that costs.

        Raises:
            EndpointError: The endpoint is unreachable.
            UserError: It refuses the key.
            BudgetError: A limit is reached.
        """
        with self._lock:
            if self.dead is not None:
                raise type(self.dead)(str(self.dead))
            for limits in (self._phase, self.limits):
                for each, limit in limits.given.items():
                    if spent_of(self._until_now(), each) >= limit:
                        name = each.replace("_", "-")
                        self.refused += 1
                        if limits is self.limits:
                            self.limit_hit = f"{name} {limit:g}"
                        elif self.limit_hit is None:
                            self.limit_hit = f"{name} {self.limits.given[each]:g}, less what scoring needs"
                        raise BudgetError(f"budget reached: {name} {limit:g}")
            self._spent += Usage(calls=1)

    @contextmanager
    def reserving(self, expected: Usage) -> Iterator[None]:
        """Reserves what a call may take until the block ends; first waits while those in flight may take all there is.

        A call that takes more than is expected may overrun a limit by the difference, too.
        """
        if not self.limits.given:
            yield
            return
        with self._lock:
            while self.dead is None and self._taken_up():
                self._lock.wait()
            self._in_flight.append(expected)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight.remove(expected)
                self._lock.notify_all()

    def _until_now(self) -> Usage:
        return replace(self._spent, seconds=time.monotonic() - self._started)

    def _committed(self) -> Usage:
        """What has been spent, and what the calls in flight may take beside it."""
        return sum(self._in_flight, self._spent)

    def _taken_up(self) -> bool:
        """Whether the calls in flight may take all that is left of a limit."""
        taken = self._committed()
        return any(
            spent_of(self._spent, each) < limit <= spent_of(taken, each)
            for limits in (self._phase, self.limits)
            for each, limit in limits.given.items()
        )

    def slots(self, endpoint: str) -> FairSemaphore:
        """The places for calls at an endpoint, by its address or whatever else names it."""
        with self._lock:
            if endpoint not in self._lanes:
                self._lanes[endpoint] = FairSemaphore(self.in_flight, lambda: self.tenant_share())
            return self._lanes[endpoint]

    def stop(self, error: MempilerError) -> None:
        """Ends the run for another reason, e.g. a store that cannot be written."""
        with self._lock:
            self.dead = self.dead or error

    def release(self) -> None:
        """Called after a call that a cache answered: it has no cost."""
        with self._lock:
            self._spent -= Usage(calls=1)

    def record_success(self, tokens: int, cost: float | None, calls: int = 1) -> None:
        """Called after a call that was answered; `calls` is above 1 where it asked for several candidates."""
        with self._lock:
            self._row, self._done = 0, self._done + 1
            self._spent += Usage(calls - 1, tokens, cost=cost or 0.0)

    def record_failure(self, error: Exception) -> None:
        """Called after a call that failed, retries included.

        Raises:
            UserError: The endpoint refuses the key.
            EndpointError: This failure trips the breaker.
        """
        if not isinstance(error, LMError) or isinstance(error, AbandonedCallError):
            return
        if isinstance(error, LMInvalidRequestError) and not isinstance(error, LMUnsupportedModelError):
            return  # this prompt is refused, for its content or length; the endpoint is well
        names = " or ".join(getattr(error, "env_keys", ())) if isinstance(error, LMConfigurationError) else ""
        reason = f"there is none; set {names}" if names else one_line(error, 300)
        with self._lock:
            self._row, self._failed, self._done = self._row + 1, self._failed + 1, self._done + 1
            if self.dead is not None:
                pass  # the first reason stands; this call was in flight when it was found
            elif isinstance(error, LMAuthError | LMConfigurationError):
                # A key that is not set is as final as one that is refused.
                self.dead = UserError(f"the model's endpoint refuses the key: {reason}")
            elif self._row >= DEAD_AFTER:
                self.dead = EndpointError(f"the model's endpoint failed {self._row} times in a row, stopped: {reason}")
            elif self._done >= SHARE_FROM and self._failed * 2 > self._done:
                self.dead = EndpointError(
                    f"the model's endpoint failed {self._failed} of {self._done} calls, stopped: {reason}"
                )
            if self.dead is not None:
                raise type(self.dead)(str(self.dead)) from error

    @contextmanager
    def phase(self, reserve: Usage) -> Iterator[None]:
        """Keeps `reserve` of each limit back while the block runs, for the scoring that comes after it."""
        kept: dict[str, Any] = {
            each: max(0, limit - spent_of(reserve, each)) for each, limit in self.limits.given.items()
        }
        self._phase = Limits(**kept)
        try:
            yield
        finally:
            self._phase = Limits()

    def __reduce__(self) -> tuple[type[BudgetGuard], tuple[Limits, int]]:
        return BudgetGuard, (self.limits, self.in_flight)
