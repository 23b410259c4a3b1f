"""Places at an endpoint: so many calls at most, in turn between those who ask, and none held by who has left."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from dspy.utils.exceptions import LMError
from mempiler.engines.endpoint.loop import Deadline, NobodyWaitsError, within
from mempiler.engines.guard import Guard, Lane
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.spending import working_for
from mempiler.errors import EndpointError

from .servers import until


def begun(call: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def waiting(lane: Lane) -> int:
    return sum(map(len, lane._waiting.values()))


def served(lane: Lane, callers: str) -> str:
    """In which order callers get the only place, who come one after the other while it is taken."""
    order: list[str] = []

    def call(whose: str) -> None:
        with working_for(whose), lane.place():
            order.append(whose)

    with lane.place():
        threads: list[threading.Thread] = []
        for n, whose in enumerate(callers, 1):
            threads.append(begun(lambda whose=whose: call(whose)))
            assert until(lambda n=n: waiting(lane) == n)
    for thread in threads:
        thread.join(10)
    return "".join(order)


@pytest.mark.parametrize(
    ("come", "get"),
    [("aaab", "abaa"), ("aaaabbcd", "abcdabaa")],
)
def test_who_waits_has_a_turn_before_the_second_of_another(come: str, get: str) -> None:
    lane = Lane(1)
    assert served(lane, come) == get
    assert (lane.free, waiting(lane)) == (1, 0)


async def taken(lane: Lane) -> None:
    async with lane.aplace():
        pass


@pytest.mark.parametrize("taking", [lambda lane: lane.place().__enter__(), lambda lane: asyncio.run(taken(lane))])
def test_who_leaves_at_the_deadline_holds_no_place(taking: Callable[[Lane], Any]) -> None:
    lane = Lane(1)
    with lane.place():
        for _ in range(3):
            with within(Deadline(0.02)), pytest.raises(NobodyWaitsError):
                taking(lane)
        assert (lane.free, waiting(lane)) == (0, 0)
    assert lane.free == 1


def test_who_is_cancelled_while_waiting_gives_the_place_back() -> None:
    lane = Lane(1)

    async def cancelled() -> None:
        task = asyncio.ensure_future(taken(lane))
        await asyncio.to_thread(until, lambda: waiting(lane) == 1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with lane.place():
        asyncio.run(cancelled())
        assert (lane.free, waiting(lane)) == (0, 0)
    assert lane.free == 1


@pytest.fixture
def counting(scripted: Any) -> Any:
    """An engine, and how many calls it had at the same time."""
    found, lock = SimpleNamespace(now=0, most=0), threading.Lock()

    def move(by: int) -> None:
        with lock:
            found.now += by
            found.most = max(found.most, found.now)

    def reply(kind: str, text: str, n: int) -> str:
        move(1)
        time.sleep(0.01)
        move(-1)
        if "fail" in text:
            raise LMError("down")
        return "yes"

    found.engine = scripted(reply).engine
    return found


@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("text", ["well", "fail"])
def test_calls_of_all_copies_of_a_model_share_the_places(counting: Any, places: int, text: str) -> None:
    guard = Guard(in_flight=places)
    models = [MeteredLM("counting/test", Meter(), guard=guard, engine=counting.engine, cache=False) for _ in range(2)]
    models += [model.copy(temperature=0.5) for model in models]

    def ask(n: int) -> None:
        with suppress(Exception):
            models[n % 4](f"{text} {n}")

    for thread in [begun(lambda n=n: ask(n)) for n in range(12)]:
        thread.join(10)
    assert counting.most == places
    assert guard.lane("counting").free == places


def test_a_call_that_waited_is_refused_when_the_endpoint_died_meanwhile(counting: Any) -> None:
    guard = Guard(in_flight=1)
    lm = MeteredLM("counting/test", Meter(), guard=guard, engine=counting.engine, cache=False)
    with ThreadPoolExecutor(1) as pool, guard.lane("counting").place():
        asked = pool.submit(lm, "well")
        assert until(lambda: waiting(guard.lane("counting")) == 1)
        guard.stop(EndpointError("dead"))
    assert (type(asked.exception()), counting.most) == (EndpointError, 0)
