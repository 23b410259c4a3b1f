"""A limit of how much runs at the same time, in threads and in tasks of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from ...async_bridge import result_of
from ._loop_threads import supervise, supervisor_loop


class Slots:
    """Let a limited number of blocks run at the same time; the others wait in turn.

    Args:
        count: How many blocks run at the same time.
    """

    def __init__(self, count: int) -> None:
        self._semaphore = asyncio.Semaphore(count)
        self._supervisor = supervisor_loop()

    @contextmanager
    def slot(self) -> Generator[None]:
        """Wait for a free slot, and hold it while the block runs."""
        acquisition = supervise(self._semaphore.acquire(), self._supervisor)
        try:
            result_of(acquisition)
            yield
        finally:
            # A callback, since a caller that is cancelled while it waits has no slot yet. It gets
            # one later, and must give it back then. Otherwise the slot is given back at once.
            acquisition.add_done_callback(self._release)

    def _release(self, acquired: Future[Any]) -> None:
        self._supervisor.call_soon_threadsafe(self._semaphore.release)
