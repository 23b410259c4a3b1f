"""The guard and the meter: exact budgets, dead endpoints, slots in turn, calls that are counted.

A `BudgetGuard` belongs to a run. Every call asks it for admission (`admit`) before it is made, and
tells it afterwards what it used (`record_success`) or that it failed (`record_failure`). A `Meter`
counts the calls that were made.
"""

import asyncio
import copy
import math
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from dspy.lm15 import AuthError, ConfigurationError, NotConfiguredError, ServerError
from dspy.utils.exceptions import LMError, LMServerError
from mempiler.async_bridge import run_bridged
from mempiler.engines.call_context import Deadline, call_context, measure_usage
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.fair_semaphore import FairSemaphore, compute_slot
from mempiler.engines.limits import DEAD_AFTER, SHARE_FROM, BudgetGuard, Limits
from mempiler.engines.prices import TokenPrices
from mempiler.engines.usage import Usage, UsageReport
from mempiler.errors import BudgetError, EndpointError, UserError

from ..conftest import within


def call_in_threads(functions: list[Callable[[], object]]) -> list[Future[object]]:
    """Call functions in sixty-four threads, and return their futures when all have ended."""
    with ThreadPoolExecutor(64) as pool:
        return [pool.submit(function) for function in functions]


def answer_at_once(kind: str, text: str, number: int) -> str:
    """Answer a call, as the replies of a `scripted` model."""
    return f"answer to {text}"


def raise_error(error: Exception) -> Callable[[str, str, int], str]:
    """Return the replies of a `scripted` model whose every call fails."""

    def reply(kind: str, text: str, number: int) -> str:
        raise error

    return reply


# Budgets.


def count_admitted_calls(guard: BudgetGuard, call_count: int) -> int:
    """Ask a guard to admit so many calls from many threads; return how many it admitted."""
    futures = call_in_threads([guard.admit] * call_count)
    refused = [future for future in futures if isinstance(future.exception(), BudgetError)]
    admitted = [future for future in futures if future.exception() is None]
    assert len(refused) + len(admitted) == call_count
    return len(admitted)


@pytest.mark.parametrize("limit", [0, 1, 37])
def test_exactly_as_many_calls_are_admitted_as_the_limit_says(limit: int) -> None:
    guard = BudgetGuard(Limits(max_calls=limit))

    assert count_admitted_calls(guard, 100) == limit

    assert guard.spent().calls == limit
    assert guard.limit_hit == f"max-calls {limit}"
    assert guard.refused_calls == 100 - limit
    assert guard.fatal_error is None


def call_once(guard: BudgetGuard, tokens: int, cost: float | None = None) -> None:
    """Make a call that a guard admits, and tell the guard what the call used."""
    guard.admit()
    guard.record_success(tokens=tokens, cost=cost)


def test_calls_are_refused_after_the_one_that_reaches_the_limit_of_tokens() -> None:
    """What a call uses is known only afterwards: a limit of 100 tokens admits two calls of 60."""
    guard = BudgetGuard(Limits(max_tokens=100))
    call_once(guard, tokens=60)
    call_once(guard, tokens=60)

    with pytest.raises(BudgetError):
        guard.admit()

    assert guard.limit_hit == "max-tokens 100"
    assert guard.spent().calls == 2


def test_calls_are_refused_after_the_one_that_reaches_the_limit_of_cost() -> None:
    """What a call costs is known only afterwards, so a limit of 1 dollar admits two of 60 cents."""
    guard = BudgetGuard(Limits(max_usd=1))
    call_once(guard, tokens=1, cost=0.6)
    call_once(guard, tokens=1, cost=0.6)

    with pytest.raises(BudgetError):
        guard.admit()

    assert guard.limit_hit == "max-usd 1"
    assert guard.spent().calls == 2


def test_a_call_for_several_candidates_counts_all_of_them_before_they_come() -> None:
    """A limit of 20 calls admits five calls for four candidates each, however many threads ask."""
    guard = BudgetGuard(Limits(max_calls=20))

    def ask_for_four_candidates() -> None:
        # Beside the one call that `admit` counts, three are reserved.
        with guard.reserve(Usage(calls=3)):
            guard.admit()
            time.sleep(0.01)
            guard.record_success(tokens=1, cost=None, calls=4)

    futures = call_in_threads([ask_for_four_candidates] * 64)

    errors = [future.exception() for future in futures]
    assert errors.count(None) == 5
    assert guard.spent().calls == 20
    refusals = [error for error in errors if error is not None]
    assert all(isinstance(error, BudgetError) for error in refusals)


def test_a_call_waits_for_room_in_the_budget_until_its_deadline() -> None:
    guard = BudgetGuard(Limits(max_calls=4))

    def wait_for_room() -> float:
        """Return how many seconds the call waited before it gave up."""
        start = time.monotonic()
        with (
            call_context(deadline=Deadline(0.2)),
            pytest.raises(AbandonedCallError),
            guard.reserve(Usage(calls=3)),
        ):
            pass
        return time.monotonic() - start

    # All four calls are reserved, so there is no room for three more.
    with guard.reserve(Usage(calls=4)), ThreadPoolExecutor(1) as pool:
        waited_seconds = pool.submit(wait_for_room).result(timeout=10)
    assert 0.2 <= waited_seconds < 5

    # The call that gave up holds no reservation, so all four calls can be reserved at once.
    with guard.reserve(Usage(calls=4)):
        guard.admit()


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_usd", math.nan), ("max_calls", 10**400), ("max_tokens", "5"), ("max_usd", True)],
)
def test_a_limit_that_would_stop_nothing_is_refused_by_name(name: str, value: Any) -> None:
    """No sum is ever larger than NaN, and True would be a limit of one dollar."""
    with pytest.raises(UserError, match=f"{name} = .*give a finite number"):
        Limits(**{name: value})


def test_a_limit_of_0_is_a_limit() -> None:
    """A limit of 0 allows nothing, while None allows everything."""
    assert Limits(max_usd=0).as_dict() == {"max_usd": 0}
    assert Limits(max_usd=None).as_dict() == {}


def test_an_optimizer_may_not_spend_the_calls_that_are_reserved_for_scoring() -> None:
    """A run first lets an optimizer work (the phase), and then scores the result with the rest."""
    guard = BudgetGuard(Limits(max_calls=10))

    with guard.phase(reserved=Usage(calls=7)):
        assert count_admitted_calls(guard, 10) == 3
    assert guard.limit_hit == "max-calls 10, less what scoring needs"

    # After the block come the calls for which they were reserved.
    assert count_admitted_calls(guard, 10) == 7
    assert guard.limit_hit == "max-calls 10"


# Dead endpoints.


def record_answer(guard: BudgetGuard) -> None:
    """Tell a guard that a call was answered."""
    guard.record_success(tokens=1, cost=None)


def record_failures(guard: BudgetGuard, count: int) -> None:
    """Tell a guard that so many calls failed, one after the other.

    With the failure that makes the endpoint dead, the guard raises an error.
    """
    for _ in range(count):
        guard.record_failure(LMServerError("busy"))


@pytest.mark.parametrize("failures_before_answer", [0, 1, DEAD_AFTER - 1])
def test_an_endpoint_is_dead_after_several_failures_without_an_answer_between_them(
    failures_before_answer: int,
) -> None:
    guard = BudgetGuard()
    record_failures(guard, failures_before_answer)
    record_answer(guard)  # from here on failures are counted anew
    record_failures(guard, DEAD_AFTER - 1)
    assert guard.fatal_error is None

    with pytest.raises(EndpointError):
        record_failures(guard, 1)


def test_an_endpoint_is_dead_if_more_than_half_of_its_calls_fail() -> None:
    guard = BudgetGuard()
    # Half of the calls fail, and never two in a row.
    for _ in range(SHARE_FROM):
        record_answer(guard)
        record_failures(guard, 1)
    assert guard.fatal_error is None

    one_more_than_half = f"failed {SHARE_FROM + 1} of {2 * SHARE_FROM + 1} calls"
    with pytest.raises(EndpointError, match=one_more_than_half):
        record_failures(guard, 1)


def test_a_bug_in_our_code_does_not_count_as_a_failure_of_the_endpoint() -> None:
    """An endpoint is dead after `DEAD_AFTER` failures of its own."""
    guard = BudgetGuard()
    for _ in range(2 * DEAD_AFTER):  # as failures of the endpoint, half of them would be enough
        guard.record_failure(ValueError("a bug"))
    assert guard.fatal_error is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AuthError("wrong key"), "refuses the key.*wrong key"),
        (NotConfiguredError("no key", env_keys=("OPENAI_API_KEY",)), "set OPENAI_API_KEY"),
        (ConfigurationError("no such region"), "no such region"),
    ],
)
def test_an_error_that_only_the_user_can_fix_ends_the_run_at_once(
    scripted: Callable[..., Any], error: Exception, message: str
) -> None:
    """A second call would fail alike, so it raises the same error without asking."""
    lm = scripted(raise_error(error))
    for _ in range(3):
        with pytest.raises(UserError, match=message):
            lm("hello")
    assert len(lm.engine.prompts) == 1  # only the first call was made


# Slots at an endpoint. A call holds a slot while it lasts, and other calls wait in the queues of
# their callers.


def order_of_service(*callers: str) -> list[str]:
    """Let callers wait for the only slot, in this order; return in which order they get it."""
    slots = FairSemaphore(1)
    served_callers: list[str] = []

    def take_slot(caller: str) -> None:
        with call_context(caller=caller), slots.slot():
            served_callers.append(caller)

    with ThreadPoolExecutor(len(callers)) as pool, slots.slot():
        for waiting_count, caller in enumerate(callers, start=1):
            pool.submit(take_slot, caller)
            assert within(20, lambda expected=waiting_count: slots.waiting == expected)

    assert slots.free == 1
    assert slots.waiting == 0
    return served_callers


def test_every_waiting_caller_is_served_before_the_second_call_of_another() -> None:
    order = order_of_service("Ann", "Ann", "Ann", "Bob", "Bob", "Cy")

    assert order == ["Ann", "Bob", "Cy", "Ann", "Bob", "Ann"]


def test_a_tenant_with_many_calls_holds_at_most_its_share_of_the_slots() -> None:
    """There are four slots, of which a tenant may hold half. A tenant is a customer of a service.

    Three users of `acme` make calls that do not end, so one of them has to wait. A call of `globex`
    gets a slot all the same.
    """
    slots = FairSemaphore(4, share=lambda: 0.5)
    acme_may_end = threading.Event()

    def call_of_acme(user: str) -> None:
        with call_context(caller=("acme", user), slots=slots), compute_slot():
            acme_may_end.wait(10)

    def call_of_globex() -> None:
        with call_context(caller=("globex", "zoe"), slots=slots), compute_slot():
            pass

    with ThreadPoolExecutor(4) as pool:
        for user in ("ann", "bob", "cy"):
            pool.submit(call_of_acme, user)
        assert within(5, lambda: slots.free == 2 and slots.waiting == 1)

        pool.submit(call_of_globex).result(timeout=5)
        assert slots.waiting == 1

        acme_may_end.set()

    assert slots.free == 4
    assert slots.waiting == 0


def test_work_within_work_needs_no_second_slot() -> None:
    slots = FairSemaphore(1)

    with call_context(slots=slots, deadline=Deadline(5)), compute_slot():
        assert slots.free == 0
        with compute_slot():  # would wait for ever if it took the only slot again
            assert slots.free == 0

    assert slots.free == 1


def hold_slot(slots: FairSemaphore) -> None:
    """Wait for a slot, and give it back at once."""
    with slots.slot():
        pass


def hold_slot_under_asyncio(slots: FairSemaphore) -> None:
    """Wait for a slot in a task of asyncio, which does not block its event loop meanwhile."""
    asyncio.run(run_bridged(partial(hold_slot, slots)))


@pytest.mark.parametrize("hold", [hold_slot, hold_slot_under_asyncio])
def test_a_caller_that_leaves_at_its_deadline_holds_no_slot(
    hold: Callable[[FairSemaphore], None],
) -> None:
    slots = FairSemaphore(1)
    with slots.slot():  # the only one, so the others wait until their deadlines
        for _ in range(3):
            with call_context(deadline=Deadline(0.02)), pytest.raises(AbandonedCallError):
                hold(slots)
        assert slots.free == 0
        assert slots.waiting == 0
    assert slots.free == 1


def test_a_bridged_call_that_is_cancelled_while_it_waits_holds_no_slot() -> None:
    """A bridged call is plain code in a task of asyncio, which waits where the code has to."""
    slots = FairSemaphore(1)

    async def cancel_a_waiting_call() -> None:
        task = asyncio.ensure_future(run_bridged(partial(hold_slot, slots)))
        await asyncio.to_thread(within, 5, lambda: slots.waiting == 1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with slots.slot():
        asyncio.run(cancel_a_waiting_call())
        assert slots.free == 0
        assert slots.waiting == 0
    assert slots.free == 1


async def hold_slot_as_task(slots: FairSemaphore) -> None:
    """Wait for a slot without a thread, and give it back at once."""
    async with slots.aslot():
        pass


def test_a_task_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    slots = FairSemaphore(1)

    async def cancel_a_waiting_task() -> None:
        async with slots.aslot():
            waiting_task = asyncio.ensure_future(hold_slot_as_task(slots))
            await asyncio.sleep(0.05)
            waiting_task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting_task
        # If it were still in the queue, it would get the slot, and nobody else ever would.
        await asyncio.wait_for(hold_slot_as_task(slots), 10)

    asyncio.run(cancel_a_waiting_task())
    assert slots.free == 1


def test_a_task_waits_for_a_slot_until_its_deadline() -> None:
    slots = FairSemaphore(1)

    async def wait_in_vain() -> None:
        async with slots.aslot():
            with call_context(deadline=Deadline(0.1)), pytest.raises(AbandonedCallError):
                await hold_slot_as_task(slots)

    asyncio.run(wait_in_vain())
    assert slots.free == 1


@pytest.mark.parametrize("is_failing", [False, True])
def test_calls_of_all_copies_of_a_model_share_the_slots_of_its_endpoint(
    scripted: Callable[..., Any], is_failing: bool
) -> None:
    """A guard made with `in_flight=3` has three slots for each endpoint."""
    guard = BudgetGuard(in_flight=3)
    calls_in_flight: list[int] = []
    counts_in_flight: list[int] = []

    def reply(kind: str, text: str, number: int) -> str:
        calls_in_flight.append(number)
        counts_in_flight.append(len(calls_in_flight))
        time.sleep(0.01)
        calls_in_flight.pop()
        if is_failing:
            raise LMError("down")
        return "yes"

    lm = scripted(reply, guard=guard)
    copies = [lm, lm.copy(temperature=0.5), copy.deepcopy(lm)]
    with ThreadPoolExecutor(12) as pool:
        wait([pool.submit(copies[number % 3], f"question {number}") for number in range(12)])

    assert max(counts_in_flight) == 3
    assert guard.slots(lm.endpoint).free == 3


def test_a_call_that_waits_for_a_slot_is_refused_if_the_endpoint_dies_meanwhile(
    scripted: Callable[..., Any],
) -> None:
    guard = BudgetGuard(in_flight=1)
    lm = scripted(answer_at_once, guard=guard)
    with ThreadPoolExecutor(1) as pool, guard.slots(lm.endpoint).slot():
        call = pool.submit(lm, "hello")
        assert within(20, lambda: guard.slots(lm.endpoint).waiting == 1)
        guard.stop(EndpointError("dead"))

    assert type(call.exception()) is EndpointError
    assert lm.engine.prompts == []


# The meter.


def test_calls_of_copies_in_many_threads_are_counted_by_one_meter(
    scripted: Callable[..., Any],
) -> None:
    lm = scripted(answer_at_once)
    copies = [lm.copy(rollout_id=3, temperature=1.0), copy.deepcopy(lm), copy.copy(lm), lm]

    with ThreadPoolExecutor(32) as pool:
        wait([pool.submit(copies[number % 4], f"question {number}") for number in range(200)])

    assert len(lm.engine.prompts) == 200
    assert lm.meter.read().calls["task"] == 200


def test_a_pickled_meter_begins_at_0(scripted: Callable[..., Any]) -> None:
    """A pickled meter goes to another process, in which nothing was counted yet."""
    lm = scripted(answer_at_once)
    lm("hello")

    unpickled_meter = pickle.loads(pickle.dumps(lm.meter))

    assert unpickled_meter.read() == UsageReport()


def test_a_failed_call_is_counted_as_failed_only(scripted: Callable[..., Any]) -> None:
    lm = scripted(raise_error(ServerError("is down")))
    with pytest.raises(LMServerError):
        lm("hello")

    usage = lm.meter.read()
    assert usage.failed == 1
    assert dict(usage.calls) == {}


def test_the_difference_of_two_readings_is_the_usage_between_them(
    scripted: Callable[..., Any],
) -> None:
    """A model counts its calls under its role: it does tasks, writes prompts, or judges answers."""
    lm = scripted(answer_at_once)
    lm.count(prompt_tokens=5, answer_tokens=2, cost=0.5)
    first_reading = lm.meter.read()

    # Between the readings, a judge is asked once, for an unknown price, and an answer is cached.
    lm.role = "judge"
    lm.count(prompt_tokens=7, answer_tokens=1)
    lm.meter.include(UsageReport(cached=1))

    difference = lm.meter.read() - first_reading
    assert difference.by_role() == {"task": 0, "prompt": 0, "judge": 1, "cached": 1}
    assert difference.input_tokens == 7
    assert difference.output_tokens == 1
    assert difference.cost == 0.0
    assert difference.unpriced == 1


TEXT_OF_10_TOKENS = "x" * 40
"""The scripted model counts a token for every four characters."""


def answer_with_10_tokens(kind: str, text: str, number: int) -> str:
    """Answer a call, as the replies of a `scripted` model."""
    return TEXT_OF_10_TOKENS


def test_an_answer_without_a_cost_is_priced_by_its_tokens(scripted: Callable[..., Any]) -> None:
    dollars_per_token = TokenPrices(input=1.0, output=2.0)
    lm = scripted(answer_with_10_tokens, prices=dollars_per_token)

    lm(TEXT_OF_10_TOKENS)

    usage = lm.meter.read()
    assert usage.input_tokens == 10
    assert usage.output_tokens == 10
    assert usage.cost == 10 * 1.0 + 10 * 2.0
    assert usage.unpriced == 0


def test_an_answer_without_a_cost_and_without_prices_is_counted_as_unpriced(
    scripted: Callable[..., Any],
) -> None:
    lm = scripted(answer_with_10_tokens, prices=None)

    lm(TEXT_OF_10_TOKENS)

    assert lm.meter.read().cost == 0
    assert lm.meter.read().unpriced == 1


@pytest.mark.parametrize("cached_tokens", [0, 75])
def test_prompt_tokens_in_the_cache_of_the_server_are_counted(
    scripted: Callable[..., Any], cached_tokens: int
) -> None:
    """The server reports how many of the prompt's tokens it had in its cache."""
    lm = scripted(answer_at_once)
    report = {"prompt_tokens_details": {"cached_tokens": cached_tokens}}

    lm.count(prompt_tokens=100, answer_tokens=1, usage=report)

    assert lm.meter.read().cached_tokens == cached_tokens
    assert lm.meter.read().cache_reported_tokens == 100


def test_a_prompt_of_whose_cached_tokens_nothing_is_reported_is_not_among_the_reported_ones(
    scripted: Callable[..., Any],
) -> None:
    """The share of cached tokens is taken of the reported ones alone."""
    lm = scripted(answer_at_once)

    lm.count(prompt_tokens=100, answer_tokens=1, usage={})

    assert lm.meter.read().input_tokens == 100
    assert lm.meter.read().cache_reported_tokens == 0


def test_answers_from_a_cache_count_in_the_measured_usage_of_a_piece_of_work(
    scripted: Callable[..., Any],
) -> None:
    """The work for a question is reported alike, whether or not its answers were cached."""
    lm = scripted(answer_at_once, cache=True)
    lm("before")
    with measure_usage() as work:
        lm(TEXT_OF_10_TOKENS)
        lm(TEXT_OF_10_TOKENS)  # from the cache
    lm("after")

    # The cached answer counts as if it had been asked for.
    assert [call.input_tokens for call in work.calls] == [10, 10]
    usage = lm.meter.read()
    assert usage.calls["task"] == 3
    assert usage.cached == 1
