"""Writing the memories of many users at the same time, each in a thread of its own; more begin while there is room.

    claim users ── room? ──> a thread each (`serving.writing`) ──> what was written, or why not

What bounds the threads is memory, not an endpoint: its calls are bounded where they are made (`endpoint.lanes`), so a
user whose calls are slow holds up no other. Threads of `Writers` are daemons: a language model that does not return
must not keep a service from ending.

Example:
    >>> from mempiler.serving.writers import all_of
    >>> all_of([lambda stopping: 1, lambda stopping: 2])
    [1, 2]
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from functools import partial
from typing import TypeVar

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


def all_of(jobs: Sequence[Callable[[Callable[[], bool]], T]], most: int = AT_ONCE) -> list[T]:
    """The results of jobs, in order.

    Args:
        jobs: Are independent of one another; each is given what says whether to end early, since another one failed.
        most: Jobs at the same time.

    Raises:
        BaseException: The first failure that was seen; jobs that had not begun by then do not begin.
    """
    stopping = threading.Event()
    with ThreadPoolExecutor(most) as pool:
        futures = [pool.submit(contextvars.copy_context().run, job, stopping.is_set) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


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
        while writers.claim(writers.room) or writers.running:
            done = sum((one.result() for one in writers.ended(LOOK)), done)
    finally:
        writers.stopping = True
        wait(writers.running)
    return done


class Writers:
    """Writes whoever has something queued, each user in a thread of its own; driven by one thread.

    Args:
        memories: What writes.
        lease: Seconds after which another worker may take over a user if this one dies.
        stop: Checked before every item; if True, the rest stays queued.
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

    @property
    def room(self) -> int:
        """How many further users may begin."""
        return 0 if self.stopping else self._most - len(self.running)

    def claim(self, most: int) -> int:
        """Claims users while there is room, so many at most, and begins to write each; returns how many."""
        begun, most = 0, min(most, self.room)
        while begun < most and not self._stop():
            claims = self._memories.store.claim_many(min(most - begun, CLAIMED), self._lease, self._memories.stamp)
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
            future.set_result(write_claimed(self._memories, claim, self._lease, self._stops)[0])
        except BaseException as error:
            future.set_exception(error)
        self._notify()

    def _stops(self) -> bool:
        return self.stopping or self._stop()
