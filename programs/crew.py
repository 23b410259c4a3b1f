"""Jobs that run at the same time, each in a thread of its own; more begin while there is room.

    room? ── begin(job) ──> thread ──> ended() ──> its result, or what it raised

What bounds them is memory, not an endpoint: its calls are bounded where they are made (`engines.lanes`), so a job that
waits for a slow answer holds up no other. Threads are daemons: a language model that does not return must not keep the
process from ending.

Example:
    >>> from mempiler.programs.crew import all_of
    >>> all_of([lambda: 1, lambda: 2])
    [1, 2]
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")

AT_ONCE = 128
"""Users that are worked on at the same time: as many as calls are in flight, since each has one at least."""


class Crew(Generic[T]):
    """Jobs in threads; driven by one thread. Leaving it as a context waits for them.

    Args:
        most: Jobs at the same time.
        ended: Called by each thread whose job has ended.
    """

    def __init__(self, most: int = AT_ONCE, ended: Callable[[], None] = lambda: None) -> None:
        self._most, self._told = most, ended
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
        threading.Thread(target=run, args=(self._run, job, future), name="mempiler-crew", daemon=True).start()
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
        self._told()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping = self._stopping or error is not None
        wait(self._running)


def all_of(jobs: Sequence[Callable[[], T]], most: int = AT_ONCE, crew: Crew[T] | None = None) -> list[T]:
    """The results of jobs, in order.

    Args:
        jobs: Are independent of one another.
        most: Jobs at the same time.
        crew: What runs them, for jobs that look whether it is `stopping`; one for so many if None.

    Raises:
        BaseException: The first failure that was seen; jobs that had not begun by then do not begin.
    """
    with crew or Crew[Any](most) as running:
        begun: list[Future[T]] = []
        for job in jobs:
            while not running.room:
                _seen(running)
            begun.append(running.begin(job))
        while running.busy:
            _seen(running)
        return [future.result() for future in begun]


def _seen(running: Crew[Any]) -> None:
    for done in running.ended():
        done.result()
