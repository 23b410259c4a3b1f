"""A lock that lets tenants in one after the other, however many threads of each wait for it.

With a plain lock, a tenant with a hundred waiting threads would hold up another one a hundred
times. Here the other one waits for one of these threads at most. A service has one such lock for
writes to an SQLite file, and one for long work on texts (`text_slots`).

Example:
    >>> from mempiler.memory.tenant_lock import TenantLock
    >>> lock = TenantLock()
    >>> with lock.hold():
    ...     print("no other thread is in here")
    no other thread is in here
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

CURRENT_TENANT: ContextVar[str] = ContextVar("current_tenant", default="")
"""The tenant for whom the running work is done; "" outside of a service."""


class TenantLock:
    """A lock for threads; `hold` is the only way in."""

    def __init__(self) -> None:
        self._state_lock = threading.Lock()
        """Guards the two attributes below; nobody holds it for long."""
        self._is_held = False
        self._queues: OrderedDict[str, deque[threading.Event]] = OrderedDict()
        """The threads that wait, by tenant: each has an event, which is set when the lock is handed
        to it. The first tenant is the next one that gets the lock; no queue is empty."""

    @property
    def waiting(self) -> int:
        """How many threads wait for the lock."""
        with self._state_lock:
            return sum(len(queue) for queue in self._queues.values())

    @contextmanager
    def hold(self) -> Generator[None]:
        """Wait for the lock and hold it in the `with` block, for the tenant of the running work."""
        self._acquire(CURRENT_TENANT.get())
        try:
            yield
        finally:
            self._release()

    def _acquire(self, tenant: str) -> None:
        """Take the lock if it is free; otherwise wait in the queue of the tenant."""
        with self._state_lock:
            if not self._is_held:
                self._is_held = True
                return

            handover = threading.Event()
            self._queues.setdefault(tenant, deque()).append(handover)

        try:
            # Whoever has the lock hands it over without freeing it, so no newcomer gets in between.
            handover.wait()
        except BaseException:
            self._stop_waiting(tenant, handover)
            raise

    def _release(self) -> None:
        """Hand the lock to the thread of the next tenant that has waited longest.

        If no thread waits, the lock is free.
        """
        with self._state_lock:
            if not self._queues:
                self._is_held = False
                return

            tenant, queue = self._queues.popitem(last=False)
            handover = queue.popleft()
            if queue:
                # The tenant goes to the end of the line: before its next thread, every other tenant
                # gets the lock once.
                self._queues[tenant] = queue
        handover.set()

    def _stop_waiting(self, tenant: str, handover: threading.Event) -> None:
        """Stop waiting for the lock after an interruption such as Ctrl-C.

        If the lock was handed to this thread in the same moment, it is passed on.
        """
        with self._state_lock:
            queue = self._queues.get(tenant, deque())
            is_in_queue = handover in queue
            if is_in_queue:
                queue.remove(handover)
                if not queue:
                    del self._queues[tenant]

        if not is_in_queue:
            self._release()
