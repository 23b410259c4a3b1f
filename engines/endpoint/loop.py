"""The one event loop that asks endpoints, in a daemon thread of its own.

    content = run(fetch(request), seconds=30)            # a thread waits
    content = await arun(fetch(request), seconds=30)     # a coroutine of any event loop waits

Work that is cancelled leaves neither thread nor connection behind. A process that was forked begins
a loop of its own. Work must not block, because it would hold up all other calls.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from dspy.lm15 import TimeoutError as EndpointTimeoutError

from ...async_bridge import is_bridged, wait_for
from ..call_context import Deadline, current_context
from .errors import AbandonedCallError

T = TypeVar("T")

LONGEST_SLEEP = 0.25
"""Most seconds until a call notices that its deadline was cancelled."""

_END: Any = object()
"""Stands behind the last item of a generator: a task may not end with `StopAsyncIteration`."""

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop of each process, by process id. A child of a fork inherits the loop of its parent and
must not touch it: the sockets that it listens to are still the parent's."""
_loops_lock = threading.Lock()


@dataclass(frozen=True)
class _TimeLimit:
    """The time for one piece of work."""

    seconds: float
    """The whole time; infinite if there is no limit."""
    end: float
    """When it is over, on the clock of `time.monotonic`."""

    @classmethod
    def from_now(cls, seconds: float) -> Self:
        return cls(seconds, time.monotonic() + seconds)

    @property
    def remaining(self) -> float | None:
        """Seconds that are left; None if there is no limit."""
        if math.isinf(self.end):
            return None
        return self.end - time.monotonic()


def check_deadline() -> None:
    """Do nothing while somebody waits for the running work.

    Raises:
        AbandonedCallError: The deadline of the running work has passed.
    """
    deadline = current_context().deadline
    if deadline is not None and deadline.passed:
        raise AbandonedCallError


def run(work: Awaitable[T], seconds: float = math.inf) -> T:
    """Do work in the event loop of the endpoints, wait for it, and return its result.

    Args:
        work: What is awaited in that loop, e.g. a coroutine.
        seconds: The time for it.

    Raises:
        TimeoutError: The error of `dspy.lm15`: the time is over.
        AbandonedCallError: The deadline of the call context passed.
    """
    return _run_within(_TimeLimit.from_now(seconds), work)


async def arun(work: Awaitable[T], seconds: float = math.inf) -> T:
    """Do work in the event loop of the endpoints; the caller's own loop waits for it.

    Arguments and errors are those of `run`.
    """
    return await _arun_within(_TimeLimit.from_now(seconds), work)


def iterate(items: AsyncGenerator[T], seconds: float) -> Generator[T]:
    """Yield what an asynchronous generator yields; it runs in the event loop of the endpoints.

    Args:
        items: The generator. It is closed in the end, also if not all items are taken.
        seconds: The time for all items together.

    Raises:
        TimeoutError: As `run`.
        AbandonedCallError: As `run`.
    """
    limit = _TimeLimit.from_now(seconds)
    try:
        while True:
            item = _run_within(limit, _NextItem(items))
            if item is _END:
                return
            yield item
    finally:
        _begin_to_close(items)


async def aiterate(items: AsyncGenerator[T], seconds: float) -> AsyncGenerator[T]:
    """Yield what an asynchronous generator yields; it runs in the event loop of the endpoints.

    This generator itself is for the caller's loop, which waits for one item at a time.

    Args:
        items: The generator. It is closed in the end, also if not all items are taken.
        seconds: The time for all items together.

    Raises:
        TimeoutError: As `run`.
        AbandonedCallError: As `run`.
    """
    limit = _TimeLimit.from_now(seconds)
    try:
        while True:
            item = await _arun_within(limit, _NextItem(items))
            if item is _END:
                return
            yield item
    finally:
        _begin_to_close(items)


class _NextItem(Generic[T]):
    """Awaits the next item of a generator, or `_END`.

    `anext` binds a generator to the event loop of the thread that calls it first, and at its own
    end that loop closes the generator. So it is called where this is awaited, in the loop of the
    endpoints; the loop of a caller would close the generator in the wrong thread.
    """

    def __init__(self, items: AsyncGenerator[T]) -> None:
        self._items = items

    def __await__(self) -> Generator[Any, None, T]:
        return anext(self._items, _END).__await__()


def _begin_to_close(items: AsyncGenerator[Any]) -> None:
    """Close a generator in the loop that it runs in; do not wait until it is closed."""
    _submit(_close(items))


async def _close(items: AsyncGenerator[Any]) -> None:
    # A RuntimeError means that its last step is just being cancelled, which closes it as well.
    with suppress(RuntimeError):
        await items.aclose()


def _run_within(limit: _TimeLimit, work: Awaitable[T]) -> T:
    """Do work in the loop, wait for it within a time limit, and return its result.

    Code that runs bridged (`async_bridge`) lets its own event loop wait; other code blocks.
    """
    if is_bridged():
        return wait_for(_arun_within(limit, work))

    future = _submit(_end_in_time(limit, current_context().deadline, work))
    try:
        return future.result()
    finally:
        # Whoever stops waiting, e.g. at a KeyboardInterrupt, ends the work.
        future.cancel()


async def _arun_within(limit: _TimeLimit, work: Awaitable[T]) -> T:
    """Do work in the loop while the caller's own loop waits for it, within a time limit."""
    future = _submit(_end_in_time(limit, current_context().deadline, work))
    return await asyncio.wrap_future(future)


async def _end_in_time(limit: _TimeLimit, deadline: Deadline | None, work: Awaitable[T]) -> T:
    """Return the result of work, which is cancelled at its time limit or at a deadline.

    Raises:
        TimeoutError: The error of `dspy.lm15`: the time limit is over.
        AbandonedCallError: The deadline passed.
    """
    timeout = asyncio.timeout(limit.remaining)
    # The watch lets `timeout` expire earlier if the deadline passes before the limit.
    watch = None if deadline is None else _DeadlineWatch(deadline, timeout)
    try:
        async with timeout:
            if watch is not None:
                watch.check()
            return await work
    except TimeoutError:
        # Three causes: the work itself timed out, the deadline passed, or the limit is over.
        if not timeout.expired():
            raise
        if deadline is not None and deadline.passed:
            raise AbandonedCallError from None
        message = f"no whole answer came in {limit.seconds:g} s"
        raise EndpointTimeoutError(message) from None
    finally:
        if watch is not None:
            watch.stop()


class _DeadlineWatch:
    """Let a timeout expire when a deadline passes.

    A deadline may be cancelled at any time, from any thread. So it is looked at again and again.
    """

    def __init__(self, deadline: Deadline, timeout: asyncio.Timeout) -> None:
        self._deadline = deadline
        self._timeout = timeout
        self._next_check: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """Let the timeout expire if the deadline has passed; else check again in a while."""
        loop = asyncio.get_running_loop()
        if self._deadline.passed:
            self._timeout.reschedule(loop.time())  # to now, which makes it expire
            return

        # Not simply at the deadline: it passes at once if somebody cancels it meanwhile.
        pause = min(LONGEST_SLEEP, self._deadline.remaining)
        self._next_check = loop.call_later(pause, self.check)

    def stop(self) -> None:
        """Check no more."""
        if self._next_check is not None:
            self._next_check.cancel()


def _submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Begin work in the loop."""
    return asyncio.run_coroutine_threadsafe(work, _loop_of_process())


def _loop_of_process() -> asyncio.AbstractEventLoop:
    """Return the loop of this process; start it if there is none yet."""
    process_id = os.getpid()
    with _loops_lock:
        loop = _loops.get(process_id)
        if loop is None:
            loop = asyncio.new_event_loop()
            loop.set_default_executor(_DaemonThreads())
            thread = threading.Thread(
                target=loop.run_forever, name="mempiler-endpoints", daemon=True
            )
            thread.start()
            _loops[process_id] = loop
    return loop


class _DaemonThreads(ThreadPoolExecutor):
    """Make each call in a daemon thread of its own.

    The loop looks up the names of servers in it. Python would wait at its exit for the threads of a
    `ThreadPoolExecutor`, and such a lookup may take ten seconds.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=call, daemon=True).start()
        return future
