"""Requests and dollars of tenants, counted by several processes at once.

A tenant is a customer of a service, here "acme" or "globex", who may spend some dollars a day (the
limit). Before a call to a model, the dollars that it may cost are reserved. Afterwards they are
settled: what it cost takes the place of the reservation. A reservation that exceeds the limit is
refused. The refusal says whether the dollars are spent (`is_spent`) or only reserved by other
calls, and how many seconds the day still has.
"""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mempiler import Store
from mempiler.memory.store import queries
from mempiler.memory.store.database import Database
from mempiler.memory.store.tenant_usage import (
    RequestCount,
    Reservation,
    SpendingRefusal,
    TenantUsage,
)

FORK = multiprocessing.get_context("fork")
BEGIN_OF_MINUTE = 1_800_000_000.0
"""A time at which a minute begins, in seconds since 1970."""
MIDNIGHT = 1_800_057_600.0
"""The next midnight after that, where another day begins."""


def in_processes(count: int, work: Callable[[], Any]) -> list[Any]:
    """Do the same work in several processes at once, and return the results of all."""
    results = FORK.Queue()
    processes = [FORK.Process(target=lambda: results.put(work())) for _ in range(count)]
    for process in processes:
        process.start()
    # A process does not end before its result was taken.
    results_of_all = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    return results_of_all


class ClockSetter:
    """Stops the clock of this process at times that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def set(self, seconds_since_1970: float) -> None:
        self._monkeypatch.setattr(time, "time", lambda: seconds_since_1970)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ClockSetter:
    """Sets the clock of this process, by which an SQLite file counts."""
    return ClockSetter(monkeypatch)


@pytest.fixture
def usage(store: Store) -> TenantUsage:
    """What tenants use of a store in which nothing is counted yet."""
    return store.tenant_usage


@pytest.fixture
def usage_by_clock(store: Store, database: Database) -> TenantUsage:
    """The same for a store that counts by the clock of this process, which a test can set."""
    if database.is_server:
        pytest.skip("a server has a clock of its own")
    return store.tenant_usage


def can_reserve(usage: TenantUsage, tenant: str, usd: float, limit: float = 1.0) -> bool:
    """Reserve dollars of a tenant, if they are left of its limit; return whether they were."""
    outcome = usage.reserve(tenant, usd, limit, lifetime=600.0)
    return isinstance(outcome, Reservation)


def reservation_of(
    usage: TenantUsage, usd: float, limit: float = 1.0, lifetime: float = 600.0
) -> Reservation:
    """Reserve dollars of the tenant "acme", which must be left of its limit."""
    outcome = usage.reserve("acme", usd, limit, lifetime)
    assert isinstance(outcome, Reservation)
    return outcome


def test_requests_of_several_processes_are_counted_together(url: str) -> None:
    """Three processes send 20 requests each. A count begins again with every minute."""
    Store(url).close()

    def send() -> list[int]:
        with Store(url) as store:
            return [store.tenant_usage.count_request("acme").requests for _ in range(20)]

    counts = Counter[int]()
    for counts_of_process in in_processes(3, send):
        counts.update(counts_of_process)

    assert counts.total() == 60
    # Each number from 1 to 60 is returned once. If a minute ended meanwhile, some come again.
    minute_has_ended = counts[1] == 2
    if not minute_has_ended:
        assert sorted(counts.elements()) == list(range(1, 61))


def test_the_count_of_requests_begins_again_every_minute(
    usage_by_clock: TenantUsage, clock: ClockSetter
) -> None:
    clock.set(BEGIN_OF_MINUTE + 10)
    assert usage_by_clock.count_request("acme") == RequestCount(requests=1, seconds_left=50.0)
    assert usage_by_clock.count_request("acme") == RequestCount(requests=2, seconds_left=50.0)

    clock.set(BEGIN_OF_MINUTE + 60)
    assert usage_by_clock.count_request("acme") == RequestCount(requests=1, seconds_left=60.0)


def test_requests_are_counted_for_each_tenant(usage: TenantUsage) -> None:
    usage.count_request("acme")

    assert usage.count_request("globex").requests == 1


@pytest.fixture
def usage_just_before_the_minute_ends(
    url: str, clock: ClockSetter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TenantUsage]:
    """What tenants use of a store whose clock stands a quarter of a second before a minute."""
    moment = BEGIN_OF_MINUTE + 59.75
    clock.set(moment)
    # A server has a clock of its own, which stands in the statements.
    monkeypatch.setattr(queries, "_POSTGRESQL_NOW", f"CAST({moment} AS DOUBLE PRECISION)")
    queries.load_queries.cache_clear()
    with Store(url) as store:
        yield store.tenant_usage
    queries.load_queries.cache_clear()


def test_the_last_quarter_of_a_second_belongs_to_its_minute(
    usage_just_before_the_minute_ends: TenantUsage,
) -> None:
    count = usage_just_before_the_minute_ends.count_request("acme")

    assert count == RequestCount(requests=1, seconds_left=0.25)


def test_seconds_until_midnight_are_not_rounded(
    usage_just_before_the_minute_ends: TenantUsage,
) -> None:
    usage = usage_just_before_the_minute_ends

    refusal = usage.reserve("acme", usd=2.0, limit=1.0, lifetime=60.0)

    assert isinstance(refusal, SpendingRefusal)
    assert refusal.seconds_left == MIDNIGHT - (BEGIN_OF_MINUTE + 59.75)


def test_several_processes_together_reserve_the_whole_limit_and_no_more(url: str) -> None:
    Store(url).close()

    def count_reservations() -> int:
        with Store(url) as store:
            outcomes = [can_reserve(store.tenant_usage, "acme", usd=0.1) for _ in range(10)]
        return outcomes.count(True)

    reservations_of_processes = in_processes(3, count_reservations)

    # The limit of 1 dollar suffices for ten times ten cents.
    assert sum(reservations_of_processes) == 10


def test_reserved_dollars_cannot_be_reserved_by_others(usage: TenantUsage) -> None:
    """Of the limit of 1 dollar, 60 cents are reserved by the first call, and nothing is spent."""
    reservation_of(usage, usd=0.6, limit=1.0)

    refusal = usage.reserve("acme", usd=0.6, limit=1.0, lifetime=600.0)

    assert isinstance(refusal, SpendingRefusal)
    assert not refusal.is_spent
    assert 0 < refusal.seconds_left <= 86_400


def test_the_cost_of_a_call_replaces_its_reservation(usage: TenantUsage) -> None:
    reservation = reservation_of(usage, usd=0.6, limit=1.0)

    usage.settle(reservation, usd=0.25)

    assert usage.spent_today("acme") == 0.25
    # The rest of the limit of 1 dollar.
    assert can_reserve(usage, "acme", usd=0.75, limit=1.0)


def test_what_a_tenant_spends_takes_nothing_from_another_tenant(usage: TenantUsage) -> None:
    usage.settle(reservation_of(usage, usd=1.0, limit=1.0), usd=1.0)

    assert not can_reserve(usage, "acme", usd=1.0, limit=1.0)
    assert can_reserve(usage, "globex", usd=1.0, limit=1.0)


def test_a_refusal_says_that_the_budget_of_the_day_is_spent(usage: TenantUsage) -> None:
    """Of 1 dollar a day, 50 cents are spent, so a call that may cost 60 must wait for tomorrow."""
    reservation = reservation_of(usage, usd=0.5, limit=1.0)
    usage.settle(reservation, usd=0.5)

    refusal = usage.reserve("acme", usd=0.6, limit=1.0, lifetime=600.0)

    assert isinstance(refusal, SpendingRefusal)
    assert refusal.is_spent


def test_a_budget_can_be_spent_to_its_end_in_spite_of_rounding(usage: TenantUsage) -> None:
    """Three calls of 10 cents each spend the limit of 30 cents."""
    # As floating-point numbers, three times 0.1 is more than 0.3.
    for _ in range(3):
        reservation = reservation_of(usage, usd=0.1, limit=0.3)
        usage.settle(reservation, usd=0.1)

    assert not can_reserve(usage, "acme", usd=0.1, limit=0.3)


def test_what_a_killed_process_has_reserved_can_be_reserved_again_later(url: str) -> None:
    """The process reserves the whole limit of 1 dollar. It is killed before it settles the cost."""

    def reserve_and_die() -> None:
        # A reservation ends after its lifetime, here two seconds.
        Store(url).tenant_usage.reserve("acme", usd=1.0, limit=1.0, lifetime=2.0)
        os._exit(9)

    process = FORK.Process(target=reserve_and_die)
    process.start()
    process.join(60)
    assert process.exitcode == 9

    time.sleep(2.1)
    with Store(url) as store:
        assert can_reserve(store.tenant_usage, "acme", usd=1.0)
        assert store.tenant_usage.spent_today("acme") == 0


def test_a_reservation_of_yesterday_takes_nothing_from_today(
    usage_by_clock: TenantUsage, clock: ClockSetter
) -> None:
    """One second before midnight, a call reserves the whole limit of 1 dollar.

    Nothing is left of this day. After midnight the new day has a dollar of its own.
    """
    clock.set(MIDNIGHT - 1)
    # It lives for a minute, so it is still there after midnight.
    reservation_of(usage_by_clock, usd=1.0, limit=1.0, lifetime=60.0)
    refusal = usage_by_clock.reserve("acme", usd=1.0, limit=1.0, lifetime=60.0)
    assert refusal == SpendingRefusal(is_spent=False, seconds_left=1.0)

    clock.set(MIDNIGHT + 1)
    assert can_reserve(usage_by_clock, "acme", usd=1.0, limit=1.0)


def test_a_cost_settled_after_midnight_counts_for_the_day_of_its_reservation(
    usage_by_clock: TenantUsage, clock: ClockSetter
) -> None:
    """A call begins one second before midnight and ends after it.

    Its cost belongs to the old day, and only the cost of the second call is one of today.
    """
    clock.set(MIDNIGHT - 1)
    reservation_of_yesterday = reservation_of(usage_by_clock, usd=1.0, lifetime=60.0)
    clock.set(MIDNIGHT + 1)
    reservation_of_today = reservation_of(usage_by_clock, usd=1.0, lifetime=60.0)

    usage_by_clock.settle(reservation_of_yesterday, usd=0.9)
    usage_by_clock.settle(reservation_of_today, usd=0.2)

    assert usage_by_clock.spent_today("acme") == 0.2
