"""Measure how long a piece of work takes, by the clock on the wall and in CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Times(NamedTuple):
    """What a piece of work took, in seconds."""

    wall: float
    cpu: float
    """CPU time of all threads of this process."""


def measure_times(work: Callable[[], object]) -> Times:
    """Do a piece of work once, and return what it took."""
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    work()
    wall_end = time.perf_counter()
    cpu_end = time.process_time()
    return Times(wall_end - wall_start, cpu_end - cpu_start)


def cpu_ms(work: Callable[[], object]) -> float:
    """Do a piece of work once, and return its CPU time in milliseconds."""
    return 1000 * measure_times(work).cpu
