"""Writing the memories of many users at the same time, each in a thread of its own; more begin while there is room.

    claim users ── room? ──> a thread each (`serving.writing`) ──> what was written, or why not

What bounds the threads is memory, not an endpoint: its calls are bounded where they are made (`endpoint.lanes`), so a
user whose calls are slow holds up no other. Threads are daemons: a language model that does not return must not keep
the process from ending.

Example:
    >>> from mempiler.serving.writers import all_of
    >>> all_of([lambda stopping: 1, lambda stopping: 2])
    [1, 2]
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from ..memory.stored import Claim
from .memories import Memories
from .writing import LEASE, Remembered, write_claimed

T = TypeVar("T")

AT_ONCE = 128
"""Users that are worked on at the same time: as many as calls are in flight, since each has one at least."""
CLAIMED = 8
"""Most users that are claimed at once: what comes to a store is shared among the processes that write it."""
LOOK = 1.0
"""Seconds between two looks for further users, while some are written."""


class Threads(Generic[T]):
    """Jobs in threads; driven by one thread. Leaving it as a context waits for them.

    Args:
        most: Jobs at the same time.
        ended: Called by each thread whose job has ended.
    """

    def __init__(self, most: int = AT_ONCE, ended: Callable[[], None] = lambda: None) -> None:
        self._most, self._notify = most, ended
        self.running: set[Future[T]] = set()
        """Jobs whose end was not taken notice of."""
        self.stopping = False
        """Whether something failed: jobs that can are to end early."""

    @property
    def room(self) -> int:
        """How many further jobs may begin."""
        return 0 if self.stopping else self._most - len(self.running)

    def begin(self, job: Callable[[], T]) -> Future[T]:
        """Begins a job under the caller's context."""
        future: Future[T] = Future()
        self.running.add(future)
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(self._run, job, future), name="mempiler-writer", daemon=True).start()
        return future

    def ended(self, timeout: float | None = None) -> list[Future[T]]:
        """The jobs that have ended since the last call; waits for one, so many seconds at most."""
        done, self.running = wait(self.running, timeout, FIRST_COMPLETED)
        return list(done)

    def _run(self, job: Callable[[], T], future: Future[T]) -> None:
        try:
            value = job()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(value)
        self._notify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopping = self.stopping or error is not None
        wait(self.running)


def all_of(jobs: Sequence[Callable[[Callable[[], bool]], T]], most: int = AT_ONCE) -> list[T]:
    """The results of jobs, in order.

    Args:
        jobs: Are independent of one another; each is given what says whether to end early, since another one failed.
        most: Jobs at the same time.

    Raises:
        BaseException: The first failure that was seen; jobs that had not begun by then do not begin.
    """
    begun: list[Future[T]] = []
    with Threads[T](most) as threads:
        while len(begun) < len(jobs) or threads.running:
            for job in jobs[len(begun) : len(begun) + threads.room]:
                begun.append(threads.begin(partial(job, lambda: threads.stopping)))
            for done in threads.ended():
                done.result()
    return [future.result() for future in begun]


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
    done = Remembered()
    with Writers(memories, lease, stop) as writers:
        while writers.claim(writers.room) or writers.running:
            done = sum((one.result() for one in writers.ended(LOOK)), done)
    return done


class Writers(Threads[Remembered]):
    """Writes whoever has something queued, each user in a thread of its own.

    Args:
        memories: What writes.
        lease: Seconds after which another worker may take over a user if this one dies.
        stop: Checked before every item; if True, the rest stays queued.
        most: Users at the same time.
        ended: Called by each thread whose user is through.
    """

    def __init__(
        self,
        memories: Memories,
        lease: float = LEASE,
        stop: Callable[[], bool] = lambda: False,
        most: int = AT_ONCE,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(most, ended)
        self._memories, self._lease, self._stop = memories, lease, stop

    def claim(self, most: int) -> int:
        """Claims users while there is room, so many at most, and begins to write each; returns how many."""
        begun, most = 0, min(most, self.room)
        while begun < most and not self._stop():
            claims = self._memories.store.claim_many(min(most - begun, CLAIMED), self._lease, self._memories.stamp)
            for claim in claims:
                self.begin(partial(self._write, claim))
            if not claims:
                break
            begun += len(claims)
        return begun

    def _write(self, claim: Claim) -> Remembered:
        return write_claimed(self._memories, claim, self._lease, lambda: self.stopping or self._stop())[0]
