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
        """Wait for a free slot, and hold it while the `with` block runs."""
        acquisition = supervise(self._semaphore.acquire(), self._supervisor)
        try:
            result_of(acquisition)
            yield
        finally:
            # The callback gives the slot back once it is acquired. After the block it is, so the
            # callback runs at once. A caller that is cancelled while it waits comes here earlier:
            # the acquisition goes on without it, and the slot is given back as soon as it is free.
            acquisition.add_done_callback(self._release)

    def _release(self, acquisition: Future[Any]) -> None:
        self._supervisor.call_soon_threadsafe(self._semaphore.release)
