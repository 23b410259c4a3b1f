"""The budget that workers hold comes back when they end; a ledger knows of every call they make.

A run with several worker processes gives each of them a part of its budget. To settle a part means
to say what its worker has spent, so that the rest comes back. The ledger is what a worker reports
to before every call, so that this is known even if the worker is killed.
"""

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


def calls_that_are_left(guard: BudgetGuard) -> int:
    """Count how many calls a guard still admits. A run asks it before every call."""
    calls = 0
    try:
        while True:
            guard.admit()
            calls += 1
    except BudgetError:
        return calls


def test_the_parts_of_workers_count_as_spent_while_they_work() -> None:
    """Each of two workers gets one half of the budget, so nothing is left."""
    guard = BudgetGuard(Limits(max_calls=10, max_tokens=1000, max_usd=2))
    half_of_budget = guard.remaining(0.5)

    reservations = Reservations(guard, [half_of_budget, half_of_budget])

    assert reservations.open_workers == [0, 1]
    assert guard.spent().calls == 10
    assert guard.spent().tokens == 1000
    assert guard.spent().cost == 2


def test_what_a_settled_worker_did_not_spend_comes_back() -> None:
    """Each of two workers gets 5 calls, 500 tokens and 1 dollar.

    Worker 0 says what it spent. Worker 1 has not said it yet, so its whole part counts as spent.
    """
    guard = BudgetGuard(Limits(max_calls=10, max_tokens=1000, max_usd=2))
    half_of_budget = guard.remaining(0.5)
    reservations = Reservations(guard, [half_of_budget, half_of_budget])

    reservations.settle(0, Usage(calls=3, input_tokens=100, output_tokens=50, cost=0.5))

    assert reservations.open_workers == [1]
    assert guard.spent().calls == 3 + 5
    assert guard.spent().tokens == 100 + 50 + 500
    assert guard.spent().cost == 0.5 + 1


def test_when_all_workers_are_settled_the_rest_of_the_budget_can_be_used() -> None:
    guard = BudgetGuard(Limits(max_calls=10))
    half_of_budget = guard.remaining(0.5)
    reservations = Reservations(guard, [half_of_budget, half_of_budget])

    reservations.settle(0, Usage(calls=3))
    reservations.settle(1, Usage(calls=2))

    assert guard.spent().calls == 3 + 2
    assert calls_that_are_left(guard) == 10 - 3 - 2


def test_the_part_of_a_worker_that_is_never_settled_stays_spent() -> None:
    """Nobody knows what the worker has spent, so it may be all of its four calls."""
    guard = BudgetGuard(Limits(max_calls=10))

    Reservations(guard, [Limits(max_calls=4)])

    assert calls_that_are_left(guard) == 10 - 4


def test_a_worker_is_settled_only_once() -> None:
    guard = BudgetGuard(Limits(max_calls=10))
    reservations = Reservations(guard, [Limits(max_calls=10)])
    reservations.settle(0, Usage(calls=4))

    with pytest.raises(KeyError):
        reservations.settle(0, Usage(calls=4))

    assert calls_that_are_left(guard) == 10 - 4


def test_a_call_that_waits_for_budget_continues_when_a_worker_ends() -> None:
    """A call needs 20 tokens. Of 100 tokens, a worker holds 90, and another call the last ten.

    The worker ends, and has spent nothing. Then there is enough.
    """
    guard = BudgetGuard(Limits(max_tokens=100))
    reservations = Reservations(guard, [Limits(max_tokens=90)])
    call_has_begun = threading.Event()

    def make_call_of_twenty_tokens() -> None:
        call_has_begun.set()
        with guard.reserve(Usage(input_tokens=20)):
            guard.admit()

    with guard.reserve(Usage(input_tokens=10)), ThreadPoolExecutor(1) as pool:
        waiting_call = pool.submit(make_call_of_twenty_tokens)
        assert call_has_begun.wait(timeout=10)
        with pytest.raises(TimeoutError):
            waiting_call.result(timeout=0.1)

        reservations.settle(0, Usage())

        # If the call still waited, this would raise a TimeoutError.
        waiting_call.result(timeout=10)


def ledger_entry(number: int) -> LedgerEntry:
    """Return the entry that a worker records before its call of this number."""
    return LedgerEntry(number, reserved_usage=Usage(calls=number), metered_usage=UsageReport())


def test_the_ledger_keeps_the_newest_entry_of_each_worker() -> None:
    """A worker numbers its entries. Its threads may deliver them late, as number 2 here."""
    ledger = Ledger()
    assert ledger.last_entry(0) is None

    ledger.record(0, ledger_entry(1))
    ledger.record(0, ledger_entry(3))
    ledger.record(0, ledger_entry(2))
    ledger.record(1, ledger_entry(1))

    assert ledger.last_entry(0) == ledger_entry(3)
    assert ledger.last_entry(1) == ledger_entry(1)


def test_a_worker_records_every_call_before_it_makes_it(stub: Any) -> None:
    """So when a worker is killed, its last record has at least the calls that were paid.

    When the server gets the n-th request, at least n calls must have been recorded.
    """
    record_numbers: list[int] = []
    recorded_calls: list[int] = [0]
    unrecorded_requests: list[int] = []

    def record(number: int, usage: Usage) -> None:
        record_numbers.append(number)
        recorded_calls.append(int(usage.calls))

    def note_if_unrecorded(request_number: int, prompt: str) -> None:
        if max(recorded_calls) < request_number:
            unrecorded_requests.append(request_number)

    guard = RecordingGuard(Limits(max_calls=40, max_tokens=10**6), in_flight=8, record=record)
    server = stub(note_if_unrecorded, delay=0.01)
    lm = language_model(server.model, api_base=server.url, guard=guard, cache=False)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lm, [f"question {number}" for number in range(24)]))

    assert len(server.texts) == 24
    assert unrecorded_requests == []
    assert max(recorded_calls) == 24
    # Records may arrive in another order than they were made, so they are numbered.
    assert sorted(record_numbers) == list(range(1, 25))


def test_a_worker_records_the_most_tokens_that_a_call_may_use(stub: Any) -> None:
    """Before a call nobody knows how long its answer will be."""
    recorded_usage: list[Usage] = []

    def record(number: int, usage: Usage) -> None:
        recorded_usage.append(usage)

    guard = RecordingGuard(Limits(max_tokens=10**6), in_flight=8, record=record)
    server = stub()
    lm = language_model(server.model, api_base=server.url, guard=guard, cache=False)

    lm("question")

    assert recorded_usage[-1].tokens > guard.spent().tokens > 0


def test_a_call_that_cannot_be_recorded_is_not_made(stub: Any) -> None:
    def fail_to_record(number: int, usage: Usage) -> None:
        raise EndpointError("the ledger is gone")

    server = stub()
    guard = RecordingGuard(Limits(max_calls=5), in_flight=8, record=fail_to_record)
    lm = language_model(server.model, api_base=server.url, guard=guard, cache=False)

    with pytest.raises(EndpointError, match="the ledger is gone"):
        lm("question")

    assert server.texts == []
