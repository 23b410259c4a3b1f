"""Let plain functions wait inside asyncio without holding a thread.

    async def answer(question: str) -> dspy.Prediction:
        return await run_bridged(partial(program, question=question))

The methods are written as plain functions, once. Under `run_bridged` such a function runs in a
greenlet: a call stack of its own, which can be left in the middle and continued later. Where the
function has to wait, it hands an awaitable to `wait_for`. The event loop awaits it, does other work
meanwhile, and then continues the function with the result. SQLAlchemy does the same for its asyncio
extension.

Code that runs bridged may not hold a `threading.Lock` while it calls `wait_for`, and may not call
it inside `contextvars.Context.run`.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

MAX_THREADS = 64
"""Threads of the process for what blocks under asyncio: stores, searches, some models."""


class _BridgedCall(greenlet):
    """A plain function that `run_bridged` runs."""


async def run_bridged(call: Callable[[], T]) -> T:
    """Run a plain function; await whatever it hands to `wait_for`.

    The function shares the context variables of the task. An exception of an awaitable is raised
    in the function, where it waits; so is the cancellation of the task.
    """
    bridged = _BridgedCall(call)
    bridged.gr_context = getcurrent().gr_context

    outcome: Any = bridged.switch()
    while not bridged.dead:
        try:
            result = await outcome
        except BaseException as error:
            outcome = bridged.throw(error)
        else:
            outcome = bridged.switch(result)
    return outcome


def is_bridged() -> bool:
    """Return whether the running code is a function under `run_bridged`."""
    return isinstance(getcurrent(), _BridgedCall)


def wait_for(awaitable: Awaitable[T]) -> T:
    """Return the result of an awaitable; the event loop goes on meanwhile.

    Raises:
        RuntimeError: The code does not run bridged.
    """
    current = getcurrent()
    if not isinstance(current, _BridgedCall) or current.parent is None:
        raise RuntimeError("wait_for works under run_bridged only; check is_bridged() before")
    return current.parent.switch(awaitable)


def result_of(future: Future[T]) -> T:
    """Return the result of a future that another thread or task completes; wait for it."""
    if future.done() or not is_bridged():
        return future.result()
    # Shielded: whoever stops waiting must not cancel the future of all the others.
    return wait_for(asyncio.shield(asyncio.wrap_future(future)))


def off_loop(call: Callable[[], T]) -> T:
    """Make a call that blocks or computes; in bridged code a thread makes it, not the loop's."""
    if not is_bridged():
        return call()
    return wait_for(in_thread(call))


async def in_thread(call: Callable[[], T]) -> T:
    """Make a call in one of `MAX_THREADS` threads, in a copy of the caller's context."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_pool(), context.run, call)


async def run_in_own_loop(call: Callable[[], T]) -> T:
    """Run a plain function bridged, in an event loop of its own in one thread.

    It is for long work that computes between its waits, and would hold up the caller's loop.
    Cancelling it cancels the work, and waits for its end.
    """
    started: Future[asyncio.Task[Any]] = Future()

    async def work() -> T:
        task = asyncio.current_task()
        assert task is not None
        started.set_result(task)
        return await run_bridged(call)

    # Not one of the threads of `in_thread`: the work needs those, and could wait for itself.
    running = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(work())))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        task = await asyncio.wrap_future(started)
        with suppress(RuntimeError):  # the work has just ended, and its loop is closed
            task.get_loop().call_soon_threadsafe(task.cancel)
        await asyncio.gather(running, return_exceptions=True)
        raise


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="mempiler-memory")
