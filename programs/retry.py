"""Try turns again that could not be written.

They stand beside the memory as `memory.failed_items`, and are searched as they were said. They are
tried again in halves, with the next item and before the memory is finalized. A writer itself only
gets memories without failed items:

    retried = retry_failed(writer, memory)
    updated = writer.update(without_failed(retried), item)
    memory = with_earlier_failures(updated, retried.failed_items)
"""

from __future__ import annotations

from ..memory.memory import FailedItem
from .writer import MemoryT, Writer

MAX_ATTEMPTS = 2
"""How often turns are tried unless somebody asks for more: as they come, and in halves."""


def retry_failed(
    writer: Writer[MemoryT], memory: MemoryT, max_attempts: int = MAX_ATTEMPTS
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
            updated = writer.update_with_part(memory, writer.preprocess(half))
            for failed_again in updated.failed_items:
                attempts = failed.attempts + 1
                still_failed.append(failed_again.model_copy(update={"attempts": attempts}))
            memory = without_failed(updated)
    return memory.model_copy(update={"failed_items": tuple(still_failed)})


def without_failed(memory: MemoryT) -> MemoryT:
    """Return the memory as if everything had been written."""
    if not memory.failed_items:
        return memory
    return memory.model_copy(update={"failed_items": ()})


def with_earlier_failures(memory: MemoryT, earlier: tuple[FailedItem, ...]) -> MemoryT:
    """Return the memory with failed items of earlier steps before its own."""
    if not earlier:
        return memory
    return memory.model_copy(update={"failed_items": (*earlier, *memory.failed_items)})
