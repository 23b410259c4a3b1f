"""A map whose values are computed once, however many callers ask for them at the same time.

One caller computes a value, and the others wait for it, be they threads or tasks of asyncio:

    prompts: SingleFlight[str, Prompt] = SingleFlight(capacity=256)
    prompt = prompts.get_or_compute("extract", lambda: render("extract"))
"""

from __future__ import annotations

import threading
from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from ..async_bridge import is_bridged, result_of
from ..records.shared_by_copies import SharedByCopies

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _ComputationCancelledError(Exception):
    """The caller that computed a value was cancelled, which is no failure of those who wait."""


@dataclass(frozen=True)
class _Flight(Generic[V]):
    """One computation of a value."""

    future: Future[V] = field(default_factory=Future)
    thread: int = field(default_factory=threading.get_ident)
    """The thread of the caller that computes."""

    def has_value(self) -> bool:
        """Return whether the value is there."""
        return self.future.done() and self.future.exception() is None

    def blocks_caller(self) -> bool:
        """Return whether the running code would keep the computation from ending by waiting for it.

        That is so for code that blocks the very event loop whose task computes.
        """
        is_same_thread = self.thread == threading.get_ident()
        return is_same_thread and not is_bridged() and not self.future.done()


class SingleFlight(SharedByCopies, Generic[K, V]):
    """A map from keys to values that the first caller computes; safe under threads and asyncio.

    Callers that ask for a key while its value is computed wait for it. They get the same value, or
    the exception that computing it raised. The map keeps values, but no exceptions: whoever asks
    after a failure computes again.

    There are two exceptions to "computed once". If the caller that computes is cancelled, one of
    those who wait computes in its place. And a caller that blocks the event loop in which the
    computation runs computes the value for itself, since it would wait for ever.

    Args:
        capacity: How many finished values are kept; those used least recently go first. None keeps
            all.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._flights: OrderedDict[K, _Flight[V]] = OrderedDict()

    def get_or_compute(self, key: K, compute: Callable[[], V]) -> V:
        """Return the value of `key`; compute it if nobody else has.

        Raises:
            BaseException: What `compute` raised, in every caller that waited for it. Only if the
                caller that computed was cancelled, one of the others computes instead.
        """
        while True:
            with self._lock:
                flight = self._flights.get(key)
                is_first = flight is None
                if flight is None:
                    flight = _Flight()
                    self._flights[key] = flight
                self._flights.move_to_end(key)

            if is_first:
                return self._compute(key, flight.future, compute)
            if flight.blocks_caller():
                return compute()
            # Where the caller that computed was cancelled, look again.
            with suppress(_ComputationCancelledError):
                return result_of(flight.future)

    def _compute(self, key: K, future: Future[V], compute: Callable[[], V]) -> V:
        """Compute a value, and hand it to all who wait for it."""
        try:
            value = compute()
        except BaseException as error:
            with self._lock:
                self._flights.pop(key, None)
            is_cancelled = isinstance(error, CancelledError)
            future.set_exception(_ComputationCancelledError() if is_cancelled else error)
            raise

        future.set_result(value)
        with self._lock:
            evicted = self._evict()
        # Released without the lock: a finalizer of a value may run now, and may ask this map.
        del evicted
        return value

    def peek(self, key: K) -> V | None:
        """Return the finished value of `key`, or None while there is none; counts as a use."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is None or not flight.has_value():
                return None
            self._flights.move_to_end(key)
        return flight.future.result()

    def drop(self, is_unwanted: Callable[[K], bool]) -> None:
        """Remove every finished value whose key is unwanted."""
        dropped: list[_Flight[V]] = []
        with self._lock:
            for key, flight in list(self._flights.items()):
                if flight.future.done() and is_unwanted(key):
                    dropped.append(self._flights.pop(key))
        # The values are released here, without the lock.

    def _evict(self) -> list[_Flight[V]]:
        """Remove and return the oldest finished values beyond the capacity; the lock is held."""
        if self._capacity is None:
            return []
        excess = max(0, len(self._flights) - self._capacity)

        # Stop at the oldest few: a look at all values would make every new one cost more.
        finished = (key for key, flight in self._flights.items() if flight.future.done())
        oldest_keys = list(islice(finished, excess))
        return [self._flights.pop(key) for key in oldest_keys]
