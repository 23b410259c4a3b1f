"""Requests and dollars of tenants, counted by several processes at once."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from mempiler import Store
from mempiler.memory.store.database import Database
from mempiler.memory.store import queries
from mempiler.memory.store.tenant_usage import Reservation, SpendingRefusal

FORK = multiprocessing.get_context("fork")


def in_processes(count: int, work: Callable[[], Any]) -> list[Any]:
    """Do the same work in several processes at once, and return the results of all."""
    results = FORK.Queue()
    processes = [FORK.Process(target=lambda: results.put(work())) for _ in range(count)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    return found


def test_requests_of_several_processes_are_counted_together(url: str) -> None:
    Store(url).close()

    def send() -> list[int]:
        with Store(url) as store:
            return [store.tenant_usage.count_request("acme").requests for _ in range(20)]

    counts = Counter(count for part in in_processes(3, send) for count in part)
    # Each number is there once, or twice if a minute ended meanwhile.
    assert counts.total() == 60
    assert all(times == 1 for number, times in counts.items()) or counts[1] == 2


def test_a_count_begins_again_with_the_minute(
    store: Store, database: Database, monkeypatch: Any
) -> None:
    if database.is_server:
        pytest.skip("a server has a clock of its own")
    monkeypatch.setattr(time, "time", lambda: 1_800_000_010.0)
    usage = store.tenant_usage
    assert usage.count_request("acme") == (1, 50.0)
    assert usage.count_request("acme") == (2, 50.0)
    assert usage.count_request("globex") == (1, 50.0)
    monkeypatch.setattr(time, "time", lambda: 1_800_000_060.0)
    assert usage.count_request("acme") == (1, 60.0)


def test_a_minute_does_not_begin_early(url: str, monkeypatch: Any) -> None:
    moment = 1_800_000_059.75
    monkeypatch.setattr(time, "time", lambda: moment)
    server_time = f"CAST({moment} AS DOUBLE PRECISION)"
    monkeypatch.setattr(queries, "_POSTGRESQL_NOW", server_time)
    queries.load_queries.cache_clear()
    try:
        with Store(url) as store:
            count = store.tenant_usage.count_request("acme")
            refusal = store.tenant_usage.reserve("acme", 2.0, limit=1.0, lifetime=60.0)
    finally:
        queries.load_queries.cache_clear()
    assert count == (1, 0.25)
    assert refusal == SpendingRefusal(True, 1_800_057_600 - moment)


def test_processes_reserve_no_more_than_the_limit(url: str) -> None:
    Store(url).close()

    def reserve() -> int:
        with Store(url) as store:
            outcomes = [store.tenant_usage.reserve("acme", 0.1, 1.0, 600.0) for _ in range(10)]
        return sum(isinstance(outcome, Reservation) for outcome in outcomes)

    assert sum(in_processes(3, reserve)) == 10


def test_the_cost_of_a_call_replaces_its_reservation(store: Store) -> None:
    usage = store.tenant_usage
    first = usage.reserve("acme", 0.6, limit=1.0, lifetime=600.0)
    assert isinstance(first, Reservation)
    refused = usage.reserve("acme", 0.6, limit=1.0, lifetime=600.0)
    assert isinstance(refused, SpendingRefusal)
    assert not refused.is_spent
    assert 0 < refused.seconds_left <= 86_400

    usage.settle(first, 0.25)
    assert usage.spent_today("acme") == 0.25
    assert isinstance(usage.reserve("acme", 0.75, limit=1.0, lifetime=600.0), Reservation)
    assert isinstance(usage.reserve("globex", 1.0, limit=1.0, lifetime=600.0), Reservation)


def test_a_refusal_says_that_the_budget_of_the_day_is_spent(store: Store) -> None:
    usage = store.tenant_usage
    reservation = usage.reserve("acme", 0.5, limit=1.0, lifetime=600.0)
    assert isinstance(reservation, Reservation)
    usage.settle(reservation, 0.5)
    refused = usage.reserve("acme", 0.6, limit=1.0, lifetime=600.0)
    assert isinstance(refused, SpendingRefusal)
    assert refused.is_spent


def test_sums_are_not_refused_because_of_rounding(store: Store) -> None:
    for _ in range(3):
        reservation = store.tenant_usage.reserve("acme", 0.1, limit=0.3, lifetime=600.0)
        assert isinstance(reservation, Reservation)
        store.tenant_usage.settle(reservation, 0.1)
    assert isinstance(store.tenant_usage.reserve("acme", 0.1, 0.3, 600.0), SpendingRefusal)


def test_reservations_of_a_killed_process_become_free(url: str) -> None:
    def reserve_and_die() -> None:
        Store(url).tenant_usage.reserve("acme", 1.0, limit=1.0, lifetime=2.0)
        os._exit(9)

    process = FORK.Process(target=reserve_and_die)
    process.start()
    process.join(60)
    assert process.exitcode == 9
    with Store(url) as store:
        begun = time.monotonic()
        outcome = store.tenant_usage.reserve("acme", 1.0, limit=1.0, lifetime=2.0)
        if time.monotonic() - begun < 1:
            assert isinstance(outcome, SpendingRefusal)
        time.sleep(2.1)
        assert isinstance(store.tenant_usage.reserve("acme", 1.0, 1.0, 2.0), Reservation)
        assert store.tenant_usage.spent_today("acme") == 0


def test_a_late_cost_counts_for_the_day_of_its_reservation(
    store: Store, database: Database, monkeypatch: Any
) -> None:
    if database.is_server:
        pytest.skip("a server has a clock of its own")
    midnight = 1_800_057_600.0
    monkeypatch.setattr(time, "time", lambda: midnight - 1)
    usage = store.tenant_usage
    late = usage.reserve("acme", 1.0, limit=1.0, lifetime=60.0)
    assert isinstance(late, Reservation)
    assert usage.reserve("acme", 1.0, limit=1.0, lifetime=60.0) == SpendingRefusal(False, 1.0)

    monkeypatch.setattr(time, "time", lambda: midnight + 1)
    current = usage.reserve("acme", 1.0, limit=1.0, lifetime=60.0)
    assert isinstance(current, Reservation)
    usage.settle(late, 0.9)
    assert usage.spent_today("acme") == 0
    usage.settle(current, 0.2)
    assert usage.spent_today("acme") == 0.2
