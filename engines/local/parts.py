"""Parts of a batch: rows of similar length together, so that little is padding; smaller ones where memory runs out.

lengths 40, 9000, 35, 30 ──> [9000, 40], [35, 30]

The padding of a part is at most as long as its text, or `SLACK`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import UserError

Row = TypeVar("Row")
Result = TypeVar("Result")

SLACK = 1024
"""Tokens of padding that a part may have whatever its text is: passes over a few tokens take longer than padding."""


def chunks(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Consecutive parts of at most `size` items."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def buckets(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Parts of at most `size` rows each, by number, the longest rows first.

    Example:
        >>> from mempiler.engines.local.parts import buckets
        >>> buckets([40, 9000, 35, 30], 8)
        [[1, 0], [2, 3]]
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
