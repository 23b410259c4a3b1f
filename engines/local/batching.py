"""Calls of many threads as one batch: it sets out when nobody else has come for a few milliseconds, or when it is full.

Threads that go in step come one after the other, since Python runs one at a time: a batch that set out after a fixed
time would leave half of them behind, and run twice.

Example:
    >>> from mempiler.engines.local.batching import Batcher
    >>> Batcher(lambda rows: [2 * row for row in rows]).call(21)
    42
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from .parts import in_halves

Row = TypeVar("Row")
Result = TypeVar("Result")

WINDOW = 0.004
"""Seconds since the last call after which a batch sets out."""
PATIENCE = 25
"""Windows that a batch waits at most."""
LIMIT = 128
"""Rows of a batch at most."""


class Batcher(Generic[Row, Result]):
    """Coalesces concurrent calls; one thread of its own runs the batches.

    Args:
        run: Gets the rows of a batch and returns their results, in order. Its failure fails every call of the batch;
            where memory ran out, the batch is tried again in halves first.
        window: Seconds a batch waits for a further call after each that came, at most `PATIENCE` times that in all.
        limit: Rows of a batch at most.
    """

    def __init__(
        self, run: Callable[[Sequence[Row]], Sequence[Result]], window: float = WINDOW, limit: int = LIMIT
    ) -> None:
        self._run, self.window, self.limit = run, window, limit
        self._waiting: queue.SimpleQueue[tuple[Row, Future[Result]]] = queue.SimpleQueue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mempiler-batches")

    def call(self, row: Row) -> Result:
        """The result of one row, once its batch has run.

        Raises:
            Exception: What running the batch raised.
        """
        done: Future[Result] = Future()
        self._waiting.put((row, done))
        # One turn for each call: those whose calls went with an earlier batch find nobody waiting.
        self._thread.submit(self._serve)
        return done.result()

    def _serve(self) -> None:
        batch = self._gathered()
        if not batch:
            return
        try:
            found: list[Any] = in_halves(self._run, [row for row, _ in batch])
            for (_, done), result in zip(batch, found, strict=True):
                done.set_result(result)
        except BaseException as error:  # nobody else hears of it, and callers would wait for ever
            for _, done in batch:
                if not done.done():
                    done.set_exception(error)

    def _gathered(self) -> list[tuple[Row, Future[Result]]]:
        batch: list[tuple[Row, Future[Result]]] = []
        last = time.monotonic() + PATIENCE * self.window
        while len(batch) < self.limit:
            try:
                patience = min(self.window, last - time.monotonic()) if batch else 0.0
                batch.append(self._waiting.get(timeout=max(0.0, patience)))
            except queue.Empty:
                break
        return batch
