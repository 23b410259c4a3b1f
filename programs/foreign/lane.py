"""Calls of somebody else's code: one after the other in a thread of its own, none longer than it may take.

    lane.call("add", store.add, session) ── the lane's thread ──> result, or ForeignError("add: no answer within 60 s")

A call runs in a copy of its caller's context, so that a model it asks is metered as the caller's own. Coroutines run on
a loop that lives as long as the lane. Code that hangs cannot be ended in Python: its thread is left behind, the lane is
dead, and every further call of it fails at once with the same reason. What runs in a process of its own has a `kill`.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from .searchable import ForeignError

LOOK = 1.0
"""Seconds between two looks at what a busy call has done."""

CLOSING = 10.0
"""Seconds that a system has to end by itself."""

_Job = tuple[Future[Any], contextvars.Context, Callable[[], Any]]


class Lane:
    """One thread for one system.

    Args:
        name: What failures call it.
        timeout: Seconds that a call may take.
        breach: Looks at what has been done so far; a reason to end it, or None.
        kill: Ends it from another thread, where it can be ended.
    """

    def __init__(
        self,
        name: str,
        timeout: float,
        breach: Callable[[], str | None] = lambda: None,
        kill: Callable[[], Any] | None = None,
    ) -> None:
        self.name, self.dead = name, ""
        self.kill = kill
        self._timeout, self._breach = timeout, breach
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs,), name=f"foreign {name}", daemon=True).start()

    def call(self, what: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a function, or a coroutine function, in the lane.

        Args:
            what: What the call is, for failures.
            function: What is called.
            *args: Its arguments.
            **named: Those by name.

        Raises:
            ForeignError: It took too long or too much, now or before, or tried to end the process.
            Exception: What it raised.
        """
        if self.dead:
            raise ForeignError(f"{self.name}: {self.dead}")
        context, future = contextvars.copy_context(), Future[Any]()
        self._jobs.put((future, context, lambda: function(*args, **named)))
        ends = time.monotonic() + self._timeout
        while True:
            try:
                result = future.result(max(0.0, min(LOOK, ends - time.monotonic())))
            except TimeoutError:
                if future.done():  # the call's own
                    raise
                self._look(what, time.monotonic() >= ends)
            except Exception:
                raise
            except BaseException as error:
                raise ForeignError(f"{self.name}: {what}: tried to end the process ({type(error).__name__})") from None
            else:
                self._look(what)
                return result

    def close(self, last: Callable[[], Any] | None = None) -> None:
        """Ends the thread after what it is doing.

        Args:
            last: Called before that, if the lane is not dead; what it raises is of no use to anyone.
        """
        if last is not None and not self.dead:
            future = Future[Any]()
            self._jobs.put((future, contextvars.copy_context(), last))
            if future not in wait([future], CLOSING).done and self.kill is not None:
                self.kill()
        self.dead = self.dead or "is closed"
        self._jobs.put(None)

    def _look(self, what: str, late: bool = False) -> None:
        reason = f"no answer within {self._timeout:g} s" if late else self._breach()
        if reason is None:
            return
        self.dead = f"{what}: {reason}"
        self.close()
        if self.kill is not None:
            self.kill()
        raise ForeignError(f"{self.name}: {self.dead}")


def within(name: str, timeout: float, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Calls a function in a lane of its own; arguments and errors as those of `Lane.call`."""
    lane = Lane(name, timeout)
    try:
        return lane.call("answer", function, *args, **named)
    finally:
        lane.close()


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """Does what it is given until it is given None."""
    with asyncio.Runner() as runner:
        while (job := jobs.get()) is not None:
            future, context, function = job
            try:
                result = context.run(function)
                if inspect.isawaitable(result):
                    result = runner.run(_awaited(result), context=context)
                future.set_result(result)
            except BaseException as error:
                future.set_exception(error)
            del job, future, context, function


async def _awaited(value: Any) -> Any:
    return await value
