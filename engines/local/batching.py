"""Batches: calls of many threads as one, parts of rows of similar length, and halves where memory runs out."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from ...errors import UserError

Row = TypeVar("Row")
Result = TypeVar("Result")

WINDOW = 0.004
"""Seconds since the last call after which a batch sets out."""
PATIENCE = 25
"""Windows that a batch waits at most."""
LIMIT = 128
"""Rows of a batch at most."""
SLACK = 1024
"""Tokens of padding that a part may have whatever its text is: passes over a few tokens take longer than padding."""


class Batcher(Generic[Row, Result]):
    """Coalesces concurrent calls; one thread of its own runs the batches.

    Threads that go in step come one after the other: a batch that set out after a fixed time would leave half of them
    behind, and run twice.

    Args:
        run: Gets the rows of a batch and returns their results, in order. Its failure fails every call of the batch;
            where memory ran out, the batch is tried again in halves first.
        window: Seconds a batch waits for a further call after each that came, at most `PATIENCE` times that in all.
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


def chunks(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Consecutive parts of at most `size` items."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def buckets(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Parts of at most `size` rows each, by number, the longest rows first, e.g. [[1, 0], [2, 3]] of 40, 9000, 35, 30.

    The padding of a part is at most as long as its text, or `SLACK`.
    """
    found: list[list[int]] = []
    width = tokens = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        count = len(found[-1]) + 1 if found else 0
        text = tokens + lengths[row]
        if found and count <= size and width * count - text <= max(text, SLACK):
            found[-1].append(row)
            tokens = text
        else:
            found.append([row])
            width = tokens = lengths[row]
    return found


def in_halves(run: Callable[[Sequence[Row]], Sequence[Result]], rows: Sequence[Row]) -> list[Result]:
    """The results of rows, in order; where memory runs out, the rows are tried again in halves.

    Raises:
        UserError: Memory does not suffice for one row.
    """
    try:
        return list(run(rows))
    except Exception as error:
        if not memory_ran_out(error):
            raise
    if len(rows) < 2:
        raise UserError("memory ran out at a single completion; load the model with dtype bfloat16, or a smaller one")
    half = len(rows) // 2
    return in_halves(run, rows[:half]) + in_halves(run, rows[half:])


def memory_ran_out(error: Exception) -> bool:
    """Whether memory is full, of this machine or of a GPU; what torch holds of a GPU's without need is given back."""
    if not (isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"):
        return False
    import torch

    torch.cuda.empty_cache()
    return True
