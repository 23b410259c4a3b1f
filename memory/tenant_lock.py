"""A lock that tenants hold in turns: one whose threads queue for it holds up another by one of them at most.

A service has one for writes to an SQLite file, and one for long work on text.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

TENANT: ContextVar[str] = ContextVar("tenant", default="")
"""The tenant for whom the running work is done; "" outside of a service."""


class TenantLock:
    """A lock for threads; `held` is its only way in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_held = False
        self._waiting: OrderedDict[str, deque[threading.Event]] = OrderedDict()
        """Those that wait, by tenant; the tenant whose turn comes next is the first."""

    @property
    def waiting(self) -> int:
        """How many threads wait for the lock."""
        with self._lock:
            return sum(len(turns) for turns in self._waiting.values())

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock in the block, for the tenant of the running work."""
        self._acquire(TENANT.get())
        try:
            yield
        finally:
            self._release()

    def _acquire(self, tenant: str) -> None:
        with self._lock:
            if not self._is_held:
                self._is_held = True
                return
            turn = threading.Event()
            self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            # The lock is handed over as it is held, so that no newcomer takes it.
            turn.wait()
        except BaseException:
            self._leave_queue(tenant, turn)
            raise

    def _release(self) -> None:
        with self._lock:
            if not self._waiting:
                self._is_held = False
                return
            tenant, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[tenant] = turns
        turn.set()

    def _leave_queue(self, tenant: str, turn: threading.Event) -> None:
        """Give up a place in the queue, or the lock where it was handed over meanwhile."""
        with self._lock:
            turns = self._waiting.get(tenant, deque())
            is_waiting = turn in turns
            if is_waiting:
                turns.remove(turn)
                if not turns:
                    del self._waiting[tenant]
        if not is_waiting:
            self._release()
