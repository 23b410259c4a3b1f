"""What a process keeps of one user from one request to the next."""

from __future__ import annotations

from dataclasses import dataclass

from ...memory.edits import Amendments, EntryEdits
from ...memory.memory import Memory
from ...memory.search.index_cache import Lineage
from ...memory.store.documents import Document
from ...memory.store.records import ParsedRows
from ...programs.method import Method
from .memory_filter import MemoryFilter

FILTER_SLOTS = 8
"""The most filtered parts of a user's memory that are kept."""


@dataclass(frozen=True)
class ParsedMemory:
    """A memory that this process has read from the store."""

    version: str
    """Of the user, as `Snapshot.version`."""
    document: Document
    """As it was stored, but without its texts."""
    memory: Memory
    """What further items are written into."""
    finalized: Memory
    """What questions are answered from."""


@dataclass(frozen=True)
class EditedMemory:
    """What edits left of a memory."""

    source: Memory
    edits: EntryEdits
    result: Memory

    def is_of(self, memory: Memory, edits: EntryEdits) -> bool:
        """Return whether this is what these edits leave of this memory."""
        return self.source is memory and self.edits == edits


@dataclass(frozen=True)
class ActiveAmendments:
    """The amendments of a user that were in force when one of them was the last."""

    last_number: int
    edits: Amendments


class UserCache:
    """What a process keeps of one user from one request to the next.

    Threads share it without a lock. So what belongs together is one object, replaced at once.
    """

    def __init__(self) -> None:
        self.parsed_memory: ParsedMemory | None = None
        """The memory, while the user's version is the same."""
        self.amendments = ActiveAmendments(0, Amendments(()))
        """The amendments that were read last."""
        self._amended_memory: EditedMemory | None = None
        """What the user's amendments left of the memory when they were last applied."""
        self._filtered_memories: dict[int, EditedMemory] = {}
        """What recent filters left of the memory, by slot."""
        self.vectors: dict[bytes, int] = {}
        """The lengths of the vectors that the store has, by key."""
        self.parsed_items = ParsedRows()
        """What was parsed of the last snapshot; see `Snapshot.parsed`."""
        self.pending_lineage = Lineage()
        """The index of the items that are not in the memory."""

    def amend_memory(self, method: Method, memory: Memory, amendments: Amendments) -> Memory:
        """Return what a user's amendments leave of a memory; the last result is kept."""
        known = self._amended_memory
        if known is not None and known.is_of(memory, amendments):
            return known.result

        result = method.apply_edits(memory, amendments)
        self._amended_memory = EditedMemory(memory, amendments, result)
        return result

    def filtered_memory(self, memory: Memory, memory_filter: MemoryFilter) -> Memory | None:
        """Return what a filter leaves of a memory, if that is kept; else None."""
        known = self._filtered_memories.get(_slot_of(memory_filter))
        if known is not None and known.is_of(memory, memory_filter):
            return known.result
        return None

    def keep_filtered_memory(
        self, memory: Memory, memory_filter: MemoryFilter, result: Memory
    ) -> None:
        """Keep what a filter leaves of a memory, in the place of another filter with its slot."""
        edited_memory = EditedMemory(memory, memory_filter, result)
        self._filtered_memories[_slot_of(memory_filter)] = edited_memory


def _slot_of(memory_filter: MemoryFilter) -> int:
    """Return the slot of a filter. Slots are a bound that needs no lock and no order of use."""
    return hash(memory_filter) % FILTER_SLOTS
