"""Threads with an event loop, for the user's code, and the loop that supervises them.

The user's functions may block, hang, or be coroutine functions. They run in a `LoopThread`, and
nowhere else. The code that waits for them runs in the supervisor loop, which nothing blocks. So the
time limit of a call is kept, and turns are taken, even if the caller is cancelled meanwhile.

    thread = LoopThread("external mine")
    call = thread.start(function)
    if await ends_within(call, seconds=60):      # in the supervisor loop
        outcome = call.result()
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What a function returned or raised."""

    value: Any = None
    error: BaseException | None = None


class LoopThread:
    """A thread that runs an event loop until it is stopped.

    Functions run in the loop as well. They block it, but may bind clients and sessions to it. It is
    a daemon thread, since code that hangs must not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        # With a factory, the loop does not become the current one of the thread that runs this.
        runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = runner.get_loop()
        threading.Thread(target=_run_until_stopped, args=(runner,), name=name, daemon=True).start()

    def start(self, function: Callable[[], Any]) -> Future[Outcome]:
        """Begin a call of a function or coroutine function, in a copy of the caller's context."""
        return asyncio.run_coroutine_threadsafe(_outcome_of(function), self._loop)

    def stop(self) -> None:
        """End the thread, once the code that blocks it has ended; do not wait for that."""
        with suppress(RuntimeError):  # The loop is closed already.
            self._loop.call_soon_threadsafe(self._loop.stop)


def _run_until_stopped(runner: asyncio.Runner) -> None:
    """Run the loop of a runner; when it is stopped, cancel its tasks and close it."""
    with runner:
        runner.get_loop().run_forever()


async def _outcome_of(function: Callable[[], Any]) -> Outcome:
    """Call a function; await what it returns if that can be awaited."""
    try:
        value = function()
        if inspect.isawaitable(value):
            value = await value
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: raised by a task, they would end the loop.
        return Outcome(error=error)
    return Outcome(value)


async def ends_within(call: Future[Outcome], seconds: float) -> bool:
    """Wait for a call; return whether it has ended within so many seconds."""
    finished, _ = await asyncio.wait([asyncio.wrap_future(call)], timeout=seconds)
    return bool(finished)


@functools.cache
def supervisor_loop() -> asyncio.AbstractEventLoop:
    """Return the loop in which calls are waited for; it runs in a thread of its own.

    Two threads that ask first at the same time may get different loops. So every object keeps to
    the loop that it got.
    """
    loop = asyncio.new_event_loop()
    name = "external supervisor"
    threading.Thread(target=loop.run_forever, name=name, daemon=True).start()
    return loop


# A forked process has none of the threads of its parent.
os.register_at_fork(after_in_child=supervisor_loop.cache_clear)
