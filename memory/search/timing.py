"""Measure how long the searches of a recall take, without what a method does beside them.

Example:
    >>> from mempiler.memory.search.timing import SEARCH_TIMES, timed_search
    >>> from mempiler.records.context_variables import set_context
    >>> search_times = []
    >>> with set_context(SEARCH_TIMES, search_times):
    ...     with timed_search():
    ...         total = sum(range(1000))
    >>> len(search_times)
    1
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class SearchTime(NamedTuple):
    """What one part of a search took, in seconds."""

    wall: float
    cpu: float
    """CPU time of the thread that searched."""


SEARCH_TIMES: ContextVar[list[SearchTime] | None] = ContextVar("search_times", default=None)
"""The list to which `timed_search` adds; None where nobody measures."""


@contextmanager
def timed_search() -> Generator[None]:
    """Measure the time of the block, and add it to the list in `SEARCH_TIMES`, if there is one.

    A block that raises an error is not counted.
    """
    search_times = SEARCH_TIMES.get()
    # Reading the clock of a thread is slow on some machines, so it is left out where nobody asks.
    if search_times is None:
        yield
        return

    wall_start = time.perf_counter()
    cpu_start = time.thread_time()

    yield

    wall = time.perf_counter() - wall_start
    cpu = time.thread_time() - cpu_start
    search_times.append(SearchTime(wall, cpu))
