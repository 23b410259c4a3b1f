"""Single flight: many threads ask for one thing, one of them makes it.

32 threads may ask about one conversation at once; its memory must be written once. The others wait and share its value
or its failure. A failure is not kept: the next caller retries.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from itertools import islice
from typing import Any


class Flight:
    """A thread-safe map whose values are each computed once.

    Args:
        capacity: How many finished values are kept, least recently used first to go; None keeps all.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
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

    def __deepcopy__(self, memo: object = None) -> Flight:
        return self
