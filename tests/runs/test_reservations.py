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


def use_up_calls(guard: BudgetGuard) -> int:
    """Make calls until the guard refuses one, and return how many it let through.

    The guard keeps the budget of the run: it is asked before every call.
    """
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

    Worker 0 is settled with what it spent, and worker 1 still counts with its whole part.
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
    """The workers have spent three and two of ten calls."""
    guard = BudgetGuard(Limits(max_calls=10))
    half_of_budget = guard.remaining(0.5)
    reservations = Reservations(guard, [half_of_budget, half_of_budget])

    reservations.settle(0, Usage(calls=3))
    reservations.settle(1, Usage(calls=2))

    assert guard.spent().calls == 5
    assert use_up_calls(guard) == 5


def test_a_part_that_is_never_settled_stays_spent() -> None:
    """Nobody knows what this worker has spent, so it may be all of its four calls."""
    guard = BudgetGuard(Limits(max_calls=10))

    Reservations(guard, [Limits(max_calls=4)])

    assert use_up_calls(guard) == 6


def test_a_part_is_settled_only_once() -> None:
    """The only worker has spent four of ten calls, so six are left."""
    guard = BudgetGuard(Limits(max_calls=10))
    reservations = Reservations(guard, [Limits(max_calls=10)])
    reservations.settle(0, Usage(calls=4))

    with pytest.raises(KeyError):
        reservations.settle(0, Usage(calls=4))

    assert use_up_calls(guard) == 6


def test_a_call_that_waits_for_budget_continues_when_a_part_comes_back() -> None:
    """A call that might exceed the budget waits as long as others may still give some back."""
    guard = BudgetGuard(Limits(max_tokens=100))
    reservations = Reservations(guard, [Limits(max_tokens=90)])
    call_has_begun = threading.Event()

    def make_call_of_twenty_tokens() -> None:
        call_has_begun.set()
        with guard.reserve(Usage(input_tokens=20)):
            guard.admit()

    # The worker holds 90 of 100 tokens. While this block holds the last ten, the call has to wait.
    with guard.reserve(Usage(input_tokens=10)), ThreadPoolExecutor(1) as pool:
        waiting_call = pool.submit(make_call_of_twenty_tokens)
        assert call_has_begun.wait(timeout=10)
        with pytest.raises(TimeoutError):
            waiting_call.result(timeout=0.1)

        # The worker ends, and has spent nothing.
        reservations.settle(0, Usage())

        # Now the call is made: this raises an error if it still waits.
        waiting_call.result(timeout=10)


def ledger_entry(number: int) -> LedgerEntry:
    """Return the entry that a worker records before its call of this number."""
    return LedgerEntry(number, reserved_usage=Usage(calls=number), metered_usage=UsageReport())


def test_the_ledger_keeps_the_entry_of_each_worker_with_the_highest_number() -> None:
    ledger = Ledger()
    assert ledger.last_entry(0) is None

    ledger.record(0, ledger_entry(1))
    ledger.record(0, ledger_entry(3))
    # Threads of a worker may deliver their entries late.
    ledger.record(0, ledger_entry(2))
    ledger.record(1, ledger_entry(1))

    assert ledger.last_entry(0) == ledger_entry(3)
    assert ledger.last_entry(1) == ledger_entry(1)


def test_a_worker_records_the_most_that_its_calls_may_use_before_it_makes_them(stub: Any) -> None:
    """So whenever a worker is killed, its last record says at least as much as was paid."""
    recorded_usage: dict[int, Usage] = {}
    unrecorded_requests: list[int] = []

    def record(number: int, usage: Usage) -> None:
        recorded_usage[number] = usage

    def note_if_unrecorded(request_number: int, prompt: str) -> None:
        # A copy, since other threads record meanwhile.
        last_number = max(list(recorded_usage))
        if recorded_usage[last_number].calls < request_number:
            unrecorded_requests.append(request_number)

    limits = Limits(max_calls=40, max_tokens=10**6)
    guard = RecordingGuard(limits, in_flight=8, record=record)
    # The server looks at the record when a request comes in.
    server = stub(note_if_unrecorded, delay=0.01)
    lm = language_model(server.model, api_base=server.url, guard=guard, cache=False)

    with ThreadPoolExecutor(8) as pool:
        questions = [f"question {number}" for number in range(24)]
        list(pool.map(lm, questions))

    assert len(server.texts) == 24
    assert unrecorded_requests == []
    assert sorted(recorded_usage) == list(range(1, 25))
    last_usage = recorded_usage[24]
    assert last_usage.calls == 24
    assert guard.spent().calls == 24
    # What is recorded is the most that calls in flight may use; in the end they used less.
    assert last_usage.tokens > guard.spent().tokens


def test_a_call_that_cannot_be_recorded_is_not_made(stub: Any) -> None:
    def fail_to_record(number: int, usage: Usage) -> None:
        raise EndpointError("the ledger is gone")

    server = stub()
    guard = RecordingGuard(Limits(max_calls=5), in_flight=8, record=fail_to_record)
    lm = language_model(server.model, api_base=server.url, guard=guard, cache=False)

    with pytest.raises(EndpointError, match="the ledger is gone"):
        lm("question")

    assert server.texts == []
