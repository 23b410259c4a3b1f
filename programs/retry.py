"""Keep turns that could not be written beside the memory, and try them again.

They stand there as `memory.failed_items`, and are searched as they were said. They are tried again
in halves, with the next item and before the memory is finalized. A writer itself only gets
memories without failed items:

    retried = retry_failed(writer, memory)
    update = writer.update(without_failed(retried), item, extraction)
    memory = with_failed(update, retried.failed_items)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ..errors import UserError
from ..memory.memory import FailedItem
from ..records import AnyItem, Item
from .writer import MemoryT, Update, Writer

MAX_ATTEMPTS = 2
"""How often turns are tried unless somebody asks for more: as they come, and in halves."""


def retry_failed(
    writer: Writer[MemoryT, Any], memory: MemoryT, max_attempts: int = MAX_ATTEMPTS
) -> MemoryT:
    """Return the memory after one more attempt at its failed items, in halves.

    Items that had `max_attempts` are kept as they are.
    """
    exhausted = [failed for failed in memory.failed_items if failed.attempts >= max_attempts]
    retryable = [failed for failed in memory.failed_items if failed.attempts < max_attempts]
    if not retryable:
        return memory

    still_failed = exhausted
    memory = without_failed(memory)
    for failed in retryable:
        for half in failed.halves():
            update = checked(writer.update_with_part(memory, writer.preprocess(half)), writer)
            still_failed.extend(_as_failed(update.failed_items, attempts=failed.attempts + 1))
            memory = update.memory
    return memory.replace(failed_items=tuple(still_failed))


def without_failed(memory: MemoryT) -> MemoryT:
    """Return the memory as if everything had been written."""
    if not memory.failed_items:
        return memory
    return memory.replace(failed_items=())


def with_failed(update: Update[MemoryT], earlier: Iterable[FailedItem] = ()) -> MemoryT:
    """Return the memory of an update with what failed beside it, after what failed earlier."""
    failed_items = (*earlier, *_as_failed(update.failed_items))
    if not failed_items:
        return update.memory
    return update.memory.replace(failed_items=failed_items)


def checked(update: Update[MemoryT], writer: Writer[MemoryT, Any]) -> Update[MemoryT]:
    """Return what a writer returned.

    Raises:
        UserError: It is not an `Update`.
    """
    if not isinstance(update, Update):
        raise UserError(
            f"{type(writer).__name__} returned a {type(update).__name__} where an Update is "
            "expected; return mempiler.Update(memory)"
        )
    return update


def _as_failed(items: Iterable[Item], attempts: int = 1) -> list[FailedItem]:
    """Return failed items of those items in which something is said."""
    failed_items: list[FailedItem] = []
    for item in items:
        spoken_ids = [turn.id for turn in item.spoken]
        if spoken_ids:
            spoken_part = cast("AnyItem", item.select_turns(spoken_ids))
            failed_items.append(FailedItem(item=spoken_part, attempts=attempts))
    return failed_items
