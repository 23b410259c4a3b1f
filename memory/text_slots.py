"""Slots for long work on texts, so that a service does such work for one tenant after the other.

A slot is the permission to do such work now. Words are stemmed and cut in Python, and threads that
do so leave little time to all others of the process. So work on a long text, or on many texts,
waits for a slot first, as for a lock. A service decides who gets the next slot: it sets
`SLOT_FACTORY`. Elsewhere nothing waits.

Example:
    >>> from mempiler.memory.text_slots import split_for_slots, text_slot
    >>> texts = ["a" * 1500, "b" * 1500, "c"]
    >>> for batch in split_for_slots(texts, len):
    ...     with text_slot(sum(map(len, batch))):
    ...         print(len(batch), "texts")
    2 texts
    1 texts
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ..records.context_variables import set_context

T = TypeVar("T")

SLOT_LENGTH = 2000
"""Characters of text that are worked on without a slot. A batch of many texts is about as long."""

SlotFactory = Callable[[], AbstractContextManager[None]]
"""Makes a context manager that waits for a slot, and frees the slot when its block ends."""

SLOT_FACTORY: ContextVar[SlotFactory | None] = ContextVar("slot_factory", default=None)
"""Makes the slots that the running work waits for.

None if it need not wait: outside of a service, and where the work holds a slot already.
"""


@contextmanager
def text_slot(length: int) -> Generator[None]:
    """Wait until long work on texts is allowed, then run the block.

    A slot is this permission, like a lock: in a service, one thread at a time has it. Many threads
    with long texts would leave little time to all others. Short work needs no slot.

    Args:
        length: The length of all texts together, in characters.
    """
    # None means that nothing has to wait: outside of a service, or in the block of another slot.
    make_slot = SLOT_FACTORY.get()
    if make_slot is None or length <= SLOT_LENGTH:
        yield
        return

    # Blocks of `text_slot` may be nested. None lets the inner ones pass: if they waited for a slot
    # while this block holds one, they might wait forever.
    with make_slot(), set_context(SLOT_FACTORY, None):
        yield


def split_for_slots(texts: Iterable[T], length_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Divide many texts into batches, so that others get their turn between two batches.

    The caller works on each batch in a `text_slot`. A batch ends with the text that makes it longer
    than `SLOT_LENGTH`.

    Args:
        texts: The texts, or objects with a text.
        length_of: Returns the length of the text, in characters.
    """
    batch: list[T] = []
    batch_length = 0
    for text in texts:
        batch.append(text)
        batch_length += length_of(text)
        if batch_length > SLOT_LENGTH:
            yield batch
            batch = []
            batch_length = 0

    if batch:
        yield batch
