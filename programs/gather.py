"""Running independent LM calls of one step at the same time, as if they had run one after another.

Every call has a copy of the caller's context and a trace of its own; traces are joined in call order. The caller works
on the calls too, and takes back what the pool has not started: nested gathers cannot deadlock. `dspy.Parallel` mixes up
traces, loses usage and turns failures into None.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
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
    outer, here = dspy.settings.trace, place.get()
    at = here.tick() if here else ()
    traces: list[list[Any]] = [[] for _ in calls]

    def job(n: int) -> tuple[Any, Exception | None]:
        place.set(Place((*at, n)) if here else None)
        with dspy.context(trace=None if outer is None else traces[n]):
            try:
                return calls[n](), None
            except Exception as error:
                return None, error

    jobs = [partial(contextvars.copy_context().run, partial(job, n)) for n in range(len(calls))]
    futures = [] if _in_order.get() else [_pool().submit(one) for one in jobs[1:]]
    ended = [jobs[0]()]
    for one, future in itertools.zip_longest(jobs[1:], futures):
        ended.append(one() if future is None or future.cancel() else future.result())
    for _, error in ended:
        if error is not None:
            raise error
    if outer is not None:
        room = max(0, dspy.settings.max_trace_size - len(outer))
        outer.extend([entry for trace in traces for entry in trace][:room])
    return [value for value, _ in ended]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WIDTH, thread_name_prefix="mempiler-gather")
