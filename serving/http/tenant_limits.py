"""Limits of tenants: requests in a minute, and US dollars in a day.

    limiter = TenantLimiter(store.tenant_usage, tokens, TenantLimits(usd_per_day=5.0))
    limiter.guard_models(lm, embedder)
    await limiter.count_request("acme")     # raises an HTTPException (429) if it is one too many

The rules:

- A tenant may send so many requests in each minute of UTC. All others of this minute are refused.
- The model calls of a tenant may cost so many dollars in each day of UTC. What a call may cost at
  most is reserved before it. If what is left does not suffice for that, the call is not made. After
  the call, what it has cost replaces the reservation.
- Dollars are counted for every call, whoever makes it: questions, chats, and the writing of
  sessions in the background. A session that cannot be paid for stays queued until the next day.
- A limit in the token file takes the place of the default, from the moment when the file changes.
- Both are counted in the store, so they hold for all processes of a service together. A tenant
  without a limit is not counted.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

import anyio.to_thread
from anyio import CapacityLimiter

from ...engines.endpoint.embeddings import EndpointEmbedding
from ...engines.metered_lm import MeteredLM
from ...engines.prices import token_prices
from ...errors import StoreError, TenantBudgetError, UserError
from ...memory.store.tenant_usage import Reservation, SpendingRefusal, TenantUsage
from ...memory.tenant_lock import CURRENT_TENANT
from ...records.context_variables import set_context
from ..failure_log import failure
from ..worker.breaker import Breaker, breakers_of
from .errors import UnknownPriceError, too_many_requests
from .token_file import TenantLimits, Tokens

_LONGEST_CALL = 3600.0
"""Seconds for a model call of which no deadline is known."""
_SETTLING_TIME = 60.0
"""Seconds that a reservation outlasts the longest call, so that the call can be settled."""
_IN_USE_PAUSE = 2.0
"""Seconds after which a call may be tried again for which other calls left too little."""
_PRICES_PAUSE = 1.0
"""Seconds after which a call may be tried again that came before the prices were known."""

_log = logging.getLogger("mempiler.serving")


class _ReachedLimit(NamedTuple):
    """A limit of requests that a tenant has reached."""

    limit: int
    """Requests in a minute."""
    end_of_minute: float
    """When the tenant may send requests again, by `time.time`."""


class _CallCost(NamedTuple):
    """What is to be counted for a call in the place of its reservation."""

    reservation: Reservation
    usd: float


class TenantLimiter:
    """Counts what tenants use, and refuses what is above their limits.

    Args:
        usage: Where it is counted.
        tokens: The token file, whose lines may hold limits; None without one.
        defaults: The limits of tenants of whom the token file sets none.
    """

    def __init__(self, usage: TenantUsage, tokens: Tokens | None, defaults: TenantLimits) -> None:
        self._usage = usage
        self._tokens = tokens
        self._defaults = defaults
        self.refusals = Counter[str]()
        """What was refused: "requests" in a minute, and model calls because of "usd"."""
        self._refusals_lock = threading.Lock()

        self._one_at_a_time: dict[str, CapacityLimiter] = {}
        """By tenant, lets one request at a time be counted."""
        # Each tenant has at most one thread that counts, so the number of threads needs no other
        # limit. With anyio's default limiter a request would wait for threads of other tenants.
        self._unlimited = CapacityLimiter(math.inf)
        self._reached_limits: dict[str, _ReachedLimit] = {}
        """By tenant, the last limit of requests that it reached."""

        self._lm: MeteredLM | None = None
        self._embedder_name: str | None = None
        self._reservation_lifetime = _LONGEST_CALL + _SETTLING_TIME
        self._has_prices = False
        self._calls_in_progress: dict[str, _CallCost] = {}
        """By the id of its reservation, what a call in progress counts if it is cut off."""
        self._cut_off_calls: set[str] = set()
        """The ids of the reservations of calls that `count_cut_off_calls` has counted."""
        self._uncounted_calls: list[_CallCost] = []
        """Calls whose costs are counted later, because the store failed."""
        self._has_stopped = False
        """Whether `count_cut_off_calls` was called, after which no call begins."""
        self._calls_lock = threading.Lock()
        """Held for the four fields above."""

    def limits_of(self, tenant: str) -> TenantLimits:
        """Return the limits of a tenant: those in the token file, or else the defaults."""
        if self._tokens is None:
            return self._defaults
        return self._tokens.limits(tenant).or_else(self._defaults)

    def _count_refusal(self, limit: str) -> None:
        with self._refusals_lock:
            self.refusals[limit] += 1

    # Requests.

    async def count_request(self, tenant: str) -> None:
        """Count a request of a tenant, and refuse it if it exceeds the limit of this minute.

        A tenant without a limit is not counted. The requests of one tenant are counted one after
        the other, so that a tenant with many requests occupies one thread only.

        Raises:
            HTTPException: The tenant has sent too many requests in this minute (429).
            StoreError: The request cannot be counted.
        """
        limit = self.limits_of(tenant).requests_per_minute
        if limit is None:
            return
        self._refuse_if_limit_is_reached(tenant, limit)

        limiter = self._one_at_a_time.setdefault(tenant, CapacityLimiter(1))
        async with limiter:
            # Another request may have reached the limit while this one waited.
            self._refuse_if_limit_is_reached(tenant, limit)
            # Counting writes to the store, which has to know the tenant: the threads that wait to
            # write to an SQLite file get its `TenantLock` tenant by tenant.
            with set_context(CURRENT_TENANT, tenant):
                count = await anyio.to_thread.run_sync(
                    self._usage.count_request, tenant, limiter=self._unlimited
                )

        if count.requests > limit:
            self._count_refusal("requests")
            end_of_minute = time.time() + count.seconds_left
            self._reached_limits[tenant] = _ReachedLimit(limit, end_of_minute)
            raise too_many_requests(limit, count.seconds_left)

    def _refuse_if_limit_is_reached(self, tenant: str, limit: int) -> None:
        """Refuse a request without asking the store, if the limit was reached in this minute.

        Raises:
            HTTPException: It was reached (429).
        """
        reached = self._reached_limits.get(tenant)
        # The token file may have a higher limit by now.
        if reached is None or reached.limit != limit:
            return

        seconds_left = reached.end_of_minute - time.time()
        # If the clock was set back, the minute may seem to last for hours.
        if 0 < seconds_left <= 60:
            self._count_refusal("requests")
            raise too_many_requests(limit, seconds_left)

    # Dollars; `breaker.Breaker` calls these methods, also in threads of writers.

    @property
    def has_budgets(self) -> bool:
        """Whether any tenant has a limit of dollars."""
        if self._defaults.usd_per_day is not None:
            return True
        return self._tokens is not None and self._tokens.has_budgets

    def guard_models(self, lm: Any, embedder: Any) -> None:
        """Let the guards of a service's models ask this limiter before each call.

        Args:
            lm: The language model; None for that of `dspy.settings`, which no budget can limit.
            embedder: The embedder of the program. It costs nothing unless it is at an endpoint.

        Raises:
            UserError: A tenant has a budget, but it cannot be kept: the price of a model is not
                known, or the language model has no guard.
        """
        self._lm = lm
        if _endpoint_embedding_of(embedder) is not None:
            self._embedder_name = embedder.name
        # A reservation that expired during its call would be free for other calls, and then the
        # budget might not suffice for all of them.
        self._reservation_lifetime = _longest_call(lm, embedder) + _SETTLING_TIME

        if self.has_budgets:
            self._load_prices()
        for breaker in breakers_of(lm, embedder):
            breaker.budgets = self

    def reserve(self, tenant: str, usd: float | None) -> Reservation | None:
        """Reserve what a model call of a tenant may cost; None for a tenant without a budget.

        Args:
            tenant: Who pays.
            usd: What the call may cost at most; None if its price was not known when it began.

        Raises:
            TenantBudgetError: The budget does not suffice for the call, its price was not known, or
                the process ends.
            UnknownPriceError: The budget cannot be kept: the price of a model is not known.
        """
        limit = self.limits_of(tenant).usd_per_day
        if limit is None:
            return None

        if not self._has_prices:
            # The token file got its first budget after the start.
            self._load_missing_prices()
        if usd is None:
            # The price is known by now. The next try of the call has an estimate.
            raise TenantBudgetError("the prices of the model were not known yet", _PRICES_PAUSE)

        with self._calls_lock:
            has_stopped = self._has_stopped
        if has_stopped:
            raise _stop_error()

        self.count_earlier_calls()
        outcome = self._usage.reserve(tenant, usd, limit, self._reservation_lifetime)
        if isinstance(outcome, SpendingRefusal):
            self._count_refusal("usd")
            raise _budget_error(outcome, limit)

        with self._calls_lock:
            # The calls in progress may have been counted while the store reserved.
            has_stopped = self._has_stopped
            if not has_stopped:
                self._calls_in_progress[outcome.id] = _CallCost(outcome, usd)
        if has_stopped:
            self._count_call(_CallCost(outcome, 0.0))
            raise _stop_error()
        return outcome

    def settle(self, reservation: Reservation, usd: float) -> None:
        """Replace a reservation by what the call has cost.

        If the store fails, that is logged, and the cost is counted with one of the next calls: the
        call was answered, and the answer must not be lost.
        """
        with self._calls_lock:
            self._calls_in_progress.pop(reservation.id, None)
            is_counted = reservation.id in self._cut_off_calls
        self.count_earlier_calls()
        if not is_counted:
            self._count_call(_CallCost(reservation, usd))

    def count_cut_off_calls(self) -> None:
        """Count each call in progress as what is reserved for it, because the process ends.

        Otherwise the reservations would expire, and the calls would count as nothing. A call that
        ends all the same is not counted again, and no further call begins. If the store fails,
        `count_earlier_calls` counts the calls that are left.
        """
        with self._calls_lock:
            self._has_stopped = True
            calls = list(self._calls_in_progress.values())
            self._cut_off_calls.update(self._calls_in_progress)
            self._calls_in_progress.clear()
        while calls:
            is_counted = self._count_call(calls.pop())
            if not is_counted:
                # The store would hold up the end of the process with each further call.
                with self._calls_lock:
                    self._uncounted_calls.extend(calls)
                return

    def count_earlier_calls(self) -> None:
        """Count the costs of calls for which the store failed before, until it fails again."""
        while True:
            with self._calls_lock:
                if not self._uncounted_calls:
                    return
                call = self._uncounted_calls.pop()
            is_counted = self._count_call(call)
            if not is_counted:
                return

    def _count_call(self, call: _CallCost) -> bool:
        """Count the cost of a call, or keep it for later; return whether the store counted it."""
        try:
            self._usage.settle(call.reservation, call.usd)
        except StoreError as error:
            _log.error("the cost of a call of a tenant is counted later", extra=failure(error))
            with self._calls_lock:
                self._uncounted_calls.append(call)
            return False
        return True

    def _load_missing_prices(self) -> None:
        """Find the prices of the models while the service runs.

        Raises:
            UnknownPriceError: The price of a model is not known; the log says which.
        """
        try:
            self._load_prices()
        except UserError as error:
            _log.error("a tenant's budget cannot be kept", extra={"cause": str(error)})
            raise UnknownPriceError("the price of a model is not known") from error

    def _load_prices(self) -> None:
        """Find the prices of the models, which budgets need.

        Raises:
            UserError: The price of a model is not known, or the model has no guard.
        """
        lm = self._lm
        if lm is None or not isinstance(getattr(lm, "guard", None), Breaker):
            raise UserError(
                "budgets of tenants need a language model that is limited:"
                " make it by language_model(..., guard=Breaker())"
            )
        if lm.prices is None:
            lm.prices = token_prices(lm.model)
        if lm.prices is None:
            raise _unknown_price(lm.model)
        if self._embedder_name is not None and token_prices(self._embedder_name) is None:
            raise _unknown_price(self._embedder_name)
        self._has_prices = True


def _unknown_price(model_name: str) -> UserError:
    return UserError(
        f"the price of {model_name} is not known, so --tenant-max-usd-per-day and usd-per-day"
        " cannot hold; use --tenant-requests-per-minute and requests-per-minute"
    )


def _endpoint_embedding_of(embedder: Any) -> EndpointEmbedding | None:
    """Return the connection of an embedder; None if it is computed in this process."""
    return getattr(embedder, "account", None)


def _longest_call(lm: Any, embedder: Any) -> float:
    """Return the most seconds that one call of either model can take, its retries included."""
    # A model that asks an endpoint has an engine with a deadline, which covers all retries. Other
    # models, such as one that the user has written, have no deadline that we could read.
    engine = getattr(lm, "engine", None)
    lm_deadline: float = getattr(engine, "seconds", _LONGEST_CALL)

    endpoint_embedding = _endpoint_embedding_of(embedder)
    if endpoint_embedding is None:
        return lm_deadline
    embedder_deadline = endpoint_embedding.waits.deadline
    return max(lm_deadline, embedder_deadline)


def _stop_error() -> TenantBudgetError:
    """Return the error for a call that begins after the calls of the process were counted."""
    message = "this service ends; what was said is stored, and the request can be repeated"
    return TenantBudgetError(message, retry_after=_IN_USE_PAUSE)


def _budget_error(refusal: SpendingRefusal, limit: float) -> TenantBudgetError:
    """Return the error for a call for which too little is left of a tenant's budget.

    Args:
        refusal: Why nothing was reserved for the call.
        limit: The budget, in US dollars a day.
    """
    budget_left = f"what is left of this tenant's {limit:g} US dollars of this day (UTC)"
    advice = "what was said is stored, and the request can be repeated"
    if refusal.is_spent:
        message = f"{budget_left} does not suffice; {advice} tomorrow"
        return TenantBudgetError(message, retry_after=refusal.seconds_left)

    # Calls in progress have reserved the rest. They mostly cost less, so some may be free soon.
    message = f"{budget_left} is reserved for calls in progress; {advice}"
    return TenantBudgetError(message, retry_after=min(_IN_USE_PAUSE, refusal.seconds_left))
