"""Thread pools for independent LM calls, and single flight: one thing that many ask for is made once.

Every call of a `gather` has a copy of the caller's context and a trace of its own; traces are joined in call order. The
caller works on the calls too, and takes back what the pool has not started: nested gathers cannot deadlock.
`dspy.Parallel` mixes up traces, loses usage and turns failures into None.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice, zip_longest
from typing import Any, TypeVar

import dspy

from ..records.context_variables import set_context
from ..records.shared_by_copies import SharedByCopies
from .call_order import CALL_ORDER, CallOrder

T = TypeVar("T")

MAX_WORKERS = 128
"""Threads that help all gathers of the process; every gather's own caller comes on top."""

_in_order: contextvars.ContextVar[bool] = contextvars.ContextVar("in_order", default=False)


def in_order() -> AbstractContextManager[None]:
    """Makes the gathers of the block run their calls one after another: slower, and independent of timing.

    An engine that batches concurrent calls rounds otherwise in another batch; where that must not be, nothing may run
    at the same time.
    """
    return set_context(_in_order, True)


def gather(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Runs calls concurrently and returns their results in order.

    Args:
        calls: Functions without arguments that do not depend on one another.

    Raises:
        Exception: The failure of the first call, in call order, that failed; the others have ended by then.
    """
    if len(calls) < 2:
        return [call() for call in calls]
    outer, here = dspy.settings.trace, CALL_ORDER.get()
    at = here.next_position() if here else ()
    traces: list[list[Any]] = [[] for _ in calls]

    def job(n: int) -> tuple[Any, Exception | None]:
        CALL_ORDER.set(CallOrder((*at, n)) if here else None)
        with dspy.context(trace=None if outer is None else traces[n]):
            try:
                return calls[n](), None
            except Exception as error:
                return None, error

    jobs = [partial(contextvars.copy_context().run, partial(job, n)) for n in range(len(calls))]
    futures = [] if _in_order.get() else [_pool().submit(one) for one in jobs[1:]]
    ended = [jobs[0]()]
    for one, future in zip_longest(jobs[1:], futures):
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
    return ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="mempiler-gather")


class SingleFlight(SharedByCopies):
    """A thread-safe map whose values are each computed once, by the first of many threads that ask for one.

    The others wait and share its value or its failure. A failure is not kept: the next caller retries.

    Args:
        capacity: How many finished values are kept, least recently used first to go; None keeps all.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()

    def get_or_compute(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """The value of `key`, computed in the calling thread if no other thread has; it must not ask for its own key.

        Raises:
            BaseException: The exception of `compute`, in every thread that waited for it.
        """
        with self._lock:
            future = self._futures.get(key)
            owner = future is None
            if future is None:
                future = self._futures[key] = Future()
            self._futures.move_to_end(key)
        if not owner:
            return future.result()
        try:
            value = compute()
        except BaseException as error:
            with self._lock:
                self._futures.pop(key, None)
            future.set_exception(error)
            raise
        future.set_result(value)
        with self._lock:
            excess = 0 if self._capacity is None else len(self._futures) - self._capacity
            # Only the oldest are looked at: whoever looks at all pays for every value that is kept with every new one.
            for old in list(islice((key for key, one in self._futures.items() if one.done()), max(0, excess))):
                del self._futures[old]
        return value

    def peek(self, key: Hashable) -> Any | None:
        """The finished value of `key`, or None while there is none."""
        with self._lock:
            future = self._futures.get(key)
            if future is None or not future.done() or future.exception() is not None:
                return None
            self._futures.move_to_end(key)
        return future.result()

    def drop(self, unwanted: Callable[[Any], bool]) -> None:
        """Takes out every finished value whose key is unwanted."""
        with self._lock:
            for key in [key for key, future in self._futures.items() if future.done() and unwanted(key)]:
                del self._futures[key]
