"""A call of the store that many may ask for, and that at most one thread makes at a time.

    failed_count = StoreCall(store.users.failed_count)
    await failed_count.result()         # raises a TimeoutError if the store does not answer in time

It waits for no pool of requests, so that operators see the state of a service that is busy. A store
that does not answer holds one thread, however often it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")

WAIT = 2.0
"""Seconds to wait for the store."""


class StoreCall(Generic[T]):
    """Makes a call in a thread, unless it is being made already, and returns its result.

    Args:
        call: What is called.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._running: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """Return the result of the call that is being made, or of a new one.

        Raises:
            TimeoutError: It takes longer than `WAIT`; it goes on meanwhile.
            Exception: What the call raises.
        """
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run_in_thread())
            self._running.add_done_callback(_read_error)
        await asyncio.wait({self._running}, timeout=WAIT)
        if not self._running.done():
            raise TimeoutError
        return self._running.result()

    async def _run_in_thread(self) -> T:
        # A limiter of its own: with the default one it would wait for other threads.
        return await anyio.to_thread.run_sync(self._call, limiter=CapacityLimiter(1))


def _read_error(task: asyncio.Task[Any]) -> None:
    """Look at the error of a task; asyncio logs errors that nobody looks at, as after `WAIT`."""
    if not task.cancelled():
        task.exception()
