"""What could not be taken into a memory is kept in it as it was said, and tried again in smaller pieces.

    take     unwritten turns, in halves ── write_piece ──> memory ── write ──> memory with the next item
    close    unwritten turns, in halves ── write_piece ──> memory ── settle ──> settled memory

A writer says what it could not take in by `memory.left(item, turns)`. It sees memories of which nothing is unwritten,
so it cannot lose what was left before. Folds call these functions in the place of `write` and `settle`; rollouts of
reinforcement learning do not: there, what an action failed to do is to be seen in its reward.
"""

from __future__ import annotations

from typing import Any

from ..memory.memory import Unwritten
from ..records import Item
from .method import Writer

TRIES = 2
"""How often turns are tried without being asked for: as they come, and once more in halves."""


def take(writer: Writer, memory: Any, item: Item, prepared: Any = None) -> Any:
    """The memory with one more item, after what could not be taken in before was tried again.

    Args:
        writer: Whose `write` is called.
        memory: The memory so far.
        item: The next item in time order.
        prepared: What `prepare(item)` returned.
    """
    memory = again(writer, memory)
    return _with(writer.write(bare(memory), item, prepared), memory.unwritten)


def close(writer: Writer, memory: Any) -> Any:
    """The settled memory, after what could not be taken in before was tried again."""
    memory = again(writer, memory)
    return _with(writer.settle(bare(memory)), memory.unwritten) if writer.settles else memory


def again(writer: Writer, memory: Any, most: int = TRIES) -> Any:
    """The memory after one more try of what could not be taken in, in halves.

    Args:
        writer: Whose `write_piece` is called.
        memory: The memory so far.
        most: Tries after which turns are left alone.
    """
    kept = tuple(each for each in memory.unwritten if each.tries >= most)
    if len(kept) == len(memory.unwritten):
        return memory
    waiting, memory = [each for each in memory.unwritten if each.tries < most], bare(memory)
    for each in waiting:
        for piece in each.pieces():
            after = writer.write_piece(memory, piece)
            kept += tuple(one.model_copy(update={"tries": each.tries + 1}) for one in after.unwritten)
            memory = bare(after)
    return memory.model_copy(update={"unwritten": kept})


def bare(memory: Any) -> Any:
    """What a writer is given: the memory as if everything had been taken in."""
    return memory.model_copy(update={"unwritten": ()}) if memory.unwritten else memory


def _with(memory: Any, before: tuple[Unwritten, ...]) -> Any:
    """A writer's result, with what had been left before it."""
    return memory.model_copy(update={"unwritten": (*before, *memory.unwritten)}) if before else memory
