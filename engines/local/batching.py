"""Batches: calls of many threads as one, rows of similar length, halves where memory runs out."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...errors import UserError

Row = TypeVar("Row")
Result = TypeVar("Result")

WINDOW = 0.004
"""Seconds that a batch waits for a further call."""

MAX_WINDOWS = 25
"""Windows that a batch waits in all."""

MAX_ROWS = 128
"""Rows of a batch."""

FREE_PADDING = 1024
"""Tokens of padding that a bucket may always have: a pass over few tokens is slower than these."""


@dataclass(frozen=True)
class _Call(Generic[Row, Result]):
    """A row that waits for its batch, and the future that gets its result."""

    row: Row
    future: Future[Result] = field(default_factory=Future)


class Batcher(Generic[Row, Result]):
    """Collect concurrent calls into batches, which run one after the other in a thread.

    A batch waits until no call has come for `window` seconds. Threads that work in step call one
    shortly after the other: a batch that waited for a fixed time would miss half of them, so that
    there would be a second batch.

    Args:
        run: Takes the rows of a batch and returns their results in the same order. If it raises,
            every call of the batch raises the same. If memory runs out, the batch is tried again in
            halves first.
        window: Seconds that a batch waits for a further call after each one. It waits at most
            `MAX_WINDOWS` times as long in all.
        limit: The most rows of a batch.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Row]], Sequence[Result]],
        window: float = WINDOW,
        limit: int = MAX_ROWS,
    ) -> None:
        self.window = window
        self.limit = limit
        self._run = run
        self._waiting: queue.SimpleQueue[_Call[Row, Result]] = queue.SimpleQueue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mempiler-batches")

    def call(self, row: Row) -> Result:
        """Wait for the batch of a row, and return the row's result.

        Raises:
            Exception: Whatever running the batch raised.
        """
        call: _Call[Row, Result] = _Call(row)
        self._waiting.put(call)
        # A task for each call. If an earlier task has taken the call into its batch, this one finds
        # no call and does nothing.
        self._thread.submit(self._run_next_batch)
        return call.future.result()

    def _run_next_batch(self) -> None:
        """Collect a batch of waiting calls, run it, and give each call its result or the error."""
        calls = self._collect_calls()
        if not calls:
            return
        try:
            results = in_halves(self._run, [call.row for call in calls])
            for call, result in zip(calls, results, strict=True):
                call.future.set_result(result)
        except BaseException as error:
            # Every exception, a KeyboardInterrupt too: otherwise the callers would wait forever.
            for call in calls:
                if not call.future.done():
                    call.future.set_exception(error)

    def _collect_calls(self) -> list[_Call[Row, Result]]:
        """Return the calls of the next batch; none if no call is waiting.

        After each call, wait for a further one for `window` seconds, but no longer than
        `MAX_WINDOWS` windows in all.
        """
        calls: list[_Call[Row, Result]] = []
        deadline = time.monotonic() + MAX_WINDOWS * self.window
        while len(calls) < self.limit:
            # The first call must be there already.
            timeout = 0.0
            if calls:
                timeout = max(0.0, min(self.window, deadline - time.monotonic()))
            try:
                calls.append(self._waiting.get(timeout=timeout))
            except queue.Empty:
                break
        return calls


Item = TypeVar("Item")


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split items into consecutive parts of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def buckets(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Group rows of similar length, the longest first, and return the row numbers of each group.

    The rows of a group are padded to its longest. The padding is at most as long as the text of the
    group, or `FREE_PADDING` tokens if that is more.

    Args:
        lengths: The tokens of each row.
        size: The most rows of a group.

    `buckets([40, 9000, 35, 30], size=8)` returns `[[1, 0], [2, 3]]`.
    """
    longest_first = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    groups: list[list[int]] = []
    # Of the last group: the length of its longest row, and the tokens of all its rows.
    longest = 0
    tokens = 0
    for row in longest_first:
        if groups:
            # What the group would be with this row. Its first row stays the longest.
            row_count = len(groups[-1]) + 1
            token_count = tokens + lengths[row]
            padding = longest * row_count - token_count
            if row_count <= size and padding <= max(token_count, FREE_PADDING):
                groups[-1].append(row)
                tokens = token_count
                continue

        # The row does not fit the last group, and begins another one.
        groups.append([row])
        longest = lengths[row]
        tokens = lengths[row]
    return groups


def in_halves(
    run: Callable[[Sequence[Row]], Sequence[Result]], rows: Sequence[Row]
) -> list[Result]:
    """Return the results of rows in order; if memory runs out, run the rows again in halves.

    Raises:
        UserError: Memory does not suffice for one row.
    """
    try:
        return list(run(rows))
    except Exception as error:
        if not memory_ran_out(error):
            raise

    # Outside the except block, where the error no longer holds what the failed pass computed.
    if len(rows) < 2:
        raise UserError(
            "memory ran out at a single completion; load the model with dtype bfloat16, or a "
            "smaller one"
        )
    half = len(rows) // 2
    return in_halves(run, rows[:half]) + in_halves(run, rows[half:])


def memory_ran_out(error: Exception) -> bool:
    """Return whether an error says that memory is full, of this machine or of a GPU.

    If so, also give back the memory of the GPU that torch holds without need.
    """
    # By name, because torch may not be imported here.
    is_gpu_error = type(error).__name__ == "OutOfMemoryError"
    if not isinstance(error, MemoryError) and not is_gpu_error:
        return False

    import torch

    torch.cuda.empty_cache()
    return True
