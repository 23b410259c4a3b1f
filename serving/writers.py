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
from typing import Any, Generic, Self, TypeVar

from ..memory.stored import Claim, Owner
from .memories import Memories
from .writing import LEASE, Remembered, remember_user, retry_partial, write_claimed

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
        self._running: set[Future[T]] = set()
        self._stopping = False

    @property
    def room(self) -> int:
        """How many further jobs may begin."""
        return 0 if self._stopping else self._most - len(self._running)

    @property
    def stopping(self) -> bool:
        """Whether something failed: jobs that can are to end early."""
        return self._stopping

    @property
    def busy(self) -> bool:
        """Whether there are jobs whose end was not taken notice of."""
        return bool(self._running)

    def begin(self, job: Callable[[], T]) -> Future[T]:
        """Begins a job under the caller's context."""
        future: Future[T] = Future()
        self._running.add(future)
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(self._run, job, future), name="mempiler-writer", daemon=True).start()
        return future

    def ended(self, timeout: float | None = None) -> list[Future[T]]:
        """The jobs that have ended since the last call; waits for one, so many seconds at most."""
        done, self._running = wait(self._running, timeout, FIRST_COMPLETED)
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
        self._stopping = self._stopping or error is not None
        wait(self._running)


def all_of(jobs: Sequence[Callable[[Callable[[], bool]], T]], most: int = AT_ONCE) -> list[T]:
    """The results of jobs, in order.

    Args:
        jobs: Are independent of one another; each is given what says whether to end early, since another one failed.
        most: Jobs at the same time.

    Raises:
        BaseException: The first failure that was seen; jobs that had not begun by then do not begin.
    """
    with Threads[T](most) as running:
        begun: list[Future[T]] = []
        for job in jobs:
            while not running.room:
                _seen(running)
            begun.append(running.begin(lambda job=job: job(lambda: running.stopping)))
        while running.busy:
            _seen(running)
        return [future.result() for future in begun]


def _seen(running: Threads[Any]) -> None:
    for done in running.ended():
        done.result()


def remember_queued(
    memories: Memories,
    owner: Owner | None = None,
    lease: float = LEASE,
    stop: Callable[[], bool] = lambda: False,
    retry: bool = False,
) -> Remembered:
    """Remembers queued items until no unclaimed one is left, those of many users at the same time.

    Args:
        memories: What writes.
        owner: Only this user's, as `remember_user` does; of any user if None.
        lease: Seconds after which another worker may take over if this one dies; at most `LONGEST_LEASE`.
        stop: Checked before every item; if True, the rest stays queued.
        retry: Whether turns that could not be taken in before are tried once more, however often they were.

    Raises:
        ProgramError: The user's memory was written by another program. Without `owner` such users are passed over.
        StoreError: The store failed; everything before the last commit is there.
        LMError: The endpoint failed for somebody; what is not remembered stays queued, of the others too.
    """
    if owner is not None:
        return remember_user(memories, owner, lease, stop, retry)
    done = Remembered()
    if retry:

        def retried(owner: Owner, stopping: Callable[[], bool]) -> Remembered:
            return retry_partial(memories, owner, lease, lambda: stopping() or stop())

        again = [one.owner for one in memories.store.users() if one.partial]
        done = sum(all_of([partial(retried, owner) for owner in again]), done)
    with Writers(memories, lease, stop) as writers:
        while writers.claim() or writers.busy:
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

    def claim(self, most: int | None = None) -> int:
        """Claims users while there is room, so many at most, and begins to write each; returns how many."""
        begun = 0
        most = self.room if most is None else min(most, self.room)
        while begun < most and not self._stop():
            claims = self._memories.store.claim_many(min(most - begun, CLAIMED), self._lease, self._memories.stamp)
            for claim in claims:
                self.begin(partial(self._write, claim))
            if not claims:
                break
            begun += len(claims)
        return begun

    def _write(self, claim: Claim) -> Remembered:
        def stop() -> bool:
            return self.stopping or self._stop()

        return write_claimed(self._memories, claim, self._lease, stop).done
