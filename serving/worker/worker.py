"""The background threads of one process of a service.

One writes queued sessions into memories, one ends sessions that have been idle, and one erases what
is left of users who were forgotten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dspy.utils.exceptions import LMError

from ...errors import DamagedRowError, MempilerError
from ...memory.store.records import IdleSession
from ..failure_log import failure, log
from ..memories.memories import Memories
from ..memories.queue_writer import WriteCounts
from ..settings import AT_ONCE, LEASE
from .breaker import breakers_of
from .writers import LONGEST_PAUSE, Writers

WATCH = 2.0
"""Seconds between two looks for users whom another process forgot."""


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
        self._gap_seconds = session_gap * 60
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
        sweep_interval = max(interval, min(15.0, self._gap_seconds / 20))
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
            # Waits for a writer, and takes it out of `running`. Nobody logs its result any more.
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
        idle_sessions = self._store.open_sessions.idle(self._gap_seconds)
        # Those that are not idle any more were repaired or forgotten.
        self._damaged_sessions.intersection_update(idle_sessions)
        for session in idle_sessions:
            if self._stopping.is_set():
                break
            try:
                added = self._store.open_sessions.end(session.owner, session.session)
            except DamagedRowError as error:
                self._log_damage(session, error)
                continue
            # None if another process has ended it, or somebody went on with it.
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
        """Start writers for users with queued items, and log the results of earlier writers.

        While the language model or the embedder is down, no writer is started.
        """
        memories = self._memories
        breakers = breakers_of(memories.lm, memories.program.method.embedder)
        if not any(breaker.open for breaker in breakers):
            self.writers.start_claimed()
        self._log_ended_writers()

    def _log_ended_writers(self) -> None:
        """Log what writers did that have ended since the last call, without waiting for others."""
        counts = WriteCounts()
        errors: list[BaseException] = []
        for future in self.writers.take_ended(timeout=0):
            error = future.exception()
            if error is None:
                counts += future.result()
            else:
                errors.append(error)

        if counts.items or counts.failures:
            # For users, an item of the queue is a session that has ended.
            fields = {"sessions": counts.items, "failures": len(counts.failures)}
            log.info("sessions remembered", extra=fields)
        if errors:
            # The log shows the first error; its traceback only if it may be a mistake in our code.
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
        """Repeat some work, with pauses, until the worker stops.

        Args:
            work: The work. If it fails, the failure is logged and the next pause is twice as long.
            interval: Seconds to pause after work that succeeded.
            news: An event that ends such a pause at once. `begin_stop` sets it, too.
        """
        pause = interval
        while not self._stopping.is_set():
            pause_after_failure = min(LONGEST_PAUSE, pause * 2)
            has_failed = True
            try:
                work()
                has_failed = False
            except (MempilerError, LMError) as error:
                log.warning(
                    "background work failed, it will be tried again",
                    extra={**failure(error), "pause": pause_after_failure},
                )
            except Exception:
                log.error("background work failed for an unforeseen reason", exc_info=True)

            pause = pause_after_failure if has_failed else interval
            if has_failed or news is None:
                # News does not end the pause after a failure: the language model may be down, and
                # more work would fail as well.
                self._stopping.wait(pause)
            elif news.wait(pause):
                news.clear()
