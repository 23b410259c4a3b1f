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
    """Run the calls of every gather in the block one after another.

    That is slower, and independent of timing: an engine that batches concurrent calls rounds
    differently from batch to batch.
    """
    return program_context(runs_in_order=True)


def gather(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls concurrently and return their results in order.

    Args:
        calls: Functions without arguments that do not depend on one another.

    Raises:
        Exception: The failure of the first call, in call order, that failed. All calls have ended
            by then. A `CancelledError` that a call raises is a failure like any other.
    """
    if len(calls) < 2:
        return [call() for call in calls]

    jobs = _make_jobs(calls)
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
    return [job.results[0] for job in jobs]


def run_unordered(calls: Sequence[Callable[[], T]], limit: int) -> Generator[T]:
    """Run calls concurrently, at most `limit` at a time, and yield their results as they come.

    A failure drops the calls that have not begun, and is raised when those in flight have ended.
    Closing the generator does not wait for them: threads go on, and tasks are cancelled.

    Args:
        calls: Functions without arguments that do not depend on one another.
        limit: How many run at a time; at least 1.

    Raises:
        Exception: The first failure. A `CancelledError` that a call raises is a failure like any
            other.
    """
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
    error: Exception | asyncio.CancelledError | None = None

    def run(self) -> None:
        """Make the call in its context, and keep its result or exception."""
        try:
            self.context.run(self._make_call)
        except (Exception, asyncio.CancelledError) as error:
            self.error = error

    async def run_in_task(self) -> None:
        """Do what `run` does, in a task that has the context of the job.

        Raises:
            CancelledError: The task was cancelled.
        """
        try:
            await run_bridged(self._make_call)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            self.error = error
        except Exception as error:
            self.error = error

    def _make_call(self) -> None:
        with program_context(call_order=self.call_order), dspy.context(trace=self.trace):
            self.results.append(self.call())


def _make_jobs(calls: Sequence[Callable[[], T]]) -> list[_Job[T]]:
    """Return a job per call, each with its own context, trace and call order."""
    is_traced = dspy.settings.trace is not None
    call_order = current_program_context().call_order
    path = () if call_order is None else call_order.next_position()

    jobs: list[_Job[T]] = []
    for number, call in enumerate(calls):
        job_order = None if call_order is None else CallOrder((*path, number))
        trace: list[Any] | None = [] if is_traced else None
        jobs.append(_Job(call, contextvars.copy_context(), job_order, trace))
    return jobs


def _run_in_threads(jobs: Sequence[_Job[Any]]) -> None:
    """Run jobs in this thread and those of the pool."""
    futures = [_pool().submit(job.run) for job in jobs[1:]]

    # The caller works too, and takes back what the pool has not started. Otherwise nested gathers
    # could wait for one another for ever.
    jobs[0].run()
    for job, future in zip(jobs[1:], futures, strict=True):
        if future.cancel():
            job.run()
        else:
            future.result()


async def _run_in_tasks(jobs: Sequence[_Job[Any]]) -> None:
    """Run jobs as tasks of the running event loop; they are cancelled with their caller."""
    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            task = tasks.create_task(job.run_in_task(), context=job.context)
            if current_program_context().runs_in_order:
                await task


def _is_cancelled() -> bool:
    """Return whether somebody has cancelled the running task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _results_of_threads(calls: Sequence[Callable[[], T]], limit: int) -> Generator[T]:
    """Do what `run_unordered` does, in threads."""
    pool = ThreadPoolExecutor(limit)
    futures = [pool.submit(contextvars.copy_context().run, call) for call in calls]
    try:
        for future in as_completed(futures):
            yield future.result()
    except BaseException as error:
        # Whoever stops does not wait for the calls in flight; what they bring is kept if they
        # still come.
        is_stopped = isinstance(error, KeyboardInterrupt | GeneratorExit)
        pool.shutdown(wait=not is_stopped, cancel_futures=True)
        raise
    pool.shutdown()


def _results_of_tasks(calls: Sequence[Callable[[], T]], limit: int) -> Generator[T]:
    """Do what `run_unordered` does, as tasks of the running event loop."""
    tasks = _LimitedTasks(calls, limit)
    try:
        for _ in calls:
            task = wait_for(tasks.finished.get())
            if not _has_result(task):
                tasks.wait_for_running()
            yield task.result()
    finally:
        tasks.cancel()


class _LimitedTasks(Generic[T]):
    """Runs calls as tasks of the running event loop, a limited number at a time.

    When one has ended, the next one begins. After the first failure, no more calls begin.
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
        """Wait until all calls that have begun have ended."""
        if self._running:
            wait_for(asyncio.wait(self._running))

    def cancel(self) -> None:
        """Cancel the calls that have begun, and begin no more."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _start_next(self) -> None:
        if not self._waiting:
            return
        call = run_bridged(self._waiting.popleft())
        # A copy for each call, as calls in threads have it.
        context = self._context.copy()
        task = asyncio.get_running_loop().create_task(call, context=context)
        self._running.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[T]) -> None:
        self._running.discard(task)
        self.finished.put_nowait(task)
        if not _has_result(task):
            self._waiting.clear()
        self._start_next()


def _has_result(task: asyncio.Task[Any]) -> bool:
    """Return whether a task that has ended was neither cancelled nor has failed."""
    return not task.cancelled() and task.exception() is None


def _join_traces(jobs: Sequence[_Job[Any]]) -> None:
    """Append the traces of the jobs to the caller's trace, as far as DSPy's limit allows."""
    caller_trace = dspy.settings.trace
    if caller_trace is None:
        return
    room = max(0, dspy.settings.max_trace_size - len(caller_trace))
    entries = [entry for job in jobs for entry in job.trace or ()]
    caller_trace.extend(entries[:room])


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="mempiler-gather")
