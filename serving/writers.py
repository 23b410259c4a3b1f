"""Who writes queued sessions into memories, many users at the same time: the background of a service, and commands.

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
from functools import partial
from typing import Any

from dspy.utils.exceptions import LMError

from ..errors import MempilerError
from ..memory.stored import Claim
from .memories import Memories
from .refusals import failure, log
from .settings import AT_ONCE, LEASE
from .writing import Remembered, write_claimed

CLAIMED = 8
"""Most users that are claimed at once: what comes to a store is shared among the processes that write it."""
LOOK = 1.0
"""Seconds between two looks for further users, while some are written."""
WATCH = 2.0
"""Seconds between two looks for users whom another process forgot."""
LONGEST_PAUSE = 30.0
"""Seconds between two attempts while the store or the language model fails."""


def remember_queued(memories: Memories, lease: float = LEASE, stop: Callable[[], bool] = lambda: False) -> Remembered:
    """Remembers queued items until no unclaimed one is left, those of many users at the same time.

    Users whose memory another program wrote are passed over.

    Args:
        memories: What writes.
        lease: Seconds after which another worker may take over if this one dies; at most `LONGEST_LEASE`.
        stop: Checked before every item; if True, the rest stays queued.

    Raises:
        StoreError: The store failed; everything before the last commit is there.
        LMError: The endpoint failed for somebody; what is not remembered stays queued, of the others too.
    """
    done, writers = Remembered(), Writers(memories, lease, stop)
    try:
        while writers.claim() or writers.running:
            done = sum((one.result() for one in writers.ended(LOOK)), done)
    finally:
        writers.stopping = True
        wait(writers.running)
    return done


class Writers:
    """Writes whoever has something queued, each user in a thread of its own; driven by one thread.

    Args:
        memories: What writes.
        lease: As of `remember_queued`, like `stop`.
        stop: When to end.
        most: Users at the same time.
        notify: Called by each thread whose user is through.
    """

    def __init__(
        self,
        memories: Memories,
        lease: float = LEASE,
        stop: Callable[[], bool] = lambda: False,
        most: int = AT_ONCE,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        self._memories, self._lease, self._stop, self._most, self._notify = memories, lease, stop, most, notify
        self.running: set[Future[Remembered]] = set()
        """Users whose end was not taken notice of."""
        self.stopping = False
        """Whether to begin no further user, and no further item."""

    def claim(self, most: int | None = None) -> int:
        """Claims users while there is room, so many at most, and begins to write each; returns how many."""
        room = 0 if self.stopping else self._most - len(self.running)
        begun, most = 0, room if most is None else min(most, room)
        while begun < most and not self._stop():
            claims = self._memories.store.claim(
                uuid.uuid4().hex, self._lease, self._memories.stamp, most=min(most - begun, CLAIMED)
            )
            for claim in claims:
                future: Future[Remembered] = Future()
                self.running.add(future)
                run = partial(contextvars.copy_context().run, self._write, claim, future)
                threading.Thread(target=run, name="mempiler-writer", daemon=True).start()
            if not claims:
                break
            begun += len(claims)
        return begun

    def ended(self, timeout: float | None = None) -> list[Future[Remembered]]:
        """The users that are through since the last call; waits for one, so many seconds at most."""
        done, self.running = wait(self.running, timeout, FIRST_COMPLETED)
        return list(done)

    def _write(self, claim: Claim, future: Future[Remembered]) -> None:
        try:
            stop = lambda: self.stopping or self._stop()  # noqa: E731
            future.set_result(write_claimed(self._memories, claim, self._lease, stop)[0])
        except BaseException as error:
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
        forgets = self._store.forgets()
        self._memories.notice(forgets)
        if forgets:
            self._store.erase()

    def _write(self) -> None:
        # After a failure one user at a time, until one is written: of a model that is down not everybody need know.
        self._writers.claim(1 if self._failing else None)
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
