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
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from ..async_bridge import is_bridged, result_of, without_stop_iteration
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
        """Return whether the computation has ended, and without an exception."""
        return self.future.done() and self.future.exception() is None

    def would_deadlock(self) -> bool:
        """Return whether the computation could never end if the running code waited for it.

        That is so if both run in one thread: the computation as a task of the thread's event loop,
        and the running code as a plain call that blocks the loop. Bridged code does not block it.
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
        """Return the value of a key, which is computed if the map does not have it.

        If another caller computes it at the moment, wait for that value. If the wait would block
        the event loop in which the value is computed, compute it here a second time instead.

        Args:
            key: The key.
            compute: Returns the value.

        Raises:
            BaseException: What `compute` raised. All callers that wait for the value get it too.
        """
        while True:
            new_flight: _Flight[V] = _Flight()
            with self._lock:
                # The flight that the map already has for the key; or else the new one, which is
                # put into the map.
                flight = self._flights.setdefault(key, new_flight)
                # Values are evicted from the front, so those used last stand at the end.
                self._flights.move_to_end(key)

            is_first_caller = flight is new_flight
            if is_first_caller:
                return self._compute(key, flight.future, compute)
            if flight.would_deadlock():
                return compute()

            try:
                return result_of(flight.future)
            except _ComputationCancelledError:
                # The caller that computed was cancelled, which took the key out of the map. Look
                # again: this caller may be the first now.
                continue

    def _compute(self, key: K, future: Future[V], compute: Callable[[], V]) -> V:
        """Compute a value for this caller, and pass it to others who wait, through the future.

        If this fails, all of them get the exception. The key is removed from the map, so the next
        caller computes again.
        """
        try:
            # This makes a RuntimeError of a StopIteration, which a future cannot pass on.
            value = without_stop_iteration(compute)
        except BaseException as error:
            with self._lock:
                self._flights.pop(key, None)
            # The callers who wait read the future; this caller gets the error from `raise`. If
            # this caller was cancelled, those who wait were not: one of them computes instead.
            if isinstance(error, CancelledError):
                future.set_exception(_ComputationCancelledError())
            else:
                future.set_exception(error)
            raise

        future.set_result(value)
        # The map has one more finished value now, so the least recently used may have to go.
        with self._lock:
            evicted = self._evict()
        # Python may destroy the evicted values here. The lock is free now, so code that runs when
        # a value is destroyed (`__del__`) can use this map.
        del evicted
        return value

    def peek(self, key: K) -> V | None:
        """Return the value of a key if it is there, else None; do not wait for it.

        This counts as a use of the value, which keeps it longer.
        """
        with self._lock:
            flight = self._flights.get(key)
            if flight is None or not flight.has_value():
                return None
            self._flights.move_to_end(key)
        return flight.future.result()

    def drop(self, is_unwanted: Callable[[K], bool]) -> None:
        """Remove the values of all keys for which `is_unwanted` returns True.

        Values that are still being computed stay.
        """
        # The list keeps the values alive until the lock is free: their finalizers may ask this map.
        dropped: list[_Flight[V]] = []
        with self._lock:
            for key, flight in list(self._flights.items()):
                if flight.future.done() and is_unwanted(key):
                    dropped.append(self._flights.pop(key))

    def _evict(self) -> list[_Flight[V]]:
        """Remove the values beyond the capacity, those used least recently, and return them.

        Values that are still being computed stay. The caller holds the lock.
        """
        if self._capacity is None:
            return []
        excess = max(0, len(self._flights) - self._capacity)

        # A generator, of which only the first few are read: a look at all values of a large map
        # would make every new value cost more.
        finished = (key for key, flight in self._flights.items() if flight.future.done())
        oldest_keys = list(islice(finished, excess))
        return [self._flights.pop(key) for key in oldest_keys]
