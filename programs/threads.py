"""Run independent LM calls at the same time: in threads, or as tasks where the caller is bridged.

    summaries = gather([partial(summarize, session) for session in sessions])

Every call has a copy of the caller's context and a trace of its own; traces are joined in call
order. `dspy.Parallel` would mix up traces, lose usage and turn failures into None.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import dspy

from ..async_bridge import is_bridged, run_bridged, wait_for
from ._call_order import CallOrder
from ._context import current_program_context, program_context

T = TypeVar("T")

MAX_WORKERS = 128
"""Threads that help all gathers of the process; the callers of gathers work beside them."""


def in_order() -> AbstractContextManager[None]:
    """Let every `gather` in the block make its calls one after another.

    That is slower, but the results do not depend on timing: an engine that answers concurrent calls
    in batches rounds differently from batch to batch.
    """
    return program_context(runs_in_order=True)


def gather(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make calls at the same time, and return their results in the order of the calls.

    Args:
        calls: Functions without arguments that do not depend on one another.

    Raises:
        Exception: The exception of the first call, in the order of `calls`, that failed. It is
            raised after all calls have ended. A `CancelledError` of a call is raised as well.
    """
    if len(calls) < 2:
        return [call() for call in calls]

    jobs = _make_jobs(calls)
    # Inside asyncio, tasks make the calls and no thread has to wait for a model.
    if is_bridged():
        wait_for(_run_in_tasks(jobs))
    elif current_program_context().runs_in_order:
        for job in jobs:
            job.run()
    else:
        _run_in_threads(jobs)

    for job in jobs:
        if job.error is not None:
            raise job.error
    _join_traces(jobs)
    # Each job has a list with its one result.
    return [job.results[0] for job in jobs]


def run_unordered(calls: Sequence[Callable[[], T]], limit: int) -> Generator[T]:
    """Make calls at the same time, at most `limit` at once, and yield results as they come.

    If a call fails, no further call begins, and the exception is raised when the running calls have
    ended. Closing the generator does not wait for running calls: threads go on, and tasks are
    cancelled.

    Args:
        calls: Functions without arguments that do not depend on one another.
        limit: Most calls that run at the same time; at least 1.

    Raises:
        Exception: The first exception of a call. A `CancelledError` of a call is raised as well.
    """
    # Inside asyncio, tasks make the calls and no thread has to wait for a model.
    if is_bridged():
        return _results_of_tasks(calls, limit)
    return _results_of_threads(calls, limit)


@dataclass
class _Job(Generic[T]):
    """One call of a gather, and what became of it."""

    call: Callable[[], T]
    context: contextvars.Context
    call_order: CallOrder | None
    trace: list[Any] | None
    """The trace of the call; None where the caller has none."""
    results: list[T] = field(default_factory=list[Any])
    """The one result; a list, since a result may be None."""
    error: Exception | SystemExit | asyncio.CancelledError | None = None

    def run(self) -> None:
        """Make the call in its context, and keep its result or exception."""
        try:
            self.context.run(self._make_call)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            self.error = error

    async def run_in_task(self) -> None:
        """Make the call in the running task, and keep its result or exception.

        The task must have the context of the job.

        Raises:
            CancelledError: The task itself was cancelled.
        """
        try:
            await run_bridged(self._make_call)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # Something inside the call was cancelled, which is a failure of the call.
            self.error = error
        except (Exception, SystemExit) as error:
            # A SystemExit of the user's code would end the event loop.
            self.error = error

    def _make_call(self) -> None:
        """Make the call, with a trace and a numbering of model calls of its own."""
        with program_context(call_order=self.call_order), dspy.context(trace=self.trace):
            self.results.append(self.call())


def _make_jobs(calls: Sequence[Callable[[], T]]) -> list[_Job[T]]:
    """Return a job for each call, with a copy of the caller's context and a trace of its own.

    The jobs run at the same time, so their entries would be mixed up in a common trace.

    If a recording is active, every job also numbers its model calls, so that they can be sorted
    when all have ended. If the gather has the position (3,), the first job numbers its calls
    (3, 0, 0), (3, 0, 1) and so on, and the second job (3, 1, 0), (3, 1, 1).
    """
    is_traced = dspy.settings.trace is not None
    call_order = current_program_context().call_order
    # Without a recording, nothing is numbered.
    gather_position = () if call_order is None else call_order.next_position()

    jobs: list[_Job[T]] = []
    for number, call in enumerate(calls):
        job_order: CallOrder | None = None
        if call_order is not None:
            # The job adds the last number of a position, which counts its calls.
            job_order = CallOrder((*gather_position, number))
        trace: list[Any] | None = [] if is_traced else None
        jobs.append(_Job(call, contextvars.copy_context(), job_order, trace))
    return jobs


def _run_in_threads(jobs: Sequence[_Job[Any]]) -> None:
    """Run jobs in the threads of the pool and in the calling thread, and wait for all of them."""
    futures = [_pool().submit(job.run) for job in jobs[1:]]

    # The calling thread runs the first job, and then all jobs that it can take back because the
    # pool has not started them. If it only waited, gathers inside gathers could fill the pool with
    # threads that wait for one another for ever.
    jobs[0].run()
    for job, future in zip(jobs[1:], futures, strict=True):
        if future.cancel():
            job.run()
        else:
            future.result()


async def _run_in_tasks(jobs: Sequence[_Job[Any]]) -> None:
    """Run jobs as tasks of the running event loop, and wait for all of them.

    If the caller is cancelled, so are the tasks.
    """
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            task = tasks.create_task(job.run_in_task(), context=job.context)
            # One after another: the next task begins when this one has ended.
            if current_program_context().runs_in_order:
                await task


def _is_cancelled() -> bool:
    """Return whether the running task was cancelled, and not only something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _results_of_threads(calls: Sequence[Callable[[], T]], limit: int) -> Generator[T]:
    """Make calls in at most `limit` threads, and yield results as they come (`run_unordered`)."""
    pool = ThreadPoolExecutor(limit)
    futures = [pool.submit(contextvars.copy_context().run, call) for call in calls]
    try:
        for future in as_completed(futures):
            yield future.result()
    except BaseException as error:
        # After the error of a call, the calls that still run may end. Whoever interrupts the
        # program or closes the generator does not want to wait for them.
        is_stopped = isinstance(error, KeyboardInterrupt | GeneratorExit)
        pool.shutdown(wait=not is_stopped, cancel_futures=True)
        raise
    pool.shutdown()


def _results_of_tasks(calls: Sequence[Callable[[], T]], limit: int) -> Generator[T]:
    """Make calls in at most `limit` tasks, and yield results as they come (`run_unordered`)."""
    tasks = _LimitedTasks(calls, limit)
    try:
        for _ in range(len(calls)):
            task = wait_for(tasks.finished.get())
            if _has_failed(task):
                # No more calls begin now, but those that are running are given time to end.
                tasks.wait_for_running()
            # For a failed task, `result` raises its error, and the generator ends here.
            yield task.result()
    finally:
        # Calls are still running only if the caller was interrupted or closed this generator.
        tasks.cancel()


class _LimitedTasks(Generic[T]):
    """Runs calls as tasks of the running event loop, a limited number at a time.

    When a task has ended, the next call begins. After the first failure, no more calls begin.
    """

    def __init__(self, calls: Sequence[Callable[[], T]], limit: int) -> None:
        self.finished: asyncio.Queue[asyncio.Task[T]] = asyncio.Queue()
        """Tasks that have ended and were not taken from here yet, in the order of their ends."""
        self._waiting = deque(calls)
        self._running: set[asyncio.Task[T]] = set()
        self._context = contextvars.copy_context()
        for _ in range(limit):
            self._start_next()

    def wait_for_running(self) -> None:
        """Wait until no call runs any more."""
        if self._running:
            wait_for(asyncio.wait(self._running))

    def cancel(self) -> None:
        """Cancel the calls that run, and begin no more."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _start_next(self) -> None:
        """Begin the next waiting call as a task, if there is one."""
        if not self._waiting:
            return
        call = self._waiting.popleft()
        # The call is a plain function. `run_bridged` makes a coroutine of it, so that a task can
        # run it, and the event loop goes on while it waits for a model.
        coroutine = run_bridged(call)

        # A copy of the context: a variable that one call sets is not seen by the others.
        context = self._context.copy()
        task = asyncio.get_running_loop().create_task(coroutine, context=context)
        self._running.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[T]) -> None:
        """Hand over a task that has ended, and begin the next call unless this one has failed."""
        self._running.discard(task)
        self.finished.put_nowait(task)
        if _has_failed(task):
            self._waiting.clear()
        self._start_next()


def _has_failed(task: asyncio.Task[Any]) -> bool:
    """Return whether a task that has ended has no result: it was cancelled, or raised an error."""
    return task.cancelled() or task.exception() is not None


def _join_traces(jobs: Sequence[_Job[Any]]) -> None:
    """Append the traces of jobs to the caller's trace, in the order of the jobs.

    DSPy limits the length of a trace; what goes beyond it is dropped.
    """
    caller_trace = dspy.settings.trace
    if caller_trace is None:
        return

    entries: list[Any] = []
    for job in jobs:
        if job.trace is not None:
            entries.extend(job.trace)

    room = max(0, dspy.settings.max_trace_size - len(caller_trace))
    caller_trace.extend(entries[:room])


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="mempiler-gather")
