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
    """Return the memory after one more attempt to write its failed items.

    Each item is written in two halves, since its prompt may have been too long for the model. A
    half that fails again becomes a failed item of the memory, with one more attempt counted.

    Args:
        writer: The writer.
        memory: The memory, with its failed items beside it.
        max_attempts: Items that were tried so often stay failed, and are not tried again.
    """
    items_to_retry: list[FailedItem] = []
    still_failed: list[FailedItem] = []
    for failed in memory.failed_items:
        if failed.attempts < max_attempts:
            items_to_retry.append(failed)
        else:
            still_failed.append(failed)
    if not items_to_retry:
        return memory

    # Writers only get memories without failed items, so these are put back at the end.
    memory = without_failed(memory)
    for failed in items_to_retry:
        for half in failed.halves():
            update = writer.update_with_part(memory, writer.preprocess(half))
            update = check_update(update, writer)
            memory = update.memory
            still_failed.extend(_as_failed(update.failed_items, attempts=failed.attempts + 1))
    return memory.replace(failed_items=tuple(still_failed))


def without_failed(memory: MemoryT) -> MemoryT:
    """Return the memory without its failed items."""
    if not memory.failed_items:
        return memory
    return memory.replace(failed_items=())


def with_failed(update: Update[MemoryT], earlier: Iterable[FailedItem] = ()) -> MemoryT:
    """Return the memory of an update, with all failed items beside it.

    Args:
        update: What a writer returned: a memory, and the items that it could not write.
        earlier: Items that had failed before.
    """
    failed_items = (*earlier, *_as_failed(update.failed_items))
    if not failed_items:
        return update.memory
    return update.memory.replace(failed_items=failed_items)


def check_update(update: Update[MemoryT], writer: Writer[MemoryT, Any]) -> Update[MemoryT]:
    """Return the update that a writer's hook returned, if it is one.

    Raises:
        UserError: The hook returned something else, e.g. the memory alone.
    """
    if not isinstance(update, Update):
        raise UserError(
            f"{type(writer).__name__} returned a {type(update).__name__} where an Update is "
            "expected; return mempiler.Update(memory)"
        )
    return update


def _as_failed(items: Iterable[Item], attempts: int = 1) -> list[FailedItem]:
    """Return a `FailedItem` for each item that a writer could not write.

    Turns without a text or a caption are dropped: there is nothing in them to write.

    Args:
        items: The items that could not be written.
        attempts: How often they have been tried.
    """
    failed_items: list[FailedItem] = []
    for item in items:
        spoken_ids = [turn.id for turn in item.spoken]
        if spoken_ids:
            # `AnyItem` names all subclasses of `Item`, which pyright cannot know.
            spoken_part = cast("AnyItem", item.select_turns(spoken_ids))
            failed_items.append(FailedItem(item=spoken_part, attempts=attempts))
    return failed_items
