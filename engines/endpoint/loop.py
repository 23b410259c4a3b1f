"""The event loop that asks endpoints, in a thread of its own.

    thread ── run(work) ──┐
    thread ── run(work) ──┼──> one loop in one daemon thread
    asyncio ─ arun(work) ─┘

Whoever waits no longer cancels the work, which leaves neither thread nor connection behind. A process that was forked
begins a loop of its own. Work must not block, for it would hold up all other calls.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from dspy.lm15 import TimeoutError as EndpointTimeoutError
from dspy.utils.exceptions import LMTimeoutError

from .deadline import Deadline, deadline_here

T = TypeVar("T")

SLICE = 0.25
"""Seconds after which who waits looks whether the deadline has been moved to now."""
_ENDED: Any = object()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process: an inherited loop is not touched, for what it listens to is still its parent's."""
_lock = threading.Lock()


class NobodyWaitsError(LMTimeoutError):
    """Raised if the work that wants a call ended before the call's own time; it tells nothing of the endpoint."""

    def __init__(self) -> None:
        super().__init__("nobody waits for the answer any more")


def waited(future: Future[T]) -> T:
    """What a future comes to; it is cancelled when the deadline of the work that wants it passes.

    Raises:
        NobodyWaitsError: It passed.
    """
    deadline = deadline_here()
    try:
        while not future.done():
            with suppress(TimeoutError, CancelledError):
                future.exception(_patience(deadline))
        return future.result()
    finally:
        future.cancel()


async def awaited(future: Future[T]) -> T:
    """`waited` for asyncio; no thread waits."""
    if future.done():
        return future.result()
    deadline, waiting = deadline_here(), asyncio.wrap_future(future)
    try:
        while not waiting.done() and (patience := _patience(deadline)) is not None:
            await asyncio.wait({waiting}, timeout=patience)
        return await waiting
    finally:
        future.cancel()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Does work in the loop, and waits for it as `waited` does."""
    return waited(_begun(work))


async def arun(work: Coroutine[Any, Any, T]) -> T:
    """`run` for asyncio."""
    return await awaited(_begun(work))


def iterate(work: AsyncGenerator[T], seconds: float) -> Generator[T]:
    """What work in the loop gives, one by one, as it is taken; all of it in so many seconds.

    Raises:
        TimeoutError: Of lm15; the time is over.
        NobodyWaitsError: See `waited`.
    """
    end = time.monotonic() + seconds
    try:
        while (found := run(in_time(anext(work, _ENDED), seconds, end))) is not _ENDED:
            yield found
    finally:
        _begun(_closed(work))


async def aiterate(work: AsyncGenerator[T], seconds: float) -> AsyncIterator[T]:
    """`iterate` for asyncio."""
    end = time.monotonic() + seconds
    try:
        while (found := await arun(in_time(anext(work, _ENDED), seconds, end))) is not _ENDED:
            yield found
    finally:
        _begun(_closed(work))


async def in_time(work: Awaitable[T], seconds: float, end: float = math.inf) -> T:
    """The result of work in the loop that may take so many seconds, or until `end`, by the monotonic clock.

    Raises:
        TimeoutError: Of lm15; the time is over.
    """
    limit = asyncio.timeout(max(0.0, min(seconds, end - time.monotonic())))
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise EndpointTimeoutError(f"no whole answer came in {seconds:g} s") from None


def _begun(work: Coroutine[Any, Any, T]) -> Future[T]:
    process = os.getpid()
    with _lock:
        if process not in _loops:
            loop = _loops[process] = asyncio.new_event_loop()
            loop.set_default_executor(_Daemons())
            threading.Thread(target=loop.run_forever, name="mempiler-endpoints", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _loops[process])


async def _closed(work: AsyncGenerator[Any]) -> None:
    with suppress(RuntimeError):  # its last step is just being cancelled, which closes it as well
        await work.aclose()


def _patience(deadline: Deadline) -> float | None:
    left = deadline.left
    if left <= 0:
        raise NobodyWaitsError
    return None if math.isinf(left) else min(SLICE, left)


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
