"""Background writers: put queued sessions into memories, many users at the same time.

Any number of processes may do this over one store: it gives each user to one writer at a time. Each
user is written in a thread of its own, so a slow one holds up no other; calls of the language model
are limited where they are made. The threads are daemons: a language model that does not return must
not keep a service from ending.
"""

from __future__ import annotations

import contextvars
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial

from ...errors import StoreError, TenantBudgetError
from ...memory.store.owner import Owner
from ...memory.store.records import Claim
from ...memory.tenant_lock import CURRENT_TENANT
from ..memories.memories import Memories
from ..memories.queue_writer import WriteCounts, write_claimed
from ..settings import AT_ONCE, LEASE
from .breaker import CALLER

MAX_CLAIMS_AT_ONCE = 8
"""The most users that one query claims, so that other processes get some, too."""
POLL_INTERVAL = 1.0
"""Seconds between two looks for further users, while some are written."""
LONGEST_PAUSE = 30.0
"""The most seconds between two attempts, while the store, the language model or a user fails."""
LONGEST_BUDGET_PAUSE = 300.0
"""The most seconds between two attempts for a user whose tenant is over its budget."""


def write_all_queued(
    memories: Memories, lease: float = LEASE, stop: Callable[[], bool] = lambda: False
) -> WriteCounts:
    """Write queued items until no unclaimed one is left, those of many users at the same time.

    Users whose memory another program wrote are passed over.

    Args:
        memories: What writes.
        lease: Seconds after which another worker may take over if this one dies; at most
            `MAX_LEASE`.
        stop: Checked before every item; if True, the rest stays queued.

    Raises:
        StoreError: The store failed; everything before the last commit is there.
        LMError: The endpoint failed for a user; what is not written yet, of any user, stays queued.
    """
    counts = WriteCounts()
    # Set at the end, also by a failure: the other writers then stop before their next item.
    is_over = threading.Event()
    writers = Writers(memories, lease, lambda: is_over.is_set() or stop())
    try:
        while True:
            has_started = writers.start_claimed()
            if not has_started and not writers.running:
                break
            for future in writers.take_ended(POLL_INTERVAL):
                # Raises what the writer of this user raised.
                counts += future.result()
    finally:
        is_over.set()
        wait(writers.running)
    return counts


class Writers:
    """Writes all users who have queued items, each in a thread of its own.

    One thread calls the methods.

    Args:
        memories: What writes.
        lease: As of `write_all_queued`.
        stop: Whether to begin no further user, and no further item.
        limit: The most users at the same time.
        notify: Called by each thread when its user is written.
        tenant_share: Returns the part of `limit` that one tenant may have at the moment.
        pauses: Whether a user who cannot be written is left alone for a while, longer each time.
    """

    def __init__(
        self,
        memories: Memories,
        lease: float = LEASE,
        stop: Callable[[], bool] = lambda: False,
        limit: int = AT_ONCE,
        notify: Callable[[], None] = lambda: None,
        tenant_share: Callable[[], float] = lambda: 1.0,
        pauses: bool = False,
    ) -> None:
        self._memories = memories
        self._lease = lease
        self._stop = stop
        self._limit = limit
        self._notify = notify
        self._tenant_share = tenant_share
        self._pauses_failed_users = pauses
        self.failures = memories.failures
        """How often users could not be written, since they last were."""
        self.running: set[Future[WriteCounts]] = set()
        """A future for each user who is being written, or whom `take_ended` has not returned."""

    def start_claimed(self) -> bool:
        """Claim users who have queued items, as many as there is room for, and start their writers.

        Return whether any user was claimed.
        """
        has_started = False
        limit_per_tenant = max(1, int(self._limit * self._tenant_share()))
        while not self._stop():
            room = self._limit - len(self.running)
            if room <= 0:
                break
            claims = self._memories.store.queue.claim(
                uuid.uuid4().hex,
                self._lease,
                self._memories.writer_fingerprint,
                limit=min(room, MAX_CLAIMS_AT_ONCE),
                limit_per_tenant=limit_per_tenant,
            )
            if not claims:
                break
            has_started = True
            for claim in claims:
                self._start(claim)
        return has_started

    def take_ended(self, timeout: float | None = None) -> list[Future[WriteCounts]]:
        """Take the writers that have ended out of `running`, and return their futures.

        A future has what was written for one user, or the error of its writer.

        Args:
            timeout: The most seconds to wait for the first one; None for no limit.
        """
        ended, still_running = wait(self.running, timeout, FIRST_COMPLETED)
        self.running = still_running
        return list(ended)

    def _start(self, claim: Claim) -> None:
        """Write a claimed user in a new thread."""
        future: Future[WriteCounts] = Future()
        self.running.add(future)
        run = partial(contextvars.copy_context().run, self._write, claim, future)
        threading.Thread(target=run, name="mempiler-writer", daemon=True).start()

    def _write(self, claim: Claim, future: Future[WriteCounts]) -> None:
        """Write a claimed user, and put what was written, or the error, into the future.

        At the end the owner of this object is notified, so that it can take the future.
        """
        CALLER.set(claim.owner)
        CURRENT_TENANT.set(claim.owner.tenant)
        try:
            counts = write_claimed(self._memories, claim, self._lease, self._stop).counts
            self.failures.reset(claim.owner)
            future.set_result(counts)
        except BaseException as error:
            # Everything is caught, even an exit: nobody would see it in this thread, and a future
            # without a result would count as running for ever.
            if self._pauses_failed_users:
                pause = self._pause_after(claim.owner, error)
                # If the store fails too, the user is just tried again earlier.
                with suppress(StoreError):
                    self._memories.store.queue.pause(claim.owner, pause)
            future.set_exception(error)
        self._notify()

    def _pause_after(self, owner: Owner, error: BaseException) -> float:
        """Return for how many seconds a user who could not be written is left alone."""
        if isinstance(error, TenantBudgetError):
            # Not until the next day: the operator may raise the budget before.
            return min(LONGEST_BUDGET_PAUSE, error.retry_after)
        failures = self.failures.add(owner)
        return min(LONGEST_PAUSE, 2.0 ** (failures - 1))
