"""The budget that workers hold: it comes back when they end or die; the ledger knows of every call that is made."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.usage import Usage, UsageReport
from mempiler.errors import BudgetError, EndpointError
from mempiler.runs.ledger import Ledger, LedgerEntry
from mempiler.runs.reservations import RecordingGuard, Reservations


def calls_left(guard: BudgetGuard) -> int:
    """Makes all calls that the guard lets through; returns how many."""
    calls = 0
    try:
        while True:
            guard.admit()
            calls += 1
    except BudgetError:
        return calls


def test_parts_are_spent_until_they_are_settled() -> None:
    guard = BudgetGuard(Limits(max_calls=10, max_tokens=1000, max_usd=2))
    parts = [guard.remaining(0.5), guard.remaining(0.5)]
    reservations = Reservations(guard, parts)
    assert guard.spent().calls == 10
    assert guard.spent().tokens == 1000
    assert guard.spent().cost == 2
    assert reservations.open_workers == [0, 1]

    reservations.settle(0, Usage(3, 100, 50, 0.5))
    assert reservations.open_workers == [1]
    assert guard.spent().calls == 8
    assert guard.spent().tokens == 650
    assert guard.spent().cost == 1.5
    reservations.settle(1, Usage(2))
    assert guard.spent().calls == 5
    assert guard.spent().tokens == 150
    assert guard.spent().cost == 0.5
    assert calls_left(guard) == 5


def test_a_part_that_is_never_settled_stays_spent() -> None:
    """Of a worker of which nobody knows what it spent."""
    guard = BudgetGuard(Limits(max_calls=10))
    Reservations(guard, [Limits(max_calls=4)])
    assert calls_left(guard) == 6


def test_a_part_is_settled_once() -> None:
    guard = BudgetGuard(Limits(max_calls=10))
    reservations = Reservations(guard, [Limits(max_calls=10)])
    reservations.settle(0, Usage(4))
    with pytest.raises(KeyError):
        reservations.settle(0, Usage(4))
    assert calls_left(guard) == 6


def test_a_call_that_waits_for_budget_goes_on_when_a_part_comes_back() -> None:
    guard = BudgetGuard(Limits(max_tokens=100))
    reservations = Reservations(guard, [Limits(max_tokens=90)])
    begun = threading.Event()

    def call() -> None:
        begun.set()
        with guard.reserve(Usage(0, 20)):
            guard.admit()

    with guard.reserve(Usage(0, 10)), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call)
        assert begun.wait(10)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        reservations.settle(0, Usage())
        waiting.result(10)


def test_the_ledger_keeps_the_latest_entry_of_each_worker() -> None:
    """Entries of a worker's threads may come late."""
    ledger = Ledger()
    assert ledger.last_entry(0) is None
    for worker, number in ((0, 1), (0, 3), (0, 2), (1, 1)):
        ledger.record(worker, LedgerEntry(number, Usage(number), UsageReport()))
    assert [ledger.last_entry(worker) for worker in (0, 1)] == [
        LedgerEntry(3, Usage(3), UsageReport()),
        LedgerEntry(1, Usage(1), UsageReport()),
    ]


def test_calls_are_recorded_before_they_are_made_with_all_that_is_in_flight(stub: Any) -> None:
    """Whenever the worker is killed, no more calls and tokens were paid than its last entry says."""
    records = dict[int, Usage]()
    unknown = list[int]()

    def check(n: int, text: str) -> None:
        if records[max(list(records))].calls < n:
            unknown.append(n)

    guard = RecordingGuard(Limits(max_calls=40, max_tokens=10**6), 8, records.__setitem__)
    server = stub(check, delay=0.01)
    lm = language_model(server.model, api_base=server.url, guard=guard, cache=False)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: lm(f"question {n}"), range(24)))
    assert len(server.texts) == 24
    assert unknown == []
    assert sorted(records) == list(range(1, 25))
    last = records[24]
    assert last.calls == guard.spent().calls == 24
    assert last.tokens > guard.spent().tokens


def test_a_call_that_cannot_be_recorded_is_not_made(stub: Any) -> None:
    def gone(number: int, spent: Usage) -> None:
        raise EndpointError("the ledger is gone")

    server = stub()
    guard = RecordingGuard(Limits(max_calls=5), 8, gone)
    with pytest.raises(EndpointError, match="the ledger is gone"):
        language_model(server.model, api_base=server.url, guard=guard, cache=False)("question")
    assert server.texts == []
