"""Let plain functions wait inside asyncio without holding a thread.

    async def answer(question: str) -> dspy.Prediction:
        return await run_bridged(partial(program, question=question))

The methods are written as plain functions, once. Under `run_bridged` such a function runs in a
greenlet: a call stack of its own, which can be left in the middle and continued later. Where the
function has to wait, it hands an awaitable to `wait_for`. The event loop awaits it, does other work
meanwhile, and then continues the function with the result. SQLAlchemy does the same for its asyncio
extension.

Code that blocks runs in a thread meanwhile. There are three kinds of threads, since code that waits
for one of its own kind could wait for ever:

| threads           | started by              | may wait for                        |
|-------------------|-------------------------|-------------------------------------|
| `MAX_OWN_LOOPS`   | `run_in_own_loop`       | all that a whole run waits for      |
| `MAX_THREADS`     | `off_loop`, `in_thread` | models, slots, budgets, other calls |
| `MAX_DISK_THREADS`| `disk_off_loop`         | a disk, and nothing else            |

A server can limit how many threads of `in_thread` the work for one of its clients holds: see
`limit_threads`.

The code in a thread of `in_thread` may run an event loop itself: a user's module may await
`program.acall`. What it hands to `in_thread` there gets one of `MAX_THREADS` further threads, since
all those of the first level may be waiting for such modules.

What bridged code may not do:

- Use `off_loop` while it holds what other calls wait for, such as a slot at an endpoint or room in
  a budget. Every thread may be busy with a call that waits for just that, so no thread would ever
  become free. Hold it inside the call that the thread makes, or use `disk_off_loop`.
- Hold a `threading.Lock` while it waits. The same holds for finalizers, which Python may run in any
  code, also in code that holds a lock: they must not call anything in here.
- Wait inside `contextvars.Context.run`.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

MAX_THREADS = 64
"""Threads of one level for what blocks under asyncio: stores, searches, some models."""
MAX_DISK_THREADS = 8
"""Threads of the process for reading and writing files under asyncio."""
MAX_TEXT_IN_LOOP = 20_000
"""Characters of text that may be worked on in an event loop; it takes about a millisecond."""
MAX_OWN_LOOPS = 16
"""Threads of the process that have an event loop for long work; more work waits for its turn."""


_level: contextvars.ContextVar[int] = contextvars.ContextVar("mempiler_thread_level", default=0)
"""How many threads of `in_thread`, one inside the other, wait for the running code."""

_limiter: contextvars.ContextVar[AbstractAsyncContextManager[object] | None] = (
    contextvars.ContextVar("mempiler_thread_limiter", default=None)
)
"""Held around every call of `in_thread`, see `limit_threads`."""


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
    """Make a call that blocks or computes; in bridged code a thread makes it, not the loop's.

    The caller must not hold what other calls wait for, see the top of this file.
    """
    if not is_bridged():
        return call()
    return wait_for(in_thread(call))


def text_off_loop(length: int, call: Callable[[], T]) -> T:
    """Make a call that computes something from texts; in bridged code, off the loop if it is long.

    Args:
        length: How many characters the texts have together.
        call: Makes no use of a model.
    """
    if length <= MAX_TEXT_IN_LOOP:
        return call()
    return off_loop(call)


def disk_off_loop(call: Callable[[], T]) -> T:
    """Make a call that reads or writes a file, and waits for nothing else.

    In bridged code a thread makes it, which is never busy with a call that waits for the caller.
    """
    if not is_bridged():
        return call()
    return wait_for(_run_in_pool(_disk_threads(), call))


async def in_thread(call: Callable[[], T]) -> T:
    """Make a call in one of `MAX_THREADS` threads, in a copy of the caller's context."""
    level = _level.get()
    limiter = _limiter.get()

    def call_on_next_level() -> T:
        _level.set(level + 1)
        # The limiter belongs to the caller's event loop; the thread may run another one.
        _limiter.set(None)
        return call()

    async with limiter or nullcontext():
        return await _run_in_pool(_threads(level), call_on_next_level)


@contextmanager
def limit_threads(limiter: AbstractAsyncContextManager[object]) -> Generator[None]:
    """Hold a limiter around every call of `in_thread` in the block.

    So the work in several blocks with the same limiter uses a part of the threads only. Calls that
    such a thread makes itself, at the next level, are not limited.

    Args:
        limiter: Can be held several times, as `anyio.CapacityLimiter`; it is used in the event loop
            of the block alone.
    """
    token = _limiter.set(limiter)
    try:
        yield
    finally:
        _limiter.reset(token)


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
        # The limiter belongs to the caller's event loop.
        _limiter.set(None)
        return await run_bridged(call)

    context = contextvars.copy_context()
    thread_call = _own_loop_threads().submit(context.run, lambda: asyncio.run(work()))
    running = asyncio.wrap_future(thread_call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if thread_call.cancel():  # it still waited for a thread
            raise
        task = await asyncio.wrap_future(started)
        with suppress(RuntimeError):  # the work has just ended, and its loop is closed
            task.get_loop().call_soon_threadsafe(task.cancel)
        await asyncio.gather(running, return_exceptions=True)
        raise


async def _run_in_pool(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """Make a call in a thread of a pool, in a copy of the caller's context."""
    context = contextvars.copy_context()

    def call_in_context() -> T:
        return context.run(lambda: without_stop_iteration(call))

    return await asyncio.get_running_loop().run_in_executor(pool, call_in_context)


def without_stop_iteration(call: Callable[[], T]) -> T:
    """Make a call; a StopIteration, e.g. of `next()` in a user's code, becomes a RuntimeError.

    A future of asyncio cannot hold a StopIteration: who waits for it would wait for ever.
    """
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("StopIteration: next() found no further element") from error


@functools.cache
def _threads(level: int) -> ThreadPoolExecutor:
    """Return the threads of one level, see `_level`."""
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="mempiler-memory")


@functools.cache
def _disk_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_DISK_THREADS, thread_name_prefix="mempiler-disk")


@functools.cache
def _own_loop_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_OWN_LOOPS, thread_name_prefix="mempiler-own-loop")
