"""How work and streams end that nobody waits for any more, and what the log says of it.

A `Pool` does the work of requests. When a request ends early, e.g. because its client has left, its
work may go on for a while. A service that ends waits for that work, but not for ever.
"""

import asyncio
import gc
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from mempiler.serving.http import store_call
from mempiler.serving.http.errors import GONE
from mempiler.serving.http.event_stream import EventStream
from mempiler.serving.http.log_lines import JsonLines
from mempiler.serving.http.pool import Pool
from mempiler.serving.http.store_call import StoreCall

from ..async_engines import run_within


async def wait_for_ever() -> Any:
    await asyncio.Event().wait()


# Pools


def run_request(pool: Pool, work: Any) -> asyncio.Task[Any]:
    """Start work in a pool, for a client that does not leave."""
    return asyncio.create_task(pool.run(work, tenant="acme", receive=wait_for_ever))


def test_a_pool_waits_for_work_whose_request_was_cancelled() -> None:
    events: list[str] = []

    async def work(deadline: Any) -> None:
        while not deadline.passed:
            await asyncio.sleep(0.01)
        # Some work goes on for a while after its deadline.
        await asyncio.sleep(0.1)
        events.append("the work has ended")

    async def cancel_request_and_wait() -> None:
        pool = Pool(slots=1, queue=1, timeout=20)
        request = run_request(pool, work)
        await asyncio.sleep(0.05)
        # This ends the deadline of the work at once.
        request.cancel()

        await pool.wait_until_work_ends(timeout=10)
        events.append("nobody waits any more")

    run_within(20, cancel_request_and_wait())

    assert events == ["the work has ended", "nobody waits any more"]


def test_a_pool_without_work_is_not_waited_for() -> None:
    async def wait_for_empty_pool() -> None:
        pool = Pool(slots=1, queue=1, timeout=20)
        await pool.wait_until_work_ends(timeout=10)

    # This fails after five seconds.
    run_within(5, wait_for_empty_pool())


def test_a_pool_is_waited_for_no_longer_than_the_given_time() -> None:
    """The work of the request does not end before the test lets it."""

    async def wait_for_hanging_work() -> bool:
        pool = Pool(slots=1, queue=1, timeout=20)
        may_end = asyncio.Event()
        request = run_request(pool, lambda deadline: may_end.wait())
        await asyncio.sleep(0.05)

        await pool.wait_until_work_ends(timeout=0.1)

        work_goes_on = not request.done()
        may_end.set()
        await request
        return work_goes_on

    work_goes_on = run_within(5, wait_for_hanging_work())

    assert work_goes_on


# Streams


async def read_stream(work: Coroutine[Any, Any, Any], is_cut_off: bool) -> list[Any]:
    """Return the parts of a stream: what a client gets to read of it.

    Args:
        work: The work whose answer is streamed.
        is_cut_off: Whether the server cancels the stream after a moment, as it does when the
            service ends.
    """
    stream = EventStream()

    async def begin_and_work() -> None:
        stream.begin()
        await work

    response: Any = await stream.response(begin_and_work())
    parts: list[Any] = []

    async def send_parts() -> None:
        async for part in response.body_iterator:
            parts.append(part)

    sending = asyncio.create_task(send_parts())
    await asyncio.sleep(0.05)
    if is_cut_off:
        sending.cancel()
    await asyncio.wait({sending}, timeout=10)
    return parts


def test_a_stream_that_is_cut_off_ends_with_an_error_event() -> None:
    """A service that ends cuts off its streams. The client gets to know why."""
    (event,) = run_within(20, read_stream(wait_for_ever(), is_cut_off=True))

    error = json.loads(event.removeprefix("data: "))["error"]
    assert error["code"] == 503
    assert "this service ends" in error["message"]


def test_a_client_that_leaves_a_stream_is_not_logged_as_a_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`GONE` is the error by which the work of a request ends when its client has left."""

    async def notice_that_client_left() -> None:
        raise GONE()

    run_within(20, read_stream(notice_that_client_left(), is_cut_off=False))

    assert caplog.records == []


# Calls of the store


def test_asyncio_does_not_complain_about_an_error_of_a_store_that_comes_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call of the store fails when nobody waits for its result any more.

    asyncio would log that the error "was never retrieved", as if something were wrong with the
    service.
    """
    # The service waits two seconds otherwise.
    monkeypatch.setattr(store_call, "WAIT", 0.01)
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

        # Wait until the call has failed and only the task of this function is left.
        may_fail.set()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)
        # asyncio complains of a task whose error nobody looked at when the task is collected.
        del call
        gc.collect()

    run_within(20, give_up_waiting())

    assert complaints == []


# Lines of the log


def test_a_line_of_uvicorn_has_no_mark_of_litellm() -> None:
    """litellm puts an attribute on every record that it has looked at; it is no part of the log."""
    record = logging.makeLogRecord({"name": "uvicorn.error", "msg": "Shutting down"})
    vars(record)["litellm_redacted"] = object()

    line = json.loads(JsonLines().format(record))

    assert set(line) == {"time", "level", "event", "logger", "where"}


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
