"""Plain functions that wait inside asyncio: what `run_bridged` promises, without a model.

`run_bridged(function)` runs a plain function inside a task of asyncio; such code is called bridged.
Where the function calls `wait_for(awaitable)`, it pauses without a thread, and other tasks run
meanwhile. `off_loop(call)` makes a blocking call in a thread, so that the event loop goes on.
`run_in_own_loop(function)` gives long work a thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest
from mempiler.async_bridge import (
    MAX_OWN_LOOPS,
    MAX_THREADS,
    disk_off_loop,
    in_thread,
    is_bridged,
    limit_threads,
    off_loop,
    result_of,
    run_bridged,
    run_in_own_loop,
    wait_for,
)

from .async_engines import run_within

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


async def echo(value: str) -> str:
    """Return a value, after other tasks of the event loop had their turn."""
    await asyncio.sleep(0)
    return value


def test_a_plain_function_gets_what_its_awaitables_give() -> None:
    """`run_bridged` runs a plain function in a task. There, `wait_for` waits for an awaitable."""

    def plain_function() -> str:
        return wait_for(echo("a")) + wait_for(echo("b"))

    result = run_within(10, run_bridged(plain_function))

    assert result == "ab"


def test_many_functions_wait_together_in_one_thread() -> None:
    """A hundred functions wait at a barrier, which lets them go on when all of them are there."""

    async def threads_of_functions() -> set[int]:
        barrier = asyncio.Barrier(100)

        def wait_at_barrier() -> int:
            wait_for(barrier.wait())
            return threading.get_ident()

        functions = [run_bridged(wait_at_barrier) for _ in range(100)]
        return set(await asyncio.gather(*functions))

    threads = run_within(10, threads_of_functions())

    assert len(threads) == 1


def test_an_error_of_an_awaitable_is_raised_where_the_function_waits() -> None:
    async def fail() -> None:
        raise ValueError("no such city")

    def wait() -> str:
        try:
            wait_for(fail())
        except ValueError as error:
            return f"caught: {error}"
        return "nothing was raised"

    result = run_within(10, run_bridged(wait))

    assert result == "caught: no such city"


def test_an_error_of_the_function_is_raised_by_run_bridged() -> None:
    """`run_bridged` runs a plain function in a task. There, `wait_for` waits for an awaitable."""

    def fail() -> None:
        wait_for(echo("a"))
        raise ValueError("no such city")

    with pytest.raises(ValueError, match="no such city"):
        run_within(10, run_bridged(fail))


def test_a_cancelled_task_ends_its_function_where_it_waits() -> None:
    """`run_bridged` runs a plain function in a task. There, `wait_for` waits for an awaitable."""
    ends: list[str] = []

    def wait() -> None:
        try:
            wait_for(asyncio.Event().wait())
        finally:
            ends.append("cleaned up")

    async def cancel() -> None:
        task = asyncio.create_task(run_bridged(wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_within(10, cancel())

    assert ends == ["cleaned up"]


def test_a_context_variable_of_the_function_is_seen_by_what_it_waits_for_and_by_no_other() -> None:
    """Two functions run at once, one for Ada and one for Bob, and each sets `NAME`."""

    async def read_name() -> str:
        await asyncio.sleep(0)  # the other function has its turn
        return NAME.get()

    def set_and_read_name(name: str) -> str:
        NAME.set(name)
        return wait_for(read_name())

    async def run_both() -> list[str]:
        return await asyncio.gather(
            run_bridged(partial(set_and_read_name, "ada")),
            run_bridged(partial(set_and_read_name, "bob")),
        )

    names = run_within(10, run_both())

    assert names == ["ada", "bob"]


def test_blocking_calls_go_to_a_thread_in_bridged_code_only() -> None:
    """`off_loop` makes a blocking call in a thread, so that an event loop can go on meanwhile.

    Plain code has no event loop, so the call is made right there.
    """

    def is_in_another_thread() -> bool:
        return off_loop(threading.get_ident) != threading.get_ident()

    in_plain_code = is_in_another_thread()
    in_bridged_code = run_within(10, run_bridged(is_in_another_thread))

    assert in_plain_code is False
    assert in_bridged_code is True


def test_code_in_a_thread_of_bridged_code_is_not_bridged() -> None:
    """`off_loop` runs `is_bridged` in a thread, where there is no task that could be paused."""
    in_bridged_code = run_within(10, run_bridged(is_bridged))
    in_its_thread = run_within(10, run_bridged(lambda: off_loop(is_bridged)))

    assert in_bridged_code is True
    assert in_its_thread is False


def test_waiting_outside_of_bridged_code_is_refused() -> None:
    awaitable = echo("a")

    with pytest.raises(RuntimeError, match="under run_bridged only"):
        wait_for(awaitable)
    awaitable.close()


def test_giving_up_the_wait_for_a_future_does_not_cancel_it() -> None:
    """Two questions may wait for the same answer. One of them is cancelled here.

    `result_of` waits for a future in bridged code, which is a plain function in a task of asyncio.
    """
    future: Future[str] = Future()

    async def cancel() -> None:
        task = asyncio.create_task(run_bridged(lambda: result_of(future)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_within(10, cancel())

    assert not future.cancelled()


def test_long_work_runs_in_another_thread_and_may_wait_for_awaitables_there() -> None:
    """`run_in_own_loop` runs a plain function in a thread with an event loop of its own."""

    def long_work() -> int:
        assert wait_for(echo("a")) == "a"
        return threading.get_ident()

    async def start_long_work() -> None:
        thread_of_work = await run_in_own_loop(long_work)
        assert thread_of_work != threading.get_ident()

    run_within(10, start_long_work())


def test_cancelling_long_work_waits_for_its_end() -> None:
    ends: list[str] = []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        try:
            wait_for(asyncio.Event().wait())
        finally:
            ends.append("cleaned up")

    async def cancel() -> None:
        task = asyncio.create_task(run_in_own_loop(wait))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_within(10, cancel())

    assert ends == ["cleaned up"]


def test_long_work_does_not_need_the_threads_of_its_callers_loop() -> None:
    """`run_in_own_loop` runs long work in a thread of its own.

    The caller's event loop has one thread here, which is busy until the long work is done.
    """
    go = threading.Event()

    async def work() -> str:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        blocking = asyncio.create_task(asyncio.to_thread(go.wait, 10))
        await asyncio.sleep(0)
        answer = await run_in_own_loop(lambda: "done first")
        assert not blocking.done()
        go.set()
        await blocking
        return answer

    answer = run_within(20, work())

    assert answer == "done first"


def test_a_limiter_of_threads_is_not_used_in_another_loop() -> None:
    """A limiter bounds how many threads one client of a server uses. It belongs to one loop.

    The only thread is taken here, but long work has an event loop of its own.
    """

    def long_work() -> str:
        return off_loop(lambda: "done")

    async def start_long_work() -> str:
        limiter = asyncio.Semaphore(1)
        with limit_threads(limiter):
            async with limiter:
                return await run_in_own_loop(long_work)

    assert run_within(20, start_long_work()) == "done"


def test_long_work_that_waits_for_a_thread_can_be_cancelled_at_once() -> None:
    """There are `MAX_OWN_LOOPS` threads for long work, which are all busy here.

    Further work waits for one of them, and is cancelled.
    """
    go = threading.Event()
    begun: list[str] = []

    async def cancel() -> None:
        running = [
            asyncio.create_task(run_in_own_loop(partial(go.wait, 10))) for _ in range(MAX_OWN_LOOPS)
        ]
        task = asyncio.create_task(run_in_own_loop(lambda: begun.append("begun")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(other.done() for other in running)
        go.set()
        await asyncio.gather(*running)

    run_within(20, cancel())

    assert begun == []


def test_bridged_code_in_threads_that_are_all_busy_gets_other_threads() -> None:
    """All `MAX_THREADS` threads are busy with calls that need a second thread to end.

    If the second thread had to be one of these, no call would ever end.
    """
    all_are_busy = threading.Barrier(MAX_THREADS)

    def call_in_second_thread() -> str:
        return off_loop(lambda: "value")

    def call_in_first_thread() -> str:
        all_are_busy.wait(10)
        return asyncio.run(run_bridged(call_in_second_thread))

    async def make_all_calls() -> list[str]:
        calls = [in_thread(call_in_first_thread) for _ in range(MAX_THREADS)]
        return await asyncio.gather(*calls)

    values = run_within(20, make_all_calls())

    assert values == ["value"] * MAX_THREADS


def test_a_disk_is_read_while_all_other_threads_are_busy() -> None:
    """Reads of a disk have threads of their own, which never wait for a model or a slot."""
    go = threading.Event()

    def read_disk() -> str:
        return disk_off_loop(lambda: "text")

    async def read_while_threads_are_busy() -> str:
        calls = [asyncio.create_task(in_thread(partial(go.wait, 10))) for _ in range(MAX_THREADS)]
        await asyncio.sleep(0)
        text = await run_bridged(read_disk)
        assert not any(call.done() for call in calls)
        go.set()
        await asyncio.gather(*calls)
        return text

    assert run_within(20, read_while_threads_are_busy()) == "text"


def test_a_stop_iteration_of_a_thread_is_an_error_and_no_endless_wait() -> None:
    """A future of asyncio cannot hold a StopIteration, so the waiting code would never go on."""

    def exhausted() -> str:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(asyncio.wait_for(run_bridged(lambda: off_loop(exhausted)), timeout=20))
