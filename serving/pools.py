"""Pools of threads: work that asks a language model in one, work of the store alone in another, tenants side by side.

    request ──> a place ──> waits ──> a thread ──> answer
              503 none left    504, after the time limit
              429 none left for its tenant

A tenant may hold its share of the places and of the threads, so that others are served while it waits. Language models
and the store are called in threads; a call of a model ends when its request does (`engines.deadline`), and a place is
free when its work has really ended. The place of a client that has gone away is given up.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ..engines.deadline import Deadline, within
from .refusals import GONE, LATE, OVERLOADED, TENANT_OVERLOADED

SOON = 0.05
"""Seconds of a call before the client is watched: most have ended by then."""

T = TypeVar("T")
Receive = Callable[[], Awaitable[Any]]


class Pool:
    """A bounded number of threads with a bounded queue.

    Args:
        threads: Calls that run at the same time.
        queue: Calls that wait for a thread.
        timeout: Seconds for each, the wait included.
        share: The part of places and threads that one tenant may hold at the moment.
    """

    def __init__(self, threads: int, queue: int, timeout: float, share: Callable[[], float] = lambda: 1.0) -> None:
        self._threads, self._places, self._timeout, self._share = threads, threads + queue, timeout, share
        self._waiting: list[_Job] = []
        self._held: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="mempiler-request")

    async def run(self, call: Callable[[Deadline], T], tenant: str, receive: Receive | None = None) -> T:
        """Runs a call in a thread.

        Args:
            call: Takes the deadline of its request.
            tenant: Whose work it is.
            receive: Tells when the client goes away.

        Raises:
            Refusal: There is no place (503), none for this tenant (429), the time is over (504), the client gone.
        """
        job = _Job(call, tenant, self._timeout)
        self._enter(job)
        waiting, left = asyncio.wrap_future(job.future), None
        try:
            await asyncio.wait({waiting}, timeout=min(SOON, self._timeout))
            if receive and not waiting.done():
                left = asyncio.ensure_future(_left(receive))
            if not waiting.done():
                both = {waiting, *([left] if left else [])}
                await asyncio.wait(both, timeout=max(0.0, self._timeout - SOON), return_when="FIRST_COMPLETED")
            if waiting.done():
                return waiting.result()
            raise GONE() if left is not None and left.done() else LATE()
        finally:
            if left is not None:
                left.cancel()
            if not waiting.done():
                job.deadline.cancel()
                waiting.cancel()
                self._drop(job)

    def waits(self, tenant: str) -> bool:
        """Whether the next call of a tenant has to wait for a thread."""
        with self._lock:
            return self._running.total() >= self._threads or self._running[tenant] >= self._most

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return self._held.total()

    @property
    def _most(self) -> int:
        """Threads that one tenant may have."""
        return max(1, int(self._threads * self._share()))

    @property
    def full(self) -> bool:
        """Whether the next call is refused."""
        return self.busy >= self._places

    def close(self) -> None:
        """Takes no further calls, and drops those that have no thread yet."""
        with self._lock:
            self._places = 0
            dropped, self._waiting = self._waiting, []
            self._held.subtract(job.tenant for job in dropped)
        for job in dropped:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(OVERLOADED())
        self._pool.shutdown(wait=False)

    def _enter(self, job: _Job) -> None:
        with self._lock:
            if self.full:
                raise OVERLOADED()
            if self._held[job.tenant] >= max(1, int(self._places * self._share())):
                raise TENANT_OVERLOADED()
            self._held[job.tenant] += 1
            self._waiting.append(job)
            self._begin()

    def _begin(self) -> None:
        """Gives free threads to who waits longest, of those whose tenant may have one more."""
        most = self._most
        while self._running.total() < self._threads:
            job = next((job for job in self._waiting if self._running[job.tenant] < most), None)
            if job is None:
                return
            self._waiting.remove(job)
            self._running[job.tenant] += 1
            self._pool.submit(self._work, job)

    def _work(self, job: _Job) -> None:
        tell = job.work()
        with self._lock:
            self._running[job.tenant] -= 1
            self._held[job.tenant] -= 1
            if self._places:
                self._begin()
        # Last: who has its answer finds the place free.
        tell()

    def _drop(self, job: _Job) -> None:
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                self._held[job.tenant] -= 1


class _Job:
    def __init__(self, call: Callable[[Deadline], Any], tenant: str, timeout: float) -> None:
        self.tenant, self.deadline = tenant, Deadline(timeout)
        self.future: Future[Any] = Future()
        self._call, self._context = call, contextvars.copy_context()

    def work(self) -> Callable[[], None]:
        """Does the work; returns what tells who waits how it ended."""
        if self.deadline.passed or not self.future.set_running_or_notify_cancel():
            return lambda: None
        try:
            found = self._context.run(self._called)
        except BaseException as error:
            return partial(self.future.set_exception, error)
        return partial(self.future.set_result, found)

    def _called(self) -> Any:
        with within(self.deadline):
            return self._call(self.deadline)


async def _left(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
