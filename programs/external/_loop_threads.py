"""Threads with an event loop, for the user's code, and the loop that supervises them.

The user's functions may block, hang, or be coroutine functions. They run in a `LoopThread`, and
nowhere else. The code that waits for them runs in the supervisor loop, which nothing blocks. So the
time limit of a call is kept, and turns are taken, even if the caller is cancelled meanwhile.

    thread = LoopThread("external mine")
    call = Call("search", function)

    async def search() -> Outcome:
        running = thread.start(call)
        if await ends_within(running, seconds=60):
            return running.result()
        raise TimeoutError

    outcome = result_of(supervise(search(), supervisor_loop()))
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A call of a function of the user's that takes no arguments."""

    label: str
    """What errors call it."""
    function: Callable[[], Any]
    """A function or a coroutine function."""
    context: Context = field(default_factory=copy_context)
    """The context variables that it sees: a copy of those of the code that made this object."""


@dataclass(frozen=True)
class Outcome:
    """What a function returned or raised."""

    value: Any = None
    error: BaseException | None = None


class LoopThread:
    """A thread that runs an event loop until it is stopped.

    Plain functions run in the loop as well. They block it, but may bind clients and sessions to it.
    It is a daemon thread, since code that hangs must not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        ready: Future[AbstractEventLoop] = Future()
        threading.Thread(target=_run_loop, args=(ready,), name=name, daemon=True).start()
        self.loop = ready.result()

    def start(self, call: Call) -> Future[Outcome]:
        """Begin a call in the thread, and return a future of its outcome."""
        work = _outcome_of(call.function)
        return call.context.run(asyncio.run_coroutine_threadsafe, work, self.loop)

    def stop(self) -> None:
        """End the thread, once the code that blocks it has ended; do not wait for that."""
        with suppress(RuntimeError):  # The loop is closed already.
            self.loop.call_soon_threadsafe(self.loop.stop)


def _run_loop(ready: Future[AbstractEventLoop]) -> None:
    """Run a new event loop in this thread until it is stopped; then cancel its tasks.

    Args:
        ready: Receives the loop as soon as it can be used.
    """
    # The loop is made in this new thread, which has no context variables. A loop keeps the context
    # that it is made in, and with it the programs and histories that DSPy holds there.
    try:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            ready.set_result(loop)
            loop.run_forever()
    except OSError as error:
        # Too many files are open. Whoever waits for the loop must not wait for ever.
        if ready.done():
            raise
        ready.set_exception(error)


async def _outcome_of(function: Callable[[], Any]) -> Outcome:
    """Return what a function, or a coroutine function, returns or raises."""
    try:
        value = function()
        if inspect.isawaitable(value):
            value = await value
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: raised by a task, they would end the loop.
        return Outcome(error=error)
    return Outcome(value)


@functools.cache
def supervisor_loop() -> AbstractEventLoop:
    """Return the event loop in which all code waits for calls of systems and functions.

    Two threads that are the first to call this, at the same time, may get different loops. So every
    object keeps the loop that it got.
    """
    return LoopThread("external supervisor").loop


# A forked process has none of the threads of its parent.
os.register_at_fork(after_in_child=supervisor_loop.cache_clear)


def supervise(work: Coroutine[Any, Any, T], supervisor: AbstractEventLoop) -> Future[T]:
    """Start a coroutine in a supervisor loop, and return a future of its result.

    The coroutine runs without context variables. They refer to programs and histories, and a timer
    that it starts would keep these in memory, even after the timer was cancelled.
    """
    return Context().run(asyncio.run_coroutine_threadsafe, work, supervisor)


async def ends_within(running: Future[Outcome], seconds: float) -> bool:
    """Wait for a call, and return whether it has ended within a number of seconds."""
    finished, _ = await asyncio.wait([asyncio.wrap_future(running)], timeout=seconds)
    return bool(finished)
