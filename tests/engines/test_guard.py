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


@pytest.mark.parametrize(
    ("limits", "tokens_of_a_call", "cost_of_a_call", "admitted_calls", "limit_hit"),
    [
        pytest.param(Limits(max_tokens=100), 60, None, 2, "max-tokens 100", id="tokens"),
        pytest.param(Limits(max_usd=0.01), 1, 0.006, 2, "max-usd 0.01", id="cost"),
        pytest.param(Limits(max_calls=3), 1, None, 3, "max-calls 3", id="calls"),
    ],
)
def test_calls_are_refused_after_the_one_that_reaches_a_limit(
    limits: Limits,
    tokens_of_a_call: int,
    cost_of_a_call: float | None,
    admitted_calls: int,
    limit_hit: str,
) -> None:
    """A limit of 100 tokens admits two calls of 60: what a call uses is known only afterwards.

    So a limit of a cent admits two calls of .6 cents.
    """
    guard = BudgetGuard(limits)
    for _ in range(admitted_calls):
        guard.admit()
        guard.record_success(tokens=tokens_of_a_call, cost=cost_of_a_call)

    with pytest.raises(BudgetError):
        guard.admit()

    assert guard.limit_hit == limit_hit
    assert guard.spent().calls == admitted_calls


def test_a_call_for_several_candidates_counts_all_of_them_before_they_come() -> None:
    """A call for four candidates counts as four, and others in flight may not use its share."""
    guard = BudgetGuard(Limits(max_calls=20))
    admitted_calls: list[int] = []

    def ask_for_four_candidates(number: int) -> None:
        with guard.reserve(Usage(calls=3)):  # beside the one that `admit` counts
            guard.admit()
            admitted_calls.append(number)
            time.sleep(0.01)
            guard.record_success(tokens=1, cost=None, calls=4)

    futures = call_in_threads([partial(ask_for_four_candidates, number) for number in range(64)])

    assert len(admitted_calls) == 20 // 4
    assert guard.spent().calls == 20
    refused_calls = [future for future in futures if future.exception() is not None]
    assert len(refused_calls) == 64 - 20 // 4
    assert all(isinstance(future.exception(), BudgetError) for future in refused_calls)


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
    """It allows nothing, while None allows everything."""
    assert Limits(max_usd=0).as_dict() == {"max_usd": 0}
    assert Limits().as_dict() == {}


def test_an_optimizer_may_not_spend_the_calls_that_are_reserved_for_scoring() -> None:
    """A run first lets an optimizer work (the phase), and then scores the result with the rest."""
    guard = BudgetGuard(Limits(max_calls=10))

    with guard.phase(reserved=Usage(calls=7)):
        assert count_admitted_calls(guard, 10) == 10 - 7
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


def order_of_service(callers_in_order: str) -> str:
    """Return in which order callers get the only slot, for which they wait while it is taken.

    Args:
        callers_in_order: The callers, a letter for each, in the order in which they come.
    """
    slots = FairSemaphore(1)
    served_callers: list[str] = []

    def take_slot(caller: str) -> None:
        with call_context(caller=caller), slots.slot():
            served_callers.append(caller)

    with ThreadPoolExecutor(len(callers_in_order)) as pool, slots.slot():
        for waiting_count, caller in enumerate(callers_in_order, start=1):
            pool.submit(take_slot, caller)
            assert within(20, lambda expected=waiting_count: slots.waiting == expected)

    assert slots.free == 1
    assert slots.waiting == 0
    return "".join(served_callers)


@pytest.mark.parametrize(
    ("callers_in_order", "expected_order"),
    [
        pytest.param("aaab", "abaa", id="two callers"),
        pytest.param("aaaabbcd", "abcdabaa", id="four callers"),
    ],
)
def test_every_waiting_caller_is_served_before_the_second_call_of_another(
    callers_in_order: str, expected_order: str
) -> None:
    assert order_of_service(callers_in_order) == expected_order


def test_a_tenant_with_many_calls_holds_at_most_its_share_of_the_slots() -> None:
    """A tenant is a customer with many users. The share of each tenant is half of the four slots.

    All calls of `acme` last until the test lets them end. Those of `globex` end at once.
    """
    slots = FairSemaphore(4, share=lambda: 0.5)
    served_tenants: list[str] = []
    acme_may_end = threading.Event()

    def call_for_acme(user: int) -> None:
        with call_context(caller=("acme", user), slots=slots), compute_slot():
            served_tenants.append("acme")
            acme_may_end.wait(10)

    def call_for_globex() -> None:
        with call_context(caller=("globex", 0), slots=slots), compute_slot():
            served_tenants.append("globex")

    with ThreadPoolExecutor(20) as pool:
        for user in range(8):
            pool.submit(call_for_acme, user)
        assert within(5, lambda: slots.waiting == 6 and slots.free == 2)

        # The other two slots are for the other tenant.
        for _ in range(6):
            pool.submit(call_for_globex)
        assert within(5, lambda: served_tenants == ["acme"] * 2 + ["globex"] * 6)

        acme_may_end.set()

    assert served_tenants[8:] == ["acme"] * 6
    assert slots.free == 4


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
    """Do the same in a task of asyncio, which waits without blocking its event loop."""
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
    """What was counted belongs to this process."""
    lm = scripted(answer_at_once)
    lm("hello")

    unpickled_meter = pickle.loads(pickle.dumps(lm.meter))

    assert unpickled_meter.read() == UsageReport()


def test_several_candidates_of_one_call_are_several_calls(scripted: Callable[..., Any]) -> None:
    """`n=3` asks for three answers to one prompt."""
    lm = scripted(answer_at_once, temperature=1.0)
    assert len(lm("hello", n=3)) == 3
    assert len(lm.engine.prompts) == 3
    assert lm.meter.read().calls["task"] == 3


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


def test_a_reading_does_not_change_when_more_is_counted(scripted: Callable[..., Any]) -> None:
    lm = scripted(answer_at_once)
    lm.count(prompt_tokens=5, answer_tokens=2, cost=0.5)
    reading = lm.meter.read()

    lm.count(prompt_tokens=7, answer_tokens=1)

    assert reading.calls == {"task": 1}
    assert reading.input_tokens == 5
    assert reading.output_tokens == 2
    assert reading.cost == 0.5
    assert reading.failed == 0
    assert reading.cached == 0
    assert reading.unpriced == 0


@pytest.mark.parametrize(
    ("prices", "expected_cost", "unpriced_calls"),
    [
        pytest.param(None, 0.0, 1, id="no prices"),
        pytest.param(
            TokenPrices(input=0.001, output=0.002), 200 * 0.001 + 100 * 0.002, 0, id="prices"
        ),
    ],
)
def test_an_answer_without_a_cost_is_priced_by_its_tokens(
    scripted: Callable[..., Any],
    prices: TokenPrices | None,
    expected_cost: float,
    unpriced_calls: int,
) -> None:
    # The scripted model counts a token for every four characters.
    lm = scripted(lambda kind, text, number: "x" * 400, prices=prices)
    lm("y" * 800)

    usage = lm.meter.read()
    assert dict(usage.calls) == {"task": 1}
    assert usage.input_tokens == 800 // 4
    assert usage.output_tokens == 400 // 4
    assert usage.cost == pytest.approx(expected_cost)
    assert usage.unpriced == unpriced_calls
    assert usage.failed == 0


@pytest.mark.parametrize(
    ("report_of_server", "tokens_with_a_report", "cached_tokens"),
    [
        pytest.param({"prompt_tokens_details": {"cached_tokens": 75}}, 100, 75, id="some"),
        pytest.param({"prompt_tokens_details": {"cached_tokens": 0}}, 100, 0, id="none"),
        pytest.param({}, 0, 0, id="not reported"),
    ],
)
def test_prompt_tokens_in_the_servers_cache_are_counted_if_it_reports_them(
    scripted: Callable[..., Any],
    report_of_server: dict[str, Any],
    tokens_with_a_report: int,
    cached_tokens: int,
) -> None:
    lm = scripted(answer_at_once)
    lm.count(prompt_tokens=100, answer_tokens=1, usage=report_of_server)

    usage = lm.meter.read()
    assert usage.input_tokens == 100
    assert usage.cache_reported_tokens == tokens_with_a_report
    assert usage.cached_tokens == cached_tokens


def test_answers_from_a_cache_count_in_the_measured_usage_of_a_piece_of_work(
    scripted: Callable[..., Any],
) -> None:
    """The work for a question is reported alike, whether or not its answers were cached."""
    lm = scripted(answer_at_once, cache=True)
    lm("before")
    with measure_usage() as work:
        lm("x" * 40)
        lm("x" * 40)  # from the cache
    lm("after")

    # Forty characters are ten tokens. The cached answer counts as if it had been asked for.
    assert [call.input_tokens for call in work.calls] == [10, 10]
    usage = lm.meter.read()
    assert usage.calls["task"] == 3
    assert usage.cached == 1
