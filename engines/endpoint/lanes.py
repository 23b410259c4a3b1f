"""Places for calls at an endpoint: so many are in flight at most, and who waits for one is served in turn.

Whoever has one call waiting is served before the second of another, however many that one has. This bounds what an
endpoint is asked, so that nothing else need be bounded for its sake.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Generator, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

from ..spending import working_now
from .loop import arun, run

IN_FLIGHT = 128
"""Calls in flight at one endpoint, unless said otherwise."""


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
            if not turn.done():
                run(_come(turn))
            yield

    @asynccontextmanager
    async def aplace(self) -> AsyncGenerator[None]:
        """`place` for asyncio; no thread waits."""
        with self._turn() as turn:
            if not turn.done():
                await arun(_come(turn))
            yield

    @contextmanager
    def _turn(self) -> Generator[Future[None]]:
        """A turn that comes when there is a place, at once where one is free; the place is given on in the end."""
        turn, whose = Future[None](), working_now()[0]
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
                if turn.done() and not turn.cancelled():
                    self._give()
                else:
                    self._waiting[whose].remove(turn)
                    if not self._waiting[whose]:
                        del self._waiting[whose]

    def _give(self) -> None:
        """Hands the place to the next in turn, so that no newcomer takes it."""
        if not self._waiting:
            self._free += 1
            return
        whose, turns = self._waiting.popitem(last=False)
        turn = turns.popleft()
        if turns:
            self._waiting[whose] = turns  # behind all others
        turn.set_result(None)


async def _come(turn: Future[None]) -> None:
    # A turn is never cancelled: it might be just given.
    await asyncio.shield(asyncio.wrap_future(turn))
