"""A stored memory: its JSON, or what changed in it, and what wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

DOCUMENT_VERSION = 2
"""Version of `Document`. A memory of an older one is refused with the command that rebuilds it."""


@dataclass(frozen=True)
class Stamp:
    """What wrote a memory: a program goes on with it only if it would have written the same."""

    writer: str
    """Digest of what decides the memory: method, settings, writing prompts, memory fields."""
    program: str = ""
    """Digest of the whole program. A changed reading prompt changes it and needs no rebuild."""
    embedder: str = ""
    """Name of the embedder; "" for none."""
    schema: Annotated[int, Field(alias="schema_version")] = DOCUMENT_VERSION
    """Version of `Document`."""

    def writes_like(self, other: Stamp) -> bool:
        """Return whether two writers would have written the same memory.

        `program` does not count: it also changes with prompts that only read the memory.
        """
        own_identity = (self.writer, self.embedder, self.schema)
        return own_identity == (other.writer, other.embedder, other.schema)


@dataclass(frozen=True)
class MemoryChange:
    """What one commit changed in a stored memory: differences as JSON of `memory.changes`."""

    memory: str
    """The difference from the memory before the commit to the memory after it."""
    finalized: str | None = None
    """The difference from the memory after the commit to its finalized form, from which questions
    are answered. None if the finalized form stayed as it was."""


@dataclass(frozen=True)
class ChangeLog:
    """How a memory is stored: its whole text as it once was, and the changes since."""

    text_name: str = ""
    """The name of that text; "" for none."""
    text_length: int = 0
    """The length of the text, in characters."""
    changes_length: int = 0
    """The length of all changes together, in characters."""
    change_count: int = 0
    """How many changes there are."""


@dataclass(frozen=True)
class Document:
    """A stored memory: what a program made of the items of a user up to `position`.

    It is stored, and read, in one of two ways: as its whole text (`memory`, `finalized`), or as
    what is new in it (`change` when it is stored, `since` when it is read).
    """

    memory: str
    """JSON of the memory that further items are written into; "" where changes say what is new."""
    position: int
    """Position of the last item in it; 0 for none."""
    finalized: str | None
    """JSON of the memory that questions are answered from, if it is another than `memory`."""
    finalized_position: int
    """Position of the last item in that; behind `position` while items are being written."""
    speakers: tuple[str, ...]
    """Names of who said something, in order of first appearance."""
    stamp: Stamp
    """What wrote it."""
    partial: tuple[str, ...] = ()
    """Ids of items with turns that could not be written. For `Queue.commit`; not read back."""
    change: MemoryChange | None = None
    """What is new in it, in place of its text. For `Queue.commit`; not read back."""
    since: tuple[MemoryChange, ...] | None = None
    """What is new in it since the `known_log` of `Store.read`, in place of its text."""
    log: ChangeLog = field(default=ChangeLog(), compare=False)
    """How it is stored; with a change, this one included."""
