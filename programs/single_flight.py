"""A map whose values are computed once, however many threads ask for them at the same time.

One thread computes a value, and the others wait for it:

    prompts: SingleFlight[str, Prompt] = SingleFlight(capacity=256)
    prompt = prompts.get_or_compute("extract", lambda: render("extract"))
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from itertools import islice
from typing import Generic, TypeVar

from ..records.shared_by_copies import SharedByCopies

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(SharedByCopies, Generic[K, V]):
    """A thread-safe map from keys to values that the first thread to ask computes.

    Other threads that ask meanwhile wait, and get the same value or the same exception. A failure
    is not kept: the next caller computes again.

    Args:
        capacity: How many finished values are kept; those used least recently go first. None keeps
            all.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._futures: OrderedDict[K, Future[V]] = OrderedDict()

    def get_or_compute(self, key: K, compute: Callable[[], V]) -> V:
        """Return the value of `key`; compute it in this thread if no other thread has.

        `compute` must not ask for its own key.

        Raises:
            BaseException: What `compute` raised, in every thread that waited for it.
        """
        with self._lock:
            future = self._futures.get(key)
            is_first = future is None
            if future is None:
                future = Future()
                self._futures[key] = future
            self._futures.move_to_end(key)
        if not is_first:
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
            self._evict()
        return value

    def peek(self, key: K) -> V | None:
        """Return the finished value of `key`, or None while there is none; counts as a use."""
        with self._lock:
            future = self._futures.get(key)
            if future is None or not future.done() or future.exception() is not None:
                return None
            self._futures.move_to_end(key)
        return future.result()

    def drop(self, is_unwanted: Callable[[K], bool]) -> None:
        """Remove every finished value whose key is unwanted."""
        with self._lock:
            for key, future in list(self._futures.items()):
                if future.done() and is_unwanted(key):
                    del self._futures[key]

    def _evict(self) -> None:
        """Remove the oldest finished values beyond the capacity; the lock is held."""
        if self._capacity is None:
            return
        excess = max(0, len(self._futures) - self._capacity)

        # Stop at the oldest few: a look at all values would make every new one cost more.
        finished = (key for key, future in self._futures.items() if future.done())
        for key in list(islice(finished, excess)):
            del self._futures[key]
