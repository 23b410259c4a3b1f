"""What calls for asyncio do in threads, under the caller's settings: read a store, search, write a memory.

No thread waits for the answer to a question, so there are few however many questions wait. What a method asks a model
while it recalls or writes is asked from one of these threads, and so is a model without asynchronous calls.
"""

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
