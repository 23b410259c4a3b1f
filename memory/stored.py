"""The records of a memory store: owners, queued items, and memories as documents."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from ..records import AnyItem, Session
from .amending import Amendment
from .incoming import Metadata, Scalar, name_of

DOCUMENT = 2
"""Version of `Document`; a memory of an older one is refused with the command that writes it anew."""

LONGEST_LEASE = 600.0
"""Most seconds for which a user is claimed; a later end was dated by a wrong clock, and counts for nothing."""

Number = Annotated[int, Field(ge=0, lt=2**31 - 1)]
"""What a column of a database holds."""
Position = Annotated[Number, Field(ge=1)]

State = Literal["queued", "remembered", "partial", "failed"]
"""`partial`: in the memory but for turns that could not be taken in, which the memory keeps as `unwritten`."""


@dataclass(frozen=True, order=True)
class Owner:
    """Whose memory it is. Both are names (`name_of`) and plain data: no path, table or query is ever made from them."""

    user: str
    tenant: str = "default"

    def __post_init__(self) -> None:
        object.__setattr__(self, "user", name_of("user", self.user))
        object.__setattr__(self, "tenant", name_of("tenant", self.tenant))

    @classmethod
    def stored(cls, user: str, tenant: str) -> Owner:
        """An owner as a store has it: names from before a rule must not hide a whole store."""
        owner = object.__new__(cls)
        owner.__dict__.update(user=user, tenant=tenant)
        return owner


@dataclass(frozen=True)
class Stamp:
    """Who wrote a memory."""

    writer: str
    """Digest of what decides the memory: method, its settings, writing prompts, the memory's fields."""
    program: str = ""
    """Digest of the whole program; a changed reading prompt changes it and needs no rebuild."""
    embedder: str = ""
    schema: Annotated[int, Field(alias="schema_version")] = DOCUMENT

    def writes_like(self, other: Stamp) -> bool:
        """Whether both would have written the same memory."""
        return (self.writer, self.embedder, self.schema) == (other.writer, other.embedder, other.schema)


@dataclass(frozen=True)
class Change:
    """What changes in a stored memory, as JSON of `memory.deltas`."""

    memory: str
    """From the memory before to this one."""
    settled: str | None = None
    """From this memory to the one that questions are answered from; None where that stays as it was."""


@dataclass(frozen=True)
class Log:
    """How a memory is stored: its text as it once was, and the changes since."""

    base: str = ""
    """Names the text."""
    text: int = 0
    """Characters of the text."""
    changes: int = 0
    """Characters of all changes."""
    count: int = 0
    """How many changes there are."""


@dataclass(frozen=True)
class Document:
    """A stored memory."""

    memory: str
    """JSON of the memory before it is settled: what further items are written into. "" where a change tells it."""
    position: int
    """Position of the last item in it; 0 for none."""
    settled: str | None
    """JSON of the memory that questions are answered from; None where it is never another than `memory`."""
    settled_position: int
    """Position of the last item in that; less than `position` while items are being written."""
    speakers: tuple[str, ...]
    """Names in order of first appearance."""
    stamp: Stamp
    partial: tuple[str, ...] = ()
    """Ids of items of which turns could not be taken in; told to `Store.commit`, and not read back."""
    change: Change | None = None
    """What is new in it, in the place of its text; told to `Store.commit`, and not read back."""
    since: tuple[Change, ...] | None = None
    """What is new in it since what the reader has, in the place of its text."""
    log: Log = field(default=Log(), compare=False)
    """How it is stored; with a change, this one included."""


@dataclass(frozen=True)
class StoredItem:
    """A raw item and how far it got."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    position: Position
    item: AnyItem
    state: State
    attempts: Number = 0
    error: str = ""
    digest: str = ""
    """Identifies a repeated item: of what was given."""


@dataclass(frozen=True)
class Snapshot:
    """One consistent view of a user."""

    owner: Owner
    version: str
    """Changes whenever the memory does; "" for an unknown user."""
    stamp: Stamp | None
    """Who wrote the memory; None while there is none."""
    document: Document | None
    """None while there is none, or where the caller knew this version."""
    waiting: tuple[StoredItem, ...] = ()
    """Items that are not in the settled memory: queued, failed, or not settled with yet; not the `partial` ones."""
    open: tuple[Session, ...] = ()
    """The turns so far of sessions that have not ended."""
    forgets: int = 0
    """How often anybody was forgotten in this store; see `Store.forgets`."""
    amended: int = 0
    """The number of the last amendment; 0 for none."""
    parsed: Mapping[Hashable, Any] = field(default_factory=dict[Hashable, Any], compare=False, repr=False)
    """What waits, by its JSON."""


@dataclass(frozen=True)
class Contents:
    """Everything of a user at one moment."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    owner: Owner
    items: tuple[StoredItem, ...]
    open: tuple[Session, ...] = ()
    document: Document | None = None
    amendments: tuple[Amendment, ...] = ()
    metadata: dict[Position, Metadata] = field(default_factory=dict[int, dict[str, Scalar]])
    """Of the items, by position."""
    open_metadata: dict[str, Metadata] = field(default_factory=dict[str, dict[str, Scalar]])
    """Of the open sessions, by id."""


@dataclass(frozen=True)
class Claim:
    """The right to write one user's memory for a while."""

    owner: Owner
    worker: str
    version: str
