"""What a process keeps of one user from one request to the next."""

from __future__ import annotations

from dataclasses import dataclass

from ...memory.edits import Amendments, EntryEdits
from ...memory.memory import Memory
from ...memory.search.index_cache import Lineage
from ...memory.store.documents import Document
from ...memory.store.records import ParsedRows
from ...programs.method import Method


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
        self.edited_memories: dict[int, EditedMemory] = {}
        """What the amendments (0) and recent filters (other places) left of the memory."""
        self.vectors: dict[bytes, int] = {}
        """The lengths of the vectors that the store has, by key."""
        self.parsed_items = ParsedRows()
        """What was parsed of the last snapshot; see `Snapshot.parsed`."""
        self.pending_lineage = Lineage()
        """The index of the items that are not in the memory."""

    def apply_edits(self, place: int, method: Method, memory: Memory, edits: EntryEdits) -> Memory:
        """Return what edits leave of a memory; the last result is kept at each place."""
        known = self.edited_memories.get(place)
        if known is not None and known.source is memory and known.edits == edits:
            return known.result

        result = method.apply_edits(memory, edits)
        self.edited_memories[place] = EditedMemory(memory, edits, result)
        return result
