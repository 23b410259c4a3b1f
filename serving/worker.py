"""The background of a service: sessions that went idle end, and queued sessions are written into their memories.

    sweeper     ends sessions without a turn for `session_gap` minutes, wherever they began
    watcher     sees who was forgotten, and drops what is kept of them
    writer      claims users with something queued; a thread for each writes one session after another, commits each

Any number of processes may do this over one store at the same time: it gives each user to one writer at a time, and a
session ends once. `stop` lets every writer finish its current session; the rest stays queued for others. A user whose
calls are slow holds up no other: what is bounded is the calls in flight at an endpoint (`endpoint.lanes`).
"""

from __future__ import annotations

import threading
import time
from typing import Any

from dspy.utils.exceptions import LMError

from ..errors import MempilerError
from .logs import failure, log
from .memories import Memories
from .writers import AT_ONCE, Writers
from .writing import LEASE, Remembered

WATCH = 2.0
"""Seconds between two looks for users whom another process forgot."""
LONGEST_PAUSE = 30.0
"""Seconds between two attempts while the store or the language model fails."""


class Worker:
    """The background threads of one process.

    Args:
        memories: Writes them; their store holds sessions and queues.
        session_gap: Minutes after which an idle session ends.
        writers: Users whose memories are written at the same time; with 0 none is.
        interval: Seconds between two looks at the store, which other processes fill too.
        lease: Seconds after which another process may take over a user if this one dies.
    """

    def __init__(
        self,
        memories: Memories,
        session_gap: float,
        writers: int = AT_ONCE,
        interval: float = 1.0,
        lease: float = LEASE,
    ) -> None:
        self._memories, self._store = memories, memories.store
        self._gap = session_gap * 60
        sweeping = max(interval, min(15.0, self._gap / 20))
        self._stopping, self._news = threading.Event(), threading.Event()
        self._writers = Writers(memories, lease, self._stopping.is_set, writers, self._news.set)
        self._failing = False
        # Daemons: a language model that does not return must not keep the process from ending.
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
        while self._writers.running and time.monotonic() < until:
            self._writers.ended(until - time.monotonic())
        return not self._writers.running and not any(thread.is_alive() for thread in self.threads)

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self.threads) and not self._stopping.is_set()

    def sweep(self) -> int:
        """Ends idle sessions; returns how many."""
        ended = 0
        for owner, session in self._store.idle(self._gap):
            if self._stopping.is_set():
                break
            ended += self._store.end(owner, session) is not None
        if ended:
            log.info("idle sessions ended", extra={"sessions": ended})
            self.wake()
        return ended

    def watch(self) -> None:
        """Drops what this process keeps of users whom any process forgot, and erases what was still to be."""
        self._memories.notice(self._store.forgets())
        self._store.erase()

    def _write(self) -> None:
        # After a failure one user at a time, until one is written: of a model that is down not everybody need know.
        self._writers.claim(1 if self._failing else self._writers.room)
        ended = self._writers.ended(LONGEST_PAUSE if self._failing else 0)
        errors = [error for error in (one.exception() for one in ended) if error is not None]
        done = sum((one.result() for one in ended if one.exception() is None), Remembered())
        if done.items or done.failures:
            log.info("sessions remembered", extra={"sessions": done.items, "failures": len(done.failures)})
        if ended:
            self._failing = bool(errors)
        if errors:
            raise errors[0]

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
