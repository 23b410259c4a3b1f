"""No memory: nothing is kept or recalled, so that a model answers from the question alone."""

from __future__ import annotations

from ...memory.entry import Entry
from ...memory.memory import Memory
from ...records import Item
from ..method import Method
from ..reader import EntryReader
from ..writer import Update, Writer


# The docstring of a memory class is part of the key of stored memories.
class EmptyMemory(Memory[Entry]):
    """An empty memory."""


class _NothingWriter(Writer[EmptyMemory, None]):
    """Write nothing."""

    Memory = EmptyMemory

    def update(
        self, memory: EmptyMemory, item: Item, extraction: None = None
    ) -> Update[EmptyMemory]:
        return Update(memory)


class NoMemory(Method):
    """Keep and recall nothing. Critical path: no LM call."""

    def __init__(self) -> None:
        reader: EntryReader[EmptyMemory] = EntryReader()
        super().__init__(_NothingWriter(), reader)
