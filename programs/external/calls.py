"""Calls of somebody else's code: one after the other in a thread of its own, none longer than it may take.

A call runs in a copy of its caller's context, so that a model it asks is metered as the caller's own. Code that hangs
cannot be ended in Python: its thread is left behind, and every further call fails at once with the same reason.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from ...errors import BudgetError, EndpointError, MempilerError, UserError
from ..failing import ExternalError, failure_of

RUN_ENDS = (BudgetError, EndpointError, UserError)
"""Errors that are no fault of what is called: a limit, an endpoint that is gone, a mistake of the user's."""
CLOSING = 10.0
"""Seconds that a system has to end by itself."""


class CallThread:
    """One thread for one system; coroutines run on a loop that lives as long.

    Args:
        name: What failures call it.
        timeout: Seconds that a call may take.
    """

    def __init__(self, name: str, timeout: float) -> None:
        self.name, self.timeout, self.dead = name, timeout, ""
        self.kill: Callable[[], Any] = lambda: None
        """Ends what hangs from another thread, where it can be ended."""
        self.last: Callable[[], Any] | None = None
        """Called in the thread at its end, whatever that raises."""
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs,), name=f"external {name}", daemon=True).start()

    def call(self, what: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a function, or a coroutine function, in the thread.

        Args:
            what: What the call is, for failures.
            function: What is called.
            *args: Its arguments.
            **named: Those by name.

        Raises:
            ExternalError: It failed, or took too long, now or before.
            MempilerError: A budget is spent, or the model's endpoint is gone.
        """
        if self.dead:
            raise ExternalError(f"{self.name}: {self.dead}")
        future = self._put(partial(function, *args, **named))
        if not wait([future], self.timeout).done:
            self.dead = f"{what}: no answer within {self.timeout:g} s"
            self.close()
            self.kill()
            raise ExternalError(f"{self.name}: {self.dead}")
        try:
            return future.result()
        except RUN_ENDS:
            raise
        except MempilerError as error:
            raise ExternalError(str(error)) from error
        except BaseException as error:
            raise ExternalError(f"{self.name}: {what}: {failure_of(what, error).message}") from error

    def close(self) -> None:
        """Ends the thread after what it is doing."""
        if self.last is not None and not self.dead and not wait([self._put(self.last)], CLOSING).done:
            self.kill()
        self.dead = self.dead or "is closed"
        self._jobs.put(None)

    def _put(self, function: Callable[[], Any]) -> Future[Any]:
        future = Future[Any]()
        self._jobs.put((future, contextvars.copy_context(), function))
        return future


def _work(jobs: queue.SimpleQueue[Any]) -> None:
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
