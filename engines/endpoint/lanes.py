"""Places for calls at an endpoint: so many are in flight at most, and who waits for one is served in turn.

    Ada   call, call, call ──┐
    Ben   call ──────────────┼── Ada, Ben, Ada, Ada ──> at most `places` at once ──> endpoint
    Cleo  (slow) call ───────┘                          holds one of them

This bounds what an endpoint is asked, so that nothing else need be bounded for its sake: any number of users, questions
and generated texts may be worked on at once. Whoever has one call waiting is served before the second of another,
however many that one has.

Example:
    >>> from mempiler.engines.endpoint.lanes import Lane, taking_turns
    >>> lane = Lane(places=1)
    >>> with taking_turns("Ada"), lane.place():
    ...     lane.free
    0
"""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Generator, Hashable
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

from ...records.scope import holding
from .loop import awaited, waited

IN_FLIGHT = 128
"""Calls in flight at one endpoint, unless said otherwise."""

_whose: contextvars.ContextVar[Hashable] = contextvars.ContextVar("mempiler_whose", default=None)


def taking_turns(whose: Hashable) -> AbstractContextManager[None]:
    """Makes the calls of the block those of one user, or question: others have their turn between them."""
    return holding(_whose, whose)


class Lane:
    """The places of one endpoint.

    Args:
        places: Calls in flight.
    """

    def __init__(self, places: int = IN_FLIGHT) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: OrderedDict[Hashable, deque[Future[None]]] = OrderedDict()

    @property
    def free(self) -> int:
        """Places that nobody holds."""
        return self._free

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    @contextmanager
    def place(self) -> Generator[None]:
        """Holds a place; waits for one no longer than the deadline of the work that wants it.

        Raises:
            NobodyWaitsError: The deadline passed.
        """
        with self._turn() as turn:
            waited(turn)
            yield

    @asynccontextmanager
    async def aplace(self) -> AsyncGenerator[None]:
        """`place` for asyncio; no thread waits."""
        with self._turn() as turn:
            await awaited(turn)
            yield

    @contextmanager
    def _turn(self) -> Generator[Future[None]]:
        """A turn that comes when there is a place, at once where one is free; the place is given on in the end."""
        turn, whose = Future[None](), _whose.get()
        with self._lock:
            if self._free:
                self._free -= 1
                turn.set_result(None)
            else:
                self._waiting.setdefault(whose, deque()).append(turn)
        try:
            yield turn
        finally:
            with self._lock:
                if turn.cancelled():
                    self._forget(whose, turn)
                else:
                    self._give()

    def _forget(self, whose: Hashable, turn: Future[None]) -> None:
        turns = self._waiting.get(whose, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(whose, None)

    def _give(self) -> None:
        """Hands the place to the next in turn, so that no newcomer takes it."""
        while self._waiting:
            whose, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[whose] = turns  # behind all others
            if turn.set_running_or_notify_cancel():
                turn.set_result(None)
                return
        self._free += 1
