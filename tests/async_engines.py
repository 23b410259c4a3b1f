"""Language models for tests of asyncio: engines that are awaited, and what runs such a test."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from mempiler.async_bridge import MAX_DISK_THREADS, MAX_THREADS
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.metered_lm import MeteredLM, Metering

T = TypeVar("T")

MAX_NEW_THREADS = MAX_THREADS + MAX_DISK_THREADS + 10
"""Most threads that questions under asyncio may add; ten for event loops and the like."""


class AwaitedEngine:
    """Gives the answers of another engine, after other tasks had a turn."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers

    async def complete(self, request: Any) -> Any:
        await asyncio.sleep(0)
        return self.answers.complete(request)


class CrowdEngine(AwaitedEngine):
    """Answers no question until a whole crowd has asked; other calls are answered at once.

    Args:
        answers: An engine that gives the answers.
        crowd: How many questions have to be there.
    """

    def __init__(self, answers: Any, crowd: int) -> None:
        super().__init__(answers)
        self.everybody = asyncio.Barrier(crowd)
        self.new_threads: set[threading.Thread] = set()
        """Threads that were started since the engine was made, and run when the crowd is there."""
        self._threads_before = set(threading.enumerate())

    async def complete(self, request: Any) -> Any:
        if "`answer`" not in str(request.system):
            return await super().complete(request)
        async with asyncio.timeout(120):
            await self.everybody.wait()
        self.new_threads |= set(threading.enumerate()) - self._threads_before
        return self.answers.complete(request)


class BlockingEngine:
    """Must not be asked, since it would hold a thread."""

    def complete(self, request: Any) -> Any:
        pytest.fail("a thread asked")


def awaited_lm(engine: Any, guard: BudgetGuard | None = None, **settings: Any) -> MeteredLM:
    """Return a metered model that is awaited, and may be asked by a thousand calls at a time."""
    return MeteredLM(
        "awaited/test",
        Metering(guard=guard or BudgetGuard(in_flight=1000)),
        engine=BlockingEngine(),
        async_engine=engine,
        **{"cache": False, "temperature": 0.0, **settings},
    )


def run_within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that is run in an event loop of its own.

    Work that blocks its loop, or ignores that it is cancelled, fails the test as well: it runs in
    a thread that is left behind.
    """
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(asyncio.run, work))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            raise
        pytest.fail(f"it still runs after {seconds:g} s")
