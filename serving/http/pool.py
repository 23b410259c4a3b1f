"""A bounded number of requests in progress, with fair shares of tenants.

A request holds a *place* from its arrival to its end. While it is worked on it also holds a *slot*;
there are fewer slots than places, and requests without one wait for it. A tenant may hold its share
of both, so a tenant with many requests does not keep out the others.

    pool = Pool(slots=32, queue=512, timeout=60.0)

    async def answer(deadline: Deadline) -> dspy.Prediction:
        return await memory.aask("Where does Ada live?")

    prediction = await pool.run(answer, tenant="acme", receive=request.receive)

The work is a coroutine of the event loop that serves all requests. So it must not compute or block
for long: that is done in threads (`async_bridge.in_thread`). A wait for a model needs no thread.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from ...async_bridge import MAX_THREADS, limit_threads
from ...engines.call_context import Deadline, call_context
from ...memory.tenant_lock import CURRENT_TENANT
from ...records.context_variables import set_context
from .errors import GONE, LATE, OVERLOADED, TENANT_OVERLOADED

T = TypeVar("T")

Receive = Callable[[], Awaitable[Any]]
"""Returns the next message of a client, as in ASGI; after the body, the one that it has left."""

Share = Callable[[], float]
"""Returns the part that one tenant may hold at the moment, from 0 to 1."""


def _everything() -> float:
    return 1.0


class Pool:
    """Run the work of requests, a bounded number at the same time.

    When the time of a request is over or its client has gone, its deadline is cancelled, which ends
    every wait for a model. A thread cannot be stopped, so the work may go on for a while. It holds
    its slot and its place until it has really ended.

    Args:
        slots: Requests that are worked on at the same time.
        queue: Requests that wait for a slot.
        timeout: Seconds for a request, including the wait for its slot.
        share: The part of slots and places that one tenant may hold; always at least one.
    """

    def __init__(self, slots: int, queue: int, timeout: float, share: Share = _everything) -> None:
        self.places = slots + queue
        """Requests in progress at the same time."""
        self.held = Counter[str]()
        """Places that are taken, by tenant."""
        self._timeout = timeout
        self._share = share
        self._slots = CapacityLimiter(slots)
        self._tenant_slots = _TenantLimiters(slots, share)
        # One tenant's work must not take up all threads of `in_thread`. Its slots alone do not rule
        # that out: there may be more slots than threads, because most work only waits for a model.
        self._tenant_threads = _TenantLimiters(MAX_THREADS, share)
        # For threads of `run_call`, which the slots limit already.
        self._unlimited = CapacityLimiter(math.inf)
        self._tasks = set[asyncio.Task[Any]]()
        """The work that has not ended, also that for which nobody waits any more.

        The event loop has weak references to tasks only, so an abandoned one could be collected
        before it ends.
        """

    @property
    def is_full(self) -> bool:
        """Whether every place is taken."""
        return self.held.total() >= self.places

    @property
    def running(self) -> int:
        """How many requests are worked on."""
        return int(self._slots.borrowed_tokens)

    async def wait_until_work_ends(self, timeout: float) -> None:
        """Wait until all work has really ended, also work that nobody waits for any more.

        Args:
            timeout: The most seconds to wait.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    @contextmanager
    def place(self, tenant: str) -> Generator[None]:
        """Hold a place for the block.

        Raises:
            HTTPException: No place is free (503), or the tenant holds its share (429).
        """
        if self.is_full:
            raise OVERLOADED()
        if self.held[tenant] >= max(1, int(self.places * self._share())):
            raise TENANT_OVERLOADED()

        self.held[tenant] += 1
        try:
            yield
        finally:
            self.held[tenant] -= 1

    async def run(
        self,
        work: Callable[[Deadline], Awaitable[T]],
        tenant: str,
        receive: Receive,
        before_wait: Callable[[], object] | None = None,
    ) -> T:
        """Do the work of a request and return its result.

        Args:
            work: Takes the deadline of the request, and is awaited in this event loop.
            tenant: The tenant whose slot the work takes.
            receive: Tells when the client leaves.
            before_wait: Called in a thread before the request waits for a slot, so that it sees the
                store as it is when the request comes. It is called twice if the request waits
                twice, for a slot of its tenant and for one of all, and not at all if it never
                waits: then the work begins at once.

        Raises:
            HTTPException: No place is free (503), the tenant holds its share of places (429), the
                time is over (504), or the client has left (499).
        """
        deadline = Deadline(self._timeout)
        has_begun = asyncio.Event()
        task = asyncio.create_task(
            self._run_in_slot(work, tenant, deadline, has_begun, before_wait)
        )
        self._tasks.add(task)
        task.add_done_callback(self._discard)
        client_left = asyncio.create_task(_wait_until_client_leaves(receive))
        try:
            await asyncio.wait(
                {task, client_left}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done():
                return task.result()
            if client_left.done():
                raise GONE()
            raise LATE()
        finally:
            # Also reached if this coroutine is cancelled, as at the end of a stream.
            client_left.cancel()
            if not task.done():
                # This ends every wait for a model in work that has begun.
                deadline.cancel()
                # A task that still waits for its slot is cancelled, but not work that has begun. If
                # that waits for a thread, it would end at once, and give its slot back while the
                # thread goes on. So the slot would be used twice.
                if not has_begun.is_set():
                    task.cancel()

    async def run_call(
        self,
        call: Callable[[], T],
        tenant: str,
        receive: Receive,
        before_wait: Callable[[], object] | None = None,
    ) -> T:
        """Make a call in a thread and return its result; arguments and errors are those of `run`.

        The thread is none of those of `in_thread`: the call does not wait until work on models
        leaves one free.
        """

        async def work(_: Deadline) -> T:
            # No limit is needed here, since only work that has a slot makes its call.
            return await anyio.to_thread.run_sync(call, limiter=self._unlimited)

        return await self.run(work, tenant, receive, before_wait)

    async def _run_in_slot(
        self,
        work: Callable[[Deadline], Awaitable[T]],
        tenant: str,
        deadline: Deadline,
        has_begun: asyncio.Event,
        before_wait: Callable[[], object] | None,
    ) -> T:
        """Wait for a slot and do the work of a request; hold a place all the time.

        `run` makes a task of this, which gives slot and place back when the work has really ended.
        That may be long after `run` has answered that the time is over.

        Args:
            work: See `run`, as for the other arguments that are not explained here.
            tenant: The tenant of the request.
            deadline: The deadline of the request.
            has_begun: Is set when the work begins.
            before_wait: See `run`.
        """
        with self.place(tenant), set_context(CURRENT_TENANT, tenant):
            # The tenant's slot comes first: who waits for it must not hold one of all tenants.
            tenant_slots = self._tenant_slots.of(tenant)
            await _call_if_full(tenant_slots, before_wait)
            async with tenant_slots:
                await _call_if_full(self._slots, before_wait)
                async with self._slots:
                    has_begun.set()
                    with (
                        call_context(deadline=deadline),
                        limit_threads(self._tenant_threads.of(tenant)),
                    ):
                        return await work(deadline)

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Otherwise asyncio would log that nobody looked at the error.
            task.exception()


class _TenantLimiters:
    """A limiter for every tenant, which lets it hold its share of a number of slots.

    Args:
        slots: What all tenants share.
        share: The part that one tenant may hold; always at least one slot.
    """

    def __init__(self, slots: int, share: Share) -> None:
        self._slots = slots
        self._share = share
        self._limiters: dict[str, CapacityLimiter] = {}

    def of(self, tenant: str) -> CapacityLimiter:
        """Return the limiter of a tenant, with as many slots as its share has now."""
        limiter = self._limiters.setdefault(tenant, CapacityLimiter(1))
        limiter.total_tokens = max(1, int(self._slots * self._share()))
        return limiter


async def _call_if_full(limiter: CapacityLimiter, before_wait: Callable[[], object] | None) -> None:
    """Call `before_wait` in a thread if whoever enters the limiter next has to wait.

    Between this and the entry nothing may be awaited: others could enter meanwhile.
    """
    if before_wait is not None and limiter.available_tokens < 1:
        await anyio.to_thread.run_sync(before_wait)


async def _wait_until_client_leaves(receive: Receive) -> None:
    message = await receive()
    while message["type"] != "http.disconnect":
        message = await receive()
