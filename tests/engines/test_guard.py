"""The guard and the meter: exact budgets, dead endpoints, places in turn; calls counted where a model is asked."""

import asyncio
import copy
import math
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
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
from mempiler.errors import BudgetError, EndpointError, MempilerError, UserError

from ..conftest import within as until


def fail(guard: BudgetGuard, times: int = 1, words: str = "busy") -> MempilerError | None:
    """Lets calls fail; the error that the last of them raised."""
    raised = None
    for _ in range(times):
        try:
            guard.record_failure(LMServerError(words))
            raised = None
        except MempilerError as error:
            raised = error
    return raised


def outcomes(calls: list[Any]) -> set[type]:
    """What calls of sixty-four threads end with."""
    with ThreadPoolExecutor(64) as pool:
        return {type(future.exception()) for future in [pool.submit(call) for call in calls]}


def admitted(guard: BudgetGuard, calls: int) -> int:
    before = guard.spent().calls
    outcomes([guard.admit] * calls)
    return int(guard.spent().calls - before)


@pytest.mark.parametrize("limit", [0, 1, 37])
def test_calls_are_admitted_up_to_the_limit_exactly(limit):
    guard = BudgetGuard(Limits(max_calls=limit))
    assert admitted(guard, 100) == limit
    assert guard.limit_hit == f"max-calls {limit}"
    assert guard.refused_calls == 100 - limit
    assert guard.fatal_error is None


@pytest.mark.parametrize(
    ("limits", "worked", "calls", "limit_hit"),
    [
        (Limits(max_tokens=100), (60, None), 2, "max-tokens 100"),
        (Limits(max_usd=0.01), (1, 0.006), 2, "max-usd 0.01"),
        (Limits(max_calls=3), (1, None), 3, "max-calls 3"),
    ],
    ids=["tokens", "usd", "calls"],
)
def test_usage_of_calls_counts_against_the_limits(limits, worked, calls, limit_hit):
    guard = BudgetGuard(limits)
    while guard.limit_hit is None:
        with suppress(BudgetError):
            guard.admit()
            guard.record_success(*worked)
    assert guard.limit_hit == limit_hit
    assert guard.spent().calls == calls


def test_candidates_of_calls_in_flight_count_before_they_come():
    guard = BudgetGuard(Limits(max_calls=20))
    asked: list[int] = []

    def call(number: int) -> None:
        with guard.reserve(Usage(calls=3)):
            guard.admit()
            asked.append(number)
            time.sleep(0.01)
            guard.record_success(1, None, calls=4)

    assert outcomes([lambda n=n: call(n) for n in range(64)]) == {type(None), BudgetError}
    assert len(asked) == 5
    assert guard.spent().calls == 20


def test_a_call_waits_for_room_in_the_budget_until_its_deadline():
    guard = BudgetGuard(Limits(max_calls=4))

    def wait_for_room() -> float:
        started = time.monotonic()
        with (
            call_context(deadline=Deadline(0.2)),
            pytest.raises(AbandonedCallError),
            guard.reserve(Usage(calls=3)),
        ):
            pass
        return time.monotonic() - started

    with guard.reserve(Usage(calls=4)), ThreadPoolExecutor(1) as pool:
        assert 0.2 <= pool.submit(wait_for_room).result(timeout=10) < 5
    with guard.reserve(Usage(calls=4)):  # the call that gave up holds nothing
        guard.admit()


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_usd", math.nan), ("max_calls", 10**400), ("max_tokens", "5"), ("max_usd", True)],
)
def test_a_limit_that_stops_nothing_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{name} = .*give a finite number"):
        Limits(**{name: value})
    assert Limits(max_usd=0).as_dict() == {"max_usd": 0}
    assert not Limits().as_dict()


def test_a_phase_keeps_back_what_comes_after_it():
    guard = BudgetGuard(Limits(max_calls=10))
    with guard.phase(Usage(calls=7)):
        assert admitted(guard, 10) == 3
    assert guard.limit_hit == "max-calls 10, less what scoring needs"
    assert admitted(guard, 10) == 7
    assert guard.limit_hit == "max-calls 10"


@pytest.mark.parametrize("good", [0, 1, DEAD_AFTER - 1])
def test_an_answer_in_between_starts_the_row_anew(good):
    guard = BudgetGuard()
    assert fail(guard, good) is None
    guard.record_success(1, None)
    assert fail(guard, DEAD_AFTER - 1) is None
    assert isinstance(fail(guard), EndpointError)


def test_half_of_the_calls_may_fail_but_not_more():
    guard = BudgetGuard()
    for _ in range(SHARE_FROM):
        guard.record_success(1, None)
        assert fail(guard) is None
    assert "failed 21 of 41 calls" in str(fail(guard))


def test_only_failures_of_the_endpoint_count():
    guard = BudgetGuard()
    for _ in range(DEAD_AFTER * 2):
        guard.record_failure(ValueError("a bug"))
    assert guard.fatal_error is None


def served(lane: FairSemaphore, callers: str) -> str:
    """In which order callers get the only place, who come one after the other while it is taken."""
    order: list[str] = []

    def call(whose: str) -> None:
        with call_context(caller=whose), lane.slot():
            order.append(whose)

    with ThreadPoolExecutor(len(callers)) as pool, lane.slot():
        for n, whose in enumerate(callers, 1):
            pool.submit(call, whose)
            assert until(20, lambda n=n: lane.waiting == n)
    return "".join(order)


@pytest.mark.parametrize(("come", "get"), [("aaab", "abaa"), ("aaaabbcd", "abcdabaa")])
def test_a_waiting_caller_is_served_before_the_second_call_of_another(come: str, get: str) -> None:
    lane = FairSemaphore(1)
    assert served(lane, come) == get
    assert lane.free == 1
    assert lane.waiting == 0


def test_a_tenant_holds_its_share_however_many_users_it_has_and_who_holds_fewest_comes_first() -> (
    None
):
    lane, order, go = FairSemaphore(4, lambda: 0.5), list[str](), threading.Event()
    wait = {"acme": lambda: go.wait(10), "other": lambda: None}

    def work(tenant: str, user: int) -> None:
        with call_context(caller=(tenant, user), slots=lane), compute_slot(), compute_slot():
            order.append(tenant)
            wait[tenant]()

    with ThreadPoolExecutor(20) as pool:
        for n in range(8):
            pool.submit(work, "acme", n)
        assert until(5, lambda: (lane.waiting, lane.free) == (6, 2))
        for _ in range(6):
            pool.submit(work, "other", 0)
        assert until(5, lambda: order == ["acme"] * 2 + ["other"] * 6)
        go.set()
    assert order[8:] == ["acme"] * 6
    assert lane.free == 4
    assert lane.waiting == 0


async def taken(lane: FairSemaphore) -> None:
    await run_bridged(lambda: lane.slot().__enter__())


@pytest.mark.parametrize(
    "taking", [lambda lane: lane.slot().__enter__(), lambda lane: asyncio.run(taken(lane))]
)
def test_a_caller_that_leaves_at_the_deadline_holds_no_slot(
    taking: Callable[[FairSemaphore], Any],
) -> None:
    lane = FairSemaphore(1)
    with lane.slot():
        for _ in range(3):
            with call_context(deadline=Deadline(0.02)), pytest.raises(AbandonedCallError):
                taking(lane)
        assert lane.free == 0
        assert lane.waiting == 0
    assert lane.free == 1


def test_a_caller_that_is_cancelled_while_waiting_holds_no_slot() -> None:
    lane = FairSemaphore(1)

    async def cancelled() -> None:
        task = asyncio.ensure_future(taken(lane))
        await asyncio.to_thread(until, 5, lambda: lane.waiting == 1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with lane.slot():
        asyncio.run(cancelled())
        assert lane.free == 0
        assert lane.waiting == 0
    assert lane.free == 1


@pytest.mark.parametrize("text", ["well", "fail"])
def test_calls_of_all_copies_of_a_model_share_the_places(scripted: Any, text: str) -> None:
    guard, inside, counted = BudgetGuard(in_flight=3), list[int](), list[int]()

    def reply(kind: str, text: str, n: int) -> str:
        inside.append(n)
        counted.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        if "fail" in text:
            raise LMError("down")
        return "yes"

    lm = scripted(reply, guard=guard)
    models = (lm, lm.copy(temperature=0.5), copy.deepcopy(lm))
    with ThreadPoolExecutor(12) as pool:
        wait([pool.submit(models[n % 3], f"{text} {n}") for n in range(12)])
    assert max(counted) == 3
    assert guard.slots(lm.endpoint).free == 3


def test_a_call_that_waited_is_refused_when_the_endpoint_died_meanwhile(scripted: Any) -> None:
    guard = BudgetGuard(in_flight=1)
    lm = scripted(lambda kind, text, n: "yes", guard=guard)
    with ThreadPoolExecutor(1) as pool, guard.slots(lm.endpoint).slot():
        asked = pool.submit(lm, "well")
        assert until(20, lambda: guard.slots(lm.endpoint).waiting == 1)
        guard.stop(EndpointError("dead"))
    assert type(asked.exception()) is EndpointError
    assert lm.engine.prompts == []


def echo(kind: str, text: str, n: int) -> str:
    return f"answer to {text}"


def failing(error: Exception) -> Any:
    def reply(kind: str, text: str, n: int) -> str:
        raise error

    return reply


def test_threads_and_copies_count_into_the_same_meter(scripted):
    lm = scripted(echo)
    twins = [lm.copy(rollout_id=3, temperature=1.0), copy.deepcopy(lm), copy.copy(lm), lm]
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda n: twins[n % 4](f"question {n}"), range(200)))
    assert lm.meter.read().calls["task"] == len(lm.engine.prompts) == 200
    assert pickle.loads(pickle.dumps(lm.meter)).read() == UsageReport()


def test_several_answers_of_one_call_are_several_calls(scripted):
    lm = scripted(echo, temperature=1.0)
    assert len(lm("hello", n=3)) == 3
    assert lm.meter.read().calls["task"] == len(lm.engine.prompts) == 3


def test_a_failed_call_is_counted_as_failed_only(scripted):
    lm = scripted(failing(ServerError("is down")))
    with pytest.raises(LMServerError):
        lm("hello")
    usage = lm.meter.read()
    assert usage.failed == 1
    assert dict(usage.calls) == {}


def test_the_difference_of_two_readings_is_the_usage_between_them(scripted):
    lm = scripted(echo)
    lm.count(5, 2, cost=0.5)
    before = lm.meter.read()
    lm.role = "judge"
    lm.count(7, 1)
    lm.meter.include(UsageReport(cached=1))
    since = lm.meter.read() - before
    assert since.by_role() == {"task": 0, "prompt": 0, "judge": 1, "cached": 1}
    assert since.input_tokens == 7
    assert since.output_tokens == 1
    assert since.cost == 0.0
    assert since.unpriced == 1
    assert before == UsageReport(before.calls, 0, 0, 5, 2, 0.5, 0)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (AuthError("wrong key"), "refuses the key.*wrong key"),
        (NotConfiguredError("no key", env_keys=("OPENAI_API_KEY",)), "set OPENAI_API_KEY"),
        (ConfigurationError("no such region"), "no such region"),
    ],
)
def test_an_error_that_only_the_user_can_fix_ends_the_run_at_once(scripted, failure, words):
    lm = scripted(failing(failure))
    for _ in range(3):
        with pytest.raises(UserError, match=words):
            lm("hello")
    assert len(lm.engine.prompts) == 1


@pytest.mark.parametrize(("prices", "cost"), [(None, 0.0), (TokenPrices(0.001, 0.002), 0.2 + 0.2)])
def test_an_answer_without_a_cost_is_priced_by_its_tokens(scripted, prices, cost):
    lm = scripted(lambda kind, text, n: "x" * 400, prices=prices)
    lm("y" * 800)
    usage = lm.meter.read()
    assert dict(usage.calls) == {"task": 1}
    assert usage.input_tokens == 200
    assert usage.output_tokens == 100
    assert usage.cost == pytest.approx(cost)
    assert usage.unpriced == int(prices is None)
    assert usage.failed == 0


@pytest.mark.parametrize(
    ("details", "reported", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 75}}, 100, 75),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 100, 0),
        ({}, 0, 0),
    ],
)
def test_prompt_tokens_that_the_server_had_are_counted_where_it_says_so(
    scripted, details, reported, cached
):
    lm = scripted(echo)
    lm.count(100, 1, details)
    usage = lm.meter.read()
    assert usage.input_tokens == 100
    assert usage.cache_reported_tokens == reported
    assert usage.cached_tokens == cached


def test_a_piece_of_work_takes_what_it_asks_answers_from_a_cache_included(scripted):
    lm = scripted(echo, cache=True)
    lm("before")
    with measure_usage() as work:
        lm("x" * 40)
        lm("x" * 40)
    lm("after")
    assert [each.input_tokens for each in work.calls] == [10, 10]
    used = lm.meter.read()
    assert used.calls["task"] == 3
    assert used.cached == 1


def test_a_task_that_stops_waiting_for_a_slot_leaves_the_queue() -> None:
    slots = FairSemaphore(1)

    async def hold_a_slot() -> None:
        async with slots.aslot():
            pass

    async def cancel_a_waiting_task() -> None:
        async with slots.aslot():
            waiting = asyncio.ensure_future(hold_a_slot())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await asyncio.wait_for(hold_a_slot(), 10)

    asyncio.run(cancel_a_waiting_task())
    assert slots.free == 1


def test_a_task_waits_for_a_slot_until_its_deadline() -> None:
    slots = FairSemaphore(1)

    async def wait_in_vain() -> None:
        async with slots.aslot():
            with call_context(deadline=Deadline(0.1)), pytest.raises(AbandonedCallError):
                async with slots.aslot():
                    pass

    asyncio.run(wait_in_vain())
    assert slots.free == 1
