"""Calls of many threads as one batch, without a thread of its own.

The first caller leads: it waits until nobody else has come for a few milliseconds, or the batch is full, runs the
batch, and returns the results to all; threads that came meanwhile form the next batch. No thread outlives its call.
Threads that go in step come one after the other, since Python runs one at a time: a batch that set out after a fixed
time would leave half of them behind, and run twice.

Example:
    >>> from mempiler.engines.local.batching import Batcher
    >>> Batcher(lambda rows: [2 * row for row in rows]).call(21)
    42
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from .parts import memory_ran_out

Row = TypeVar("Row")
Result = TypeVar("Result")

WINDOW = 0.004
"""Seconds since the last call after which a batch sets out."""
PATIENCE = 25
"""Windows that a batch waits at most."""
LIMIT = 128
"""Rows of a batch at most."""


class Batcher(Generic[Row, Result]):
    """Coalesces concurrent calls.

    Args:
        run: Gets the rows of a batch and returns their results, in order. Its failure fails every call of the batch;
            where memory ran out, the batch is tried again in halves first.
        window: Seconds a batch waits for a further call after each that came, at most `PATIENCE` times that in all.
        limit: Rows of a batch at most.
    """

    def __init__(
        self, run: Callable[[list[Row]], Sequence[Result]], window: float = WINDOW, limit: int = LIMIT
    ) -> None:
        self._run, self.window, self.limit = run, window, limit
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        """What the leader waits for, and nobody else: a caller that wakes all others costs more than its row."""
        self._waiting: list[_Ticket[Row, Result]] = []
        self._led = False

    def call(self, row: Row) -> Result:
        """The result of one row, once its batch has run.

        Raises:
            Exception: What running the batch raised.
        """
        ticket: _Ticket[Row, Result] = _Ticket(row)
        try:
            with self._lock:
                self._waiting.append(ticket)
                if not self._led:
                    self._hand_over()
                elif len(self._waiting) >= self.limit:
                    self._filled.notify()
            while not ticket.done:
                ticket.turn.wait()
                if ticket.leads:
                    self._lead(ticket)
        finally:
            with self._lock:
                if ticket in self._waiting:  # an interrupt: no thread waits for the result any more
                    self._waiting.remove(ticket)
                if ticket.leads:
                    self._hand_over()
        if ticket.error is not None:
            raise ticket.error
        return ticket.results[0]

    def _hand_over(self) -> None:
        """Lets the first of those who wait lead; the lock is held."""
        self._led = bool(self._waiting)
        if self._led:
            self._waiting[0].leads = True
            self._waiting[0].turn.set()

    def _lead(self, leader: _Ticket[Row, Result]) -> None:
        """Collects and runs one batch."""
        batch: list[_Ticket[Row, Result]] = []
        leader.turn.clear()
        try:
            with self._lock:
                self._gather()
                batch, self._waiting = self._waiting[: self.limit], self._waiting[self.limit :]
            self._serve(batch)
        finally:
            for ticket in batch:
                if not ticket.done:
                    ticket.error = RuntimeError("the batch of this call was interrupted")
                    ticket.done = True
            with self._lock:
                leader.leads = False
                self._hand_over()
            for ticket in batch:
                ticket.turn.set()

    def _gather(self) -> None:
        """Waits for company; the lock is held."""
        last = time.monotonic() + PATIENCE * self.window
        came = -1
        while came < len(self._waiting) < self.limit and (left := last - time.monotonic()) > 0:
            came = len(self._waiting)
            self._filled.wait(min(self.window, left))

    def _serve(self, batch: list[_Ticket[Row, Result]]) -> None:
        try:
            found = list(self._run([ticket.row for ticket in batch]))
            if len(found) != len(batch):
                raise RuntimeError(f"{len(found)} results for a batch of {len(batch)}")
        except Exception as error:
            if len(batch) > 1 and memory_ran_out(error):
                half = len(batch) // 2
                self._serve(batch[:half])
                self._serve(batch[half:])
                return
            for ticket in batch:
                ticket.error = error
        else:
            for ticket, result in zip(batch, found, strict=True):
                ticket.results.append(result)
        for ticket in batch:
            ticket.done = True


class _Ticket(Generic[Row, Result]):
    """One call and its outcome."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.results: list[Result] = []
        self.error: Exception | None = None
        self.done = False
        self.leads = False
        self.turn = threading.Event()
        """Set when its batch has run, or when it leads the next one."""
