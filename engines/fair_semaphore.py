"""A semaphore that serves its callers in turn."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

from .call_context import call_context, current_context
from .endpoint.loop import arun, check_deadline, run

IN_FLIGHT = 128
"""Calls that one endpoint is asked at the same time, unless said otherwise."""


def _everything() -> float:
    return 1.0


class FairSemaphore:
    """Let a limited number of calls run at the same time, and serve callers in turn.

    A caller with a hundred calls does not hold up one with a single call. Who a call is for says
    `CallContext.caller`; the first part of that tuple is its tenant.

        slots = FairSemaphore(2)
        with call_context(caller=("acme", "ada")), slots.slot():
            ...                                  # at most two blocks run at the same time

    This is how a call gets its slot:

    1. The call joins the end of its caller's queue, even if a slot is free. Callers with a queue
       stand in a row, in the order in which they came.
    2. While a slot is free, the next caller is chosen: the first in the row whose tenant holds the
       fewest slots. If even that tenant holds its share, nobody gets the slot, because every other
       tenant in the row holds as many or more.
    3. The first call in the chosen caller's queue gets the slot. If the caller has further calls,
       it goes to the end of the row: the others of its tenant are served before its second call.
    4. When a call ends, its slot is free, and step 2 follows at once. A call that stops waiting at
       its deadline leaves its queue.

    No newcomer overtakes, because steps 1 to 3 happen under one lock: a slot that is given back
    goes to a call that waits, before any new call can see it.

    Example: there is one slot, it is taken, and calls of a, a, a and b come in this order. When it
    becomes free, the order is a, b, a, a.

    Args:
        slots: How many calls run at the same time.
        share: Returns the part of the slots that one tenant may hold at the moment, from 0 to 1.
            A tenant may always hold one.
    """

    def __init__(self, slots: int = IN_FLIGHT, share: Callable[[], float] = _everything) -> None:
        self.free = slots
        """Slots that nobody holds."""
        self._slots = slots
        self._share = share
        self._lock = threading.Lock()
        self._held_by_tenant = Counter[Hashable]()
        # The row of callers, each with the queue of its calls. A turn is done once it has a slot.
        self._waiting: OrderedDict[Hashable, deque[Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        with self._lock:
            return sum(len(queue) for queue in self._waiting.values())

    @contextmanager
    def slot(self) -> Generator[None]:
        """Hold a slot for the block; wait for it no longer than the deadline of the call context.

        Raises:
            AbandonedCallError: The deadline passed.
        """
        caller = current_context().caller
        turn = self._join_queue(caller)
        try:
            if not turn.done():
                wait_within_deadline(turn)
            yield
        finally:
            self._leave(caller, turn)

    @asynccontextmanager
    async def aslot(self) -> AsyncGenerator[None]:
        """Hold a slot as `slot` does; the event loop goes on while it is waited for."""
        caller = current_context().caller
        turn = self._join_queue(caller)
        try:
            if not turn.done():
                await arun(_await_shared(turn))
            yield
        finally:
            self._leave(caller, turn)

    def _join_queue(self, caller: Hashable) -> Future[None]:
        """Return the turn of a new call, which is done when the call has a slot."""
        turn: Future[None] = Future()
        with self._lock:
            queue = self._waiting.setdefault(caller, deque())
            queue.append(turn)
            self._hand_out_slots()
        return turn

    def _leave(self, caller: Hashable, turn: Future[None]) -> None:
        """Give the slot of a turn back, or take the turn out of the queue if it has no slot yet."""
        with self._lock:
            has_slot = turn.done() and not turn.cancelled()
            if has_slot:
                self.free += 1
                self._held_by_tenant[_tenant_of(caller)] -= 1
                self._hand_out_slots()
            else:
                queue = self._waiting[caller]
                queue.remove(turn)
                if not queue:
                    del self._waiting[caller]

    def _hand_out_slots(self) -> None:
        """Give free slots to the calls whose turn it is; whoever calls this holds the lock."""
        while self.free and self._waiting:
            # Of callers whose tenants hold equally few slots, `min` takes the first in the row.
            caller = min(self._waiting, key=self._slots_of_tenant)
            if self._slots_of_tenant(caller) >= self._most_slots_of_a_tenant():
                # All others hold at least as many, so nobody may have the slot now.
                return

            self.free -= 1
            self._held_by_tenant[_tenant_of(caller)] += 1
            # This wakes the call, which waits for the future of its turn.
            self._next_turn(caller).set_result(None)

    def _next_turn(self, caller: Hashable) -> Future[None]:
        """Take the first turn of a caller's queue; put the rest of it at the end of the row."""
        queue = self._waiting.pop(caller)
        turn = queue.popleft()
        if queue:
            self._waiting[caller] = queue
        return turn

    def _slots_of_tenant(self, caller: Hashable) -> int:
        return self._held_by_tenant[_tenant_of(caller)]

    def _most_slots_of_a_tenant(self) -> int:
        return max(1, int(self._slots * self._share()))


def _tenant_of(caller: Hashable) -> Hashable:
    return caller[0] if isinstance(caller, tuple) else caller


def wait_within_deadline(future: Future[None]) -> None:
    """Wait for a future that another call completes, no longer than the current deadline.

    Raises:
        AbandonedCallError: The deadline of the call context passed.
    """
    run(_await_shared(future))


async def _await_shared(future: Future[None]) -> None:
    # Shielded: whoever stops waiting must not cancel a slot that is just handed out, nor a change
    # that other calls wait for, too.
    await asyncio.shield(asyncio.wrap_future(future))


@contextmanager
def compute_slot() -> Generator[None]:
    """Hold one of the call context's slots while the block embeds or reranks.

    A `compute_slot` inside the block does not wait for a second slot. If the context has no slots,
    the block runs at once.

    Raises:
        AbandonedCallError: The deadline of the call context has passed.
    """
    check_deadline()
    slots = current_context().slots
    if slots is None:
        yield
        return

    # Without slots in its own context, nothing in the block waits for one.
    with slots.slot(), call_context(slots=None):
        yield
