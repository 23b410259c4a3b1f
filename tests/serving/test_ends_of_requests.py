"""How work and streams end that nobody waits for any more, and what the log says of it."""

import asyncio
import gc
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from mempiler.serving.http import store_call
from mempiler.serving.http.errors import GONE
from mempiler.serving.http.event_stream import EventStream
from mempiler.serving.http.log_lines import JsonLines
from mempiler.serving.http.pool import Pool
from mempiler.serving.http.store_call import StoreCall

from ..async_engines import run_within


async def never() -> Any:
    await asyncio.Event().wait()


def test_a_pool_waits_for_work_that_was_given_up() -> None:
    ended: list[str] = []

    async def work(deadline: Any) -> None:
        while not deadline.passed:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        ended.append("counted")

    async def give_up() -> None:
        pool = Pool(slots=1, queue=1, timeout=20)
        request = asyncio.create_task(pool.run(work, "acme", never))
        await asyncio.sleep(0.05)
        request.cancel()
        await pool.wait_until_work_ends(10)
        assert ended == ["counted"]

    run_within(20, give_up())


def test_a_pool_waits_no_longer_for_its_work_than_it_is_told_to() -> None:
    async def wait_twice() -> None:
        pool = Pool(slots=1, queue=1, timeout=20)
        # There is no work yet.
        await pool.wait_until_work_ends(10)

        may_end = asyncio.Event()
        request = asyncio.create_task(pool.run(lambda _: may_end.wait(), "acme", never))
        await asyncio.sleep(0.05)
        await pool.wait_until_work_ends(0.1)
        assert not request.done()
        may_end.set()
        await request

    run_within(5, wait_twice())


async def events_of(work: Any, is_cut: bool) -> list[Any]:
    """Return the parts of a stream that begins; it is cut off in the middle if `is_cut`."""
    stream = EventStream()

    async def begin_and_work() -> None:
        stream.begin()
        await work

    response: Any = await stream.response(begin_and_work())
    parts: list[Any] = []

    async def read() -> None:
        async for part in response.body_iterator:
            parts.append(part)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    if is_cut:
        reading.cancel()
    await asyncio.wait({reading}, timeout=10)
    return parts


def test_a_stream_that_is_cut_off_ends_with_an_error_event() -> None:
    (event,) = run_within(20, events_of(never(), is_cut=True))
    error = json.loads(event.removeprefix("data: "))["error"]
    assert (error["code"], "this service ends" in error["message"]) == (503, True)


def test_a_client_that_leaves_a_stream_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> None:
        raise GONE()

    run_within(20, events_of(leave(), is_cut=False))
    assert caplog.records == []


def test_an_error_of_a_store_that_comes_too_late_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_call, "WAIT", 0.01)
    complaints: list[Any] = []

    async def call() -> None:
        go = asyncio.Event()

        class LateStoreCall(StoreCall[Any]):
            async def _run_in_thread(self) -> Any:
                await go.wait()
                raise OSError("the disk is gone")

        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        late = LateStoreCall(lambda: None)
        with pytest.raises(TimeoutError):
            await late.result()
        go.set()
        await asyncio.sleep(0.05)
        del late
        gc.collect()

    run_within(20, call())
    assert complaints == []


def test_a_line_of_uvicorn_has_no_mark_of_litellm() -> None:
    record = logging.makeLogRecord({"name": "uvicorn.error", "msg": "Shutting down"})
    vars(record)["litellm_redacted"] = object()
    assert set(json.loads(JsonLines().format(record))) == {
        "time",
        "level",
        "event",
        "logger",
        "where",
    }


LOG_CANCELLATIONS = """
import asyncio
import logging
import subprocess
import sys
from mempiler.serving.http.log_lines import set_up

set_up()
for name in ("uvicorn.error", "mempiler.serving", "asyncio"):
    try:
        raise asyncio.CancelledError
    except asyncio.CancelledError:
        logging.getLogger(name).exception("something was cut off")
"""


def test_only_uvicorn_s_traces_of_requests_that_are_cut_off_are_left_out() -> None:
    # In a process of its own: setting up the log changes every logger.
    command = [sys.executable, "-c", LOG_CANCELLATIONS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    # Lines of the service's own logger do not name it.
    assert [line.get("logger") for line in lines] == [None, "asyncio"]
