"""How work and streams end that nobody waits for any more, and what the log says of it.

A `Pool` does the work of requests. When a request ends early, e.g. because its client has left, its
work may go on for a while. A service that ends waits for that work, but not for ever.
"""

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from mempiler.serving.http import store_call
from mempiler.serving.http.errors import GONE
from mempiler.serving.http.event_stream import EventStream
from mempiler.serving.http.pool import Pool
from mempiler.serving.http.store_call import StoreCall

from ..async_engines import run_within


async def wait_for_ever() -> Any:
    await asyncio.Event().wait()


# Pools


def begin_request(pool: Pool, work: Any) -> asyncio.Task[Any]:
    """Let a pool begin the work of a request, whose client waits for ever."""
    return asyncio.create_task(pool.run(work, tenant="acme", receive=wait_for_ever))


def test_a_pool_waits_for_work_whose_request_was_cancelled() -> None:
    """The work needs a moment to end when its request, and so its deadline, is cancelled."""
    events: list[str] = []

    async def work(deadline: Any) -> None:
        while not deadline.passed:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        events.append("the work has ended")

    async def cancel_request_and_wait_for_pool() -> None:
        pool = Pool(slots=1, queue=1, timeout=20)
        request = begin_request(pool, work)
        await asyncio.sleep(0.05)
        request.cancel()

        await pool.wait_until_work_ends(timeout=10)
        events.append("the waiting has ended")

    run_within(20, cancel_request_and_wait_for_pool())

    assert events == ["the work has ended", "the waiting has ended"]


def test_a_pool_is_waited_for_no_longer_than_the_given_time() -> None:
    """The work hangs until the test lets it end."""

    async def is_working_after_wait() -> bool:
        pool = Pool(slots=1, queue=1, timeout=20)
        may_end = asyncio.Event()
        request = begin_request(pool, lambda deadline: may_end.wait())
        await asyncio.sleep(0.05)

        await pool.wait_until_work_ends(timeout=0.1)

        is_working = not request.done()
        may_end.set()
        await request
        return is_working

    # This fails after five seconds.
    assert run_within(5, is_working_after_wait())


# Streams


async def read_stream(work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Return the events of a stream that the server cuts off after a moment.

    A server does that when the service ends.

    Args:
        work: The work whose answer is streamed.
    """
    stream = EventStream()

    async def begin_and_work() -> None:
        stream.begin()
        await work

    response: Any = await stream.response(begin_and_work())
    events: list[Any] = []

    async def send_events() -> None:
        async for event in response.body_iterator:
            events.append(event)

    sending = asyncio.create_task(send_events())
    await asyncio.sleep(0.05)
    # This does nothing if the stream has ended by itself.
    sending.cancel()
    await asyncio.wait({sending}, timeout=10)
    return events


def test_a_stream_that_is_cut_off_ends_with_an_error_event() -> None:
    """A service that ends cuts off its streams, and tells its clients why."""
    (event,) = run_within(20, read_stream(wait_for_ever()))

    error = json.loads(event.removeprefix("data: "))["error"]
    assert error["code"] == 503
    assert "this service ends" in error["message"]


async def notice_that_client_left() -> None:
    """End the work of a request as the service does when its client has left."""
    raise GONE()


def test_a_client_that_leaves_a_stream_is_not_logged_as_a_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_within(20, read_stream(notice_that_client_left()))

    assert caplog.records == []


# Calls of the store


async def wait_for_all_other_tasks() -> None:
    """Wait until only the task is left that calls this."""
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)


def test_asyncio_does_not_complain_about_an_error_of_a_store_that_comes_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call of the store fails when nobody waits for its result any more.

    asyncio would log that the error "was never retrieved", as if something were wrong with the
    service.
    """
    monkeypatch.setattr(store_call, "WAIT", 0.01)  # seconds
    may_fail = threading.Event()
    complaints: list[Any] = []

    def fail_late() -> None:
        may_fail.wait(10)
        raise OSError("the disk is gone")

    async def give_up_waiting() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        call = StoreCall(fail_late)
        with pytest.raises(TimeoutError):
            await call.result()

        may_fail.set()
        await wait_for_all_other_tasks()
        # asyncio complains of an error that nobody looked at when its task is collected.
        del call
        gc.collect()

    run_within(20, give_up_waiting())

    assert complaints == []


# Lines of the log


LOG_CANCELLATIONS = """
import asyncio
import logging
from mempiler.serving.http.log_lines import set_up

set_up()
for name in ("uvicorn.error", "mempiler.serving", "asyncio"):
    try:
        raise asyncio.CancelledError
    except asyncio.CancelledError:
        logging.getLogger(name).exception("something was cut off")
"""


def test_the_log_leaves_out_what_uvicorn_says_of_requests_that_are_cut_off() -> None:
    """A service that ends cuts off requests, and uvicorn logs a traceback for each of them.

    What other loggers say of something that was cut off stays in the log.
    """
    # In a process of its own, since setting up the log changes every logger.
    command = [sys.executable, "-c", LOG_CANCELLATIONS]
    process = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)

    service_line, asyncio_line = [json.loads(line) for line in process.stderr.splitlines()]
    # Lines of the service's own logger do not name it.
    assert "logger" not in service_line
    assert asyncio_line["logger"] == "asyncio"
