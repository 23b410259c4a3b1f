"""Background writers: put queued sessions into memories, many users at the same time.

Any number of processes may do this over one store: it gives each user to one writer at a time. Each
user is written in a thread of its own, so a slow one holds up no other; calls of the language model
are limited where they are made. The threads are daemons: a language model that does not return must
not keep a service from ending.
"""

from __future__ import annotations

import contextvars
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial

from dspy.utils.exceptions import LMError

from ...errors import DamagedRowError, MempilerError, StoreError, TenantBudgetError
from ...memory.store.owner import Owner
from ...memory.store.records import Claim, IdleSession
from ...memory.tenant_lock import CURRENT_TENANT
from ..http.errors import failure, log
from ..memories.memories import Memories
from ..memories.writing import WriteCounts, write_claimed
from ..settings import AT_ONCE, LEASE
from .breaker import CALLER, breakers_of

CLAIMED = 8
"""The most users that are claimed at once, so that other processes get some, too."""
POLL_INTERVAL = 1.0
"""Seconds between two looks for further users, while some are written."""
WATCH = 2.0
"""Seconds between two looks for users whom another process forgot."""
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
    is_over = threading.Event()
    writers = Writers(memories, lease, lambda: is_over.is_set() or stop())
    try:
        while writers.claim() or writers.running:
            for future in writers.take_ended(POLL_INTERVAL):
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
        self._pauses = pauses
        self.failures = memories.failures
        """How often users could not be written, since they last were."""
        self.running: set[Future[WriteCounts]] = set()
        """A future for each user who is being written, or whom `take_ended` has not returned."""

    def claim(self) -> bool:
        """Claim users while there is room and begin to write them; return whether there was one."""
        has_claimed = False
        limit_per_tenant = max(1, int(self._limit * self._tenant_share()))
        while not self._stop():
            room = self._limit - len(self.running)
            if room <= 0:
                break
            claims = self._memories.store.queue.claim(
                uuid.uuid4().hex,
                self._lease,
                self._memories.writer_fingerprint,
                limit=min(room, CLAIMED),
                limit_per_tenant=limit_per_tenant,
            )
            if not claims:
                break
            has_claimed = True
            for claim in claims:
                self._start(claim)
        return has_claimed

    def take_ended(self, timeout: float | None = None) -> list[Future[WriteCounts]]:
        """Return the users who have been written since the last call.

        Args:
            timeout: The most seconds to wait for one; None for no limit.
        """
        ended, self.running = wait(self.running, timeout, FIRST_COMPLETED)
        return list(ended)

    def _start(self, claim: Claim) -> None:
        """Write a claimed user in a new thread."""
        future: Future[WriteCounts] = Future()
        self.running.add(future)
        run = partial(contextvars.copy_context().run, self._write, claim, future)
        threading.Thread(target=run, name="mempiler-writer", daemon=True).start()

    def _write(self, claim: Claim, future: Future[WriteCounts]) -> None:
        """Write a claimed user, and put what was written, or the error, into the future."""
        CALLER.set(claim.owner)
        CURRENT_TENANT.set(claim.owner.tenant)
        try:
            counts = write_claimed(self._memories, claim, self._lease, self._stop).counts
            self.failures.reset(claim.owner)
            future.set_result(counts)
        except BaseException as error:
            if self._pauses:
                pause = self._pause_after(claim.owner, error)
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


class Worker:
    """The background threads of one process.

    Args:
        memories: What writes; their store holds sessions and queues.
        session_gap: Minutes after which an idle session ends.
        writers: The most users whose memories are written at the same time; with 0 none is.
        interval: Seconds between two looks at the store, which other processes fill too.
        lease: Seconds after which another process may take over a user if this one dies.
        share: Returns the part of `writers` that one tenant may have at the moment.
    """

    def __init__(
        self,
        memories: Memories,
        session_gap: float,
        writers: int = AT_ONCE,
        interval: float = 1.0,
        lease: float = LEASE,
        share: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._memories = memories
        self._store = memories.store
        self._gap = session_gap * 60
        self._damaged_sessions: set[IdleSession] = set()
        """Idle sessions that could not be ended, because a row of them is damaged."""
        self._stopping = threading.Event()
        self._news = threading.Event()
        """Set when something was queued, and when a user was written."""
        self.writers = Writers(
            memories,
            lease,
            self._stopping.is_set,
            limit=writers,
            notify=self._news.set,
            tenant_share=share,
            pauses=True,
        )
        sweep_interval = max(interval, min(15.0, self._gap / 20))
        self.threads = [
            self._make_thread("sweep", self.sweep, sweep_interval),
            self._make_thread("watch", self.watch, max(interval, WATCH)),
        ]
        if writers:
            self.threads.append(self._make_thread("write", self._write, interval, self._news))

    def start(self) -> None:
        """Start the threads."""
        for thread in self.threads:
            thread.start()

    def wake(self) -> None:
        """Tell the writers that something was queued."""
        self._news.set()

    def begin_stop(self) -> None:
        """Let no writer begin another session."""
        self._stopping.set()
        self.wake()

    def stop(self, grace: float) -> bool:
        """Finish the sessions that are being written, and end the threads.

        Args:
            grace: The most seconds to wait for that.

        Returns:
            Whether all has ended; what has not is written again by the next worker.
        """
        self.begin_stop()
        deadline = time.monotonic() + grace
        for thread in self.threads:
            was_started = thread.ident is not None
            if was_started:
                thread.join(max(0.0, deadline - time.monotonic()))
        while self.writers.running and time.monotonic() < deadline:
            self.writers.take_ended(deadline - time.monotonic())
        is_any_alive = any(thread.is_alive() for thread in self.threads)
        return not self.writers.running and not is_any_alive

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self.threads) and not self._stopping.is_set()

    def sweep(self) -> int:
        """End idle sessions, and return how many. A damaged session stays open, and is logged."""
        ended = 0
        idle_sessions = self._store.open_sessions.idle(self._gap)
        self._damaged_sessions.intersection_update(idle_sessions)
        for session in idle_sessions:
            if self._stopping.is_set():
                break
            try:
                added = self._store.open_sessions.end(session.owner, session.session)
            except DamagedRowError as error:
                self._log_damage(session, error)
                continue
            if added is not None:
                ended += 1

        if ended:
            log.info("idle sessions ended", extra={"sessions": ended})
            self.wake()
        return ended

    def _log_damage(self, session: IdleSession, error: DamagedRowError) -> None:
        """Log that a session cannot be ended, once for each session: every sweep comes to it."""
        if session not in self._damaged_sessions:
            self._damaged_sessions.add(session)
            log.warning("%s; its session stays open", error, extra=failure(error))

    def watch(self) -> None:
        """Drop what this process keeps of users whom any process forgot, and erase their bytes."""
        forget_count = self._store.forgetting.count()
        self._memories.drop_forgotten(forget_count)
        if forget_count > 0:
            self._store.forgetting.erase()

    def _write(self) -> None:
        """Begin to write users, unless the language model is down, and log who was written."""
        memories = self._memories
        breakers = breakers_of(memories.lm, memories.program.method.embedder)
        if not any(breaker.open for breaker in breakers):
            self.writers.claim()

        counts = WriteCounts()
        errors: list[BaseException] = []
        for future in self.writers.take_ended(timeout=0):
            error = future.exception()
            if error is None:
                counts += future.result()
            else:
                errors.append(error)

        if counts.items or counts.failures:
            fields = {"sessions": counts.items, "failures": len(counts.failures)}
            log.info("sessions remembered", extra=fields)
        if errors:
            is_foreseen = all(isinstance(error, MempilerError | LMError) for error in errors)
            log.warning(
                "users cannot be written, tried again later",
                extra={**failure(errors[0]), "users": len(errors)},
                exc_info=None if is_foreseen else errors[0],
            )

    def _make_thread(
        self,
        name: str,
        work: Callable[[], object],
        interval: float,
        news: threading.Event | None = None,
    ) -> threading.Thread:
        """Return a thread that does some work again and again; see `_loop`."""
        return threading.Thread(
            target=self._loop,
            args=(work, interval, news),
            name=f"mempiler-worker-{name}",
            daemon=True,
        )

    def _loop(
        self, work: Callable[[], object], interval: float, news: threading.Event | None
    ) -> None:
        """Do some work again and again until the worker stops.

        Args:
            work: The work. If it fails, that is logged, and the pauses become longer.
            interval: Seconds between two times.
            news: If it is set, the work is done at once.
        """
        pause = interval
        while not self._stopping.is_set():
            try:
                work()
                pause = interval
            except (MempilerError, LMError) as error:
                pause = min(LONGEST_PAUSE, pause * 2)
                log.warning(
                    "background work failed, it will be tried again",
                    extra={**failure(error), "pause": pause},
                )
            except Exception:
                pause = min(LONGEST_PAUSE, pause * 2)
                log.error("background work failed for an unforeseen reason", exc_info=True)
            # News must not wake a writer whose language model is down.
            if news is None or pause > interval:
                self._stopping.wait(pause)
            elif news.wait(pause):
                news.clear()
