"""Background writers: put queued sessions into memories, many users at the same time.

Any number of processes may do this over one store: it gives each user to one writer at a time. What bounds the threads
is memory; calls are bounded where they are made, so a slow user holds up no other. They are daemons: a language model
that does not return must not keep a service from ending.
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
from typing import Any

from dspy.utils.exceptions import LMError

from ..errors import DamagedRowError, MempilerError, StoreError
from ..memory.store.records import Claim, IdleSession
from ..memory.tenant_lock import CURRENT_TENANT
from .breaker import CALLER, breakers_of
from .error_responses import failure, log
from .memories import Memories
from .settings import AT_ONCE, LEASE
from .writing import WriteCounts, write_claimed

CLAIMED = 8
"""Most users that are claimed at once: what comes to a store is shared among the processes that write it."""
POLL_INTERVAL = 1.0
"""Seconds between two looks for further users, while some are written."""
WATCH = 2.0
"""Seconds between two looks for users whom another process forgot."""
LONGEST_PAUSE = 30.0
"""Seconds between two attempts while the store or the language model fails, or while a user cannot be written."""


def write_all_queued(memories: Memories, lease: float = LEASE, stop: Callable[[], bool] = lambda: False) -> WriteCounts:
    """Remembers queued items until no unclaimed one is left, those of many users at the same time.

    Users whose memory another program wrote are passed over.

    Args:
        memories: What writes.
        lease: Seconds after which another worker may take over if this one dies; at most `MAX_LEASE`.
        stop: Checked before every item; if True, the rest stays queued.

    Raises:
        StoreError: The store failed; everything before the last commit is there.
        LMError: The endpoint failed for somebody; what is not remembered stays queued, of the others too.
    """
    done, over = WriteCounts(), threading.Event()
    writers = Writers(memories, lease, lambda: over.is_set() or stop())
    try:
        while writers.claim() or writers.running:
            done = sum((one.result() for one in writers.ended(POLL_INTERVAL)), done)
    finally:
        over.set()
        wait(writers.running)
    return done


class Writers:
    """Writes whoever has something queued, each user in a thread of its own; driven by one thread.

    Args:
        memories: What writes.
        lease: As of `write_all_queued`, like `stop`.
        stop: When to begin no further user, and no further item.
        most: Users at the same time.
        notify: Called by each thread whose user is through.
        share: The part of `most` that one tenant may hold at the moment.
        pauses: Whether a user who cannot be written is left alone for a while, longer each time.
    """

    def __init__(
        self,
        memories: Memories,
        lease: float = LEASE,
        stop: Callable[[], bool] = lambda: False,
        most: int = AT_ONCE,
        notify: Callable[[], None] = lambda: None,
        share: Callable[[], float] = lambda: 1.0,
        pauses: bool = False,
    ) -> None:
        self._pauses = pauses
        self._memories, self._lease, self._stop, self._most, self._notify = memories, lease, stop, most, notify
        self._share = share
        self.failures = memories.failures
        """How often users could not be written, since they last were."""
        self.running: set[Future[WriteCounts]] = set()
        """Users whose end was not taken notice of."""

    def claim(self) -> bool:
        """Claims users while there is room, and begins to write each; whether there was one."""
        begun, each = False, max(1, int(self._most * self._share()))
        while (room := self._most - len(self.running)) > 0 and not self._stop():
            claims = self._memories.store.queue.claim(
                uuid.uuid4().hex, self._lease, self._memories.writer_fingerprint, limit=min(room, CLAIMED), limit_per_tenant=each
            )
            for claim in claims:
                future: Future[WriteCounts] = Future()
                self.running.add(future)
                run = partial(contextvars.copy_context().run, self._write, claim, future)
                threading.Thread(target=run, name="mempiler-writer", daemon=True).start()
            if not claims:
                break
            begun = True
        return begun

    def ended(self, timeout: float | None = None) -> list[Future[WriteCounts]]:
        """The users that are through since the last call; waits for one, so many seconds at most."""
        done, self.running = wait(self.running, timeout, FIRST_COMPLETED)
        return list(done)

    def _write(self, claim: Claim, future: Future[WriteCounts]) -> None:
        CALLER.set(claim.owner)
        CURRENT_TENANT.set(claim.owner.tenant)
        try:
            done = write_claimed(self._memories, claim, self._lease, self._stop).counts
            self.failures.reset(claim.owner)
            future.set_result(done)
        except BaseException as error:
            if self._pauses:
                failures = self.failures.add(claim.owner)
                with suppress(StoreError):
                    self._memories.store.queue.pause(claim.owner, min(LONGEST_PAUSE, 2.0 ** (failures - 1)))
            future.set_exception(error)
        self._notify()


class Worker:
    """The background threads of one process.

    Args:
        memories: Writes them; their store holds sessions and queues.
        session_gap: Minutes after which an idle session ends.
        writers: Users whose memories are written at the same time; with 0 none is.
        interval: Seconds between two looks at the store, which other processes fill too.
        lease: Seconds after which another process may take over a user if this one dies.
        share: The part of `writers` that one tenant may hold at the moment.
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
        self._memories, self._store = memories, memories.store
        self._gap = session_gap * 60
        self._damaged_sessions: set[IdleSession] = set()
        """Idle sessions that could not be ended, because a row of them is damaged."""
        sweeping = max(interval, min(15.0, self._gap / 20))
        self._stopping, self._news = threading.Event(), threading.Event()
        self.writers = Writers(memories, lease, self._stopping.is_set, writers, self._news.set, share, pauses=True)
        loops: list[Any] = [(self.sweep, sweeping, None), (self.watch, max(interval, WATCH), None)]
        loops += [(self._write, interval, self._news)] if writers else []
        self.threads = [
            threading.Thread(target=self._loop, args=loop, name=f"mempiler-worker-{n}", daemon=True)
            for n, loop in enumerate(loops)
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self.threads:
            thread.start()

    def wake(self) -> None:
        """Says that something was queued."""
        self._news.set()

    def begin_stop(self) -> None:
        """Lets no writer begin another session."""
        self._stopping.set()
        self.wake()

    def stop(self, grace: float) -> bool:
        """Finishes the sessions that are being written.

        Args:
            grace: Seconds to wait for that.

        Returns:
            Whether all has ended; what has not is written again by the next worker.
        """
        self.begin_stop()
        until = time.monotonic() + grace
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        while self.writers.running and time.monotonic() < until:
            self.writers.ended(until - time.monotonic())
        return not self.writers.running and not any(thread.is_alive() for thread in self.threads)

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
        memories = self._memories
        breakers = breakers_of(memories.lm, memories.program.method.embedder)
        if not any(breaker.open for breaker in breakers):
            self.writers.claim()
        ended = self.writers.ended(0)
        errors = [error for error in (one.exception() for one in ended) if error is not None]
        done = sum((one.result() for one in ended if one.exception() is None), WriteCounts())
        if done.items or done.failures:
            log.info("sessions remembered", extra={"sessions": done.items, "failures": len(done.failures)})
        if errors:
            foreseen = all(isinstance(error, MempilerError | LMError) for error in errors)
            about = {**failure(errors[0]), "users": len(errors)}
            log.warning(
                "users cannot be written, tried again later", extra=about, exc_info=None if foreseen else errors[0]
            )

    def _loop(self, work: Any, interval: float, news: threading.Event | None) -> None:
        pause = interval
        while not self._stopping.is_set():
            try:
                work()
                pause = interval
            except (MempilerError, LMError) as error:
                pause = min(LONGEST_PAUSE, pause * 2)
                log.warning("background work failed, it will be tried again", extra={**failure(error), "pause": pause})
            except Exception:
                pause = min(LONGEST_PAUSE, pause * 2)
                log.error("background work failed for an unforeseen reason", exc_info=True)
            # News must not wake a writer whose language model is down.
            if news is None or pause > interval:
                self._stopping.wait(pause)
            elif news.wait(pause):
                news.clear()
