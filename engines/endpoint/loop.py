"""The one event loop that asks endpoints, in a daemon thread of its own.

Work that is cancelled leaves neither thread nor connection behind. A process that was forked begins a loop of its own.
Work must not block, for it would hold up all other calls.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from dspy.lm15 import TimeoutError as EndpointTimeoutError
from dspy.utils.exceptions import LMTimeoutError

from ...async_bridge import is_bridged, wait_for
from ..call_context import Deadline, current_context

T = TypeVar("T")

SLICE = 0.25
"""Seconds after which is looked whether a deadline has been moved to now."""
_ENDED: Any = object()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process: an inherited loop is not touched, for what it listens to is still its parent's."""
_lock = threading.Lock()


class AbandonedCallError(LMTimeoutError):
    """Raised if the work that wants a call ended before the call's own time; it tells nothing of the endpoint."""

    def __init__(self) -> None:
        super().__init__("nobody waits for the answer any more")


def check_deadline() -> None:
    """Do nothing while somebody waits for the running work.

    Raises:
        AbandonedCallError: The deadline of the running work has passed.
    """
    deadline = current_context().deadline
    if deadline is not None and deadline.passed:
        raise AbandonedCallError


def run(work: Awaitable[T], seconds: float = math.inf, end: float = math.inf) -> T:
    """Does work in the loop, and waits for it, so many seconds and until `end` by the monotonic clock.

    Raises:
        TimeoutError: Of lm15; the time is over.
        AbandonedCallError: The deadline of the work that wants it passed.
    """
    if is_bridged():
        return wait_for(arun(work, seconds, end))
    future = _begun(_bounded(work, seconds, end, current_context().deadline))
    try:
        return future.result()
    finally:
        future.cancel()


async def arun(work: Awaitable[T], seconds: float = math.inf, end: float = math.inf) -> T:
    """`run` for coroutines; no thread waits."""
    return await asyncio.wrap_future(_begun(_bounded(work, seconds, end, current_context().deadline)))


def iterate(work: AsyncGenerator[T], seconds: float) -> Generator[T]:
    """What work in the loop gives, one by one, as it is taken; all of it in so many seconds, see `run`."""
    end = time.monotonic() + seconds
    try:
        while (found := run(anext(work, _ENDED), seconds, end)) is not _ENDED:
            yield found
    finally:
        _begun(_closed(work))


async def aiterate(work: AsyncGenerator[T], seconds: float) -> AsyncIterator[T]:
    """`iterate` for asyncio."""
    end = time.monotonic() + seconds
    try:
        while (found := await arun(anext(work, _ENDED), seconds, end)) is not _ENDED:
            yield found
    finally:
        _begun(_closed(work))


def _begun(work: Coroutine[Any, Any, T]) -> Future[T]:
    process = os.getpid()
    with _lock:
        if process not in _loops:
            loop = _loops[process] = asyncio.new_event_loop()
            loop.set_default_executor(_Daemons())
            threading.Thread(target=loop.run_forever, name="mempiler-endpoints", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _loops[process])


async def _bounded(work: Awaitable[T], seconds: float, end: float, deadline: Deadline | None) -> T:
    loop, looking = asyncio.get_running_loop(), None
    left = min(seconds, end - time.monotonic())
    limit = asyncio.timeout(None if math.isinf(left) else left)

    def look() -> None:
        nonlocal looking
        if deadline is not None and deadline.passed:
            limit.reschedule(loop.time())
        elif deadline is not None:
            looking = loop.call_later(min(SLICE, deadline.remaining), look)

    try:
        async with limit:
            look()
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        if deadline is not None and deadline.passed:
            raise AbandonedCallError from None
        raise EndpointTimeoutError(f"no whole answer came in {seconds:g} s") from None
    finally:
        if looking is not None:
            looking.cancel()


async def _closed(work: AsyncGenerator[Any]) -> None:
    with suppress(RuntimeError):  # its last step is just being cancelled, which closes it as well
        await work.aclose()


class _Daemons(ThreadPoolExecutor):
    """Looks names up in threads that do not keep the process from ending, as those of its base would."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future
