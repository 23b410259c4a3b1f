"""Running independent LM calls of one step at the same time, as if they had run one after another.

Every call has a copy of the caller's context and a trace of its own; traces are joined in call order. The caller works
on the calls too, and takes back what the pool has not started: nested gathers cannot deadlock. `dspy.Parallel` mixes up
traces, loses usage and turns failures into None.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import dspy

from ..records.scope import Place, holding, place

T = TypeVar("T")

WIDTH = 128
"""Threads that help all gathers of the process; every gather's own caller comes on top."""


_in_order: contextvars.ContextVar[bool] = contextvars.ContextVar("in_order", default=False)


def in_order() -> AbstractContextManager[None]:
    """Makes the gathers of the block run their calls one after another: slower, and independent of timing.

    An engine that batches concurrent calls rounds otherwise in another batch; where that must not be, nothing may run
    at the same time.
    """
    return holding(_in_order, True)


def gather(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Runs calls concurrently and returns their results in order.

    Args:
        calls: Functions without arguments that do not depend on one another.

    Raises:
        Exception: The failure of the first call, in call order, that failed; the others have ended by then.
    """
    if len(calls) < 2:
        return [call() for call in calls]
    outer = dspy.settings.trace
    here = place.get()
    at = here.tick() if here else ()
    jobs = [_Job(call, outer is not None, Place((*at, n)) if here else None) for n, call in enumerate(calls)]
    if _in_order.get():
        for job in jobs:
            job.run()
    else:
        futures: list[Future[None]] = [_pool().submit(job.run) for job in jobs[1:]]
        jobs[0].run()
        for job, future in zip(jobs[1:], futures, strict=True):
            if future.cancel():
                job.run()
            else:
                future.result()
    for job in jobs:
        if job.error is not None:
            raise job.error
    if outer is not None:
        room = max(0, dspy.settings.max_trace_size - len(outer))
        outer.extend([entry for job in jobs for entry in job.trace][:room])
    return [job.value for job in jobs]


class _Job:
    """One call with its context, trace and outcome."""

    def __init__(self, call: Callable[[], Any], traced: bool, at: Place | None) -> None:
        self._call = call
        self._place = at
        self._context = contextvars.copy_context()
        self._traced = traced
        self.trace: list[Any] = []
        self.value: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        self._context.run(self._traced_call)

    def _traced_call(self) -> None:
        place.set(self._place)
        with dspy.context(trace=self.trace if self._traced else None):
            try:
                self.value = self._call()
            except Exception as error:
                self.error = error


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WIDTH, thread_name_prefix="mempiler-gather")
