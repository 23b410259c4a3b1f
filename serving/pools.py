"""Pools of threads: work that asks a language model in one, work of the store alone in another, tenants side by side.

    request ──> a place ──> waits ──> a thread ──> answer
              503 none left    504, after the time limit
              429 none left for its tenant

A tenant may hold its share of the places and of the threads, so that others are served while it waits. Language models
and the store are called in threads; a call of a model ends when its request does (`endpoint.deadline`), and a place is
free when its work has really ended. The place of a client that has gone away is given up.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from ..engines.endpoint.deadline import Deadline, within
from .refusals import GONE, LATE, OVERLOADED, TENANT_OVERLOADED

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
        self._size, self._places, self._timeout, self._share = threads, threads + queue, timeout, share
        self._threads, self._unlimited = CapacityLimiter(threads), CapacityLimiter(math.inf)
        self._tenants: dict[str, CapacityLimiter] = {}
        self._held: Counter[str] = Counter()

    async def run(
        self,
        call: Callable[[Deadline], T],
        tenant: str,
        receive: Receive | None = None,
        before: Callable[[], object] | None = None,
    ) -> T:
        """Runs a call in a thread.

        Args:
            call: Takes the deadline of its request.
            tenant: Whose work it is.
            receive: Tells when the client goes away.
            before: What the call does first; if it has to wait for its thread, this does not wait with it.

        Raises:
            Refusal: There is no place (503), none for this tenant (429), the time is over (504), the client gone.
        """
        if self.full:
            raise OVERLOADED()
        if self._held[tenant] >= max(1, int(self._places * self._share())):
            raise TENANT_OVERLOADED()
        self._held[tenant] += 1
        deadline, begun = Deadline(self._timeout), asyncio.Event()
        work = asyncio.ensure_future(self._work(call, tenant, deadline, begun, before))
        work.add_done_callback(lambda _: self._held.subtract((tenant,)))
        left = asyncio.ensure_future(_left(receive)) if receive else None
        try:
            watched = {work, left} if left else {work}
            await asyncio.wait(watched, timeout=self._timeout, return_when="FIRST_COMPLETED")
            if work.done():
                return work.result()
            raise GONE() if left is not None and left.done() else LATE()
        finally:
            if left is not None:
                left.cancel()
            if not work.done():
                deadline.cancel()
                work.add_done_callback(lambda work: work.cancelled() or work.exception())
                # A thread cannot be stopped: its place is taken until it has seen the deadline.
                if not begun.is_set():
                    work.cancel()

    async def _work(self, call: Any, tenant: str, deadline: Deadline, begun: asyncio.Event, before: Any) -> Any:
        own = self._tenants.setdefault(tenant, CapacityLimiter(1))
        own.total_tokens = max(1, int(self._size * self._share()))
        if before is not None and min(self._threads.available_tokens, own.available_tokens) < 1:
            await anyio.to_thread.run_sync(before)
        async with own, self._threads:
            begun.set()
            with within(deadline):
                return await anyio.to_thread.run_sync(call, deadline, limiter=self._unlimited)

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return self._held.total()

    @property
    def full(self) -> bool:
        """Whether the next call is refused."""
        return self._held.total() >= self._places


async def _left(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
