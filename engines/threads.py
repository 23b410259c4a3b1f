"""Threads for what asyncio calls that blocks: reading a store, searching, writing a memory, a model without asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREADS = 64
"""Most of a process; asyncio's own pool has six on two cores."""


async def in_thread(call: Callable[[], T]) -> T:
    """Runs a call in a thread, under the settings of the caller's `dspy.context`."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_pool(), lambda: context.run(call))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="mempiler-memory")
