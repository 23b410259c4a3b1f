"""What a memory store keeps and returns: owners, raw items, and memories as documents.

The store keeps three things of a user. *Items* are what was said, in the order in which they came;
each has a position and a state. The *document* is the memory that a program made of the items up to
a position. *Amendments* are the user's changes of single entries (`memory.edits`).

    >>> from mempiler.memory.store import Store
    >>> from mempiler.memory.stored import Owner
    >>> from mempiler.records import Session, Turn
    >>> ada = Owner("ada")
    >>> turn = Turn(id="", speaker="Ada", text="I moved to Lisbon.")
    >>> with Store("memories.sqlite") as store:
    ...     added = store.add(ada, Session(id="chat", turns=(turn,)))
    ...     snapshot = store.read(ada)
    >>> [(stored.position, stored.state) for stored in snapshot.waiting]
    [(1, 'queued')]
    >>> snapshot.document is None
    True

All of these are frozen values, read in one transaction: nothing changes in them afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field

from ..records import AnyItem, Item, Session, Turn
from .edits import Amendment
from .incoming import Metadata, Scalar, name_of

DOCUMENT = 2
"""Version of `Document`. A memory of an older one is refused with the command that rebuilds it."""

LONGEST_LEASE = 600.0
"""Most seconds for which a user is claimed; a later end was dated by a wrong clock: ignored."""

Number = Annotated[int, Field(ge=0, lt=2**31 - 1)]
"""What an integer column of a database holds."""
Position = Annotated[Number, Field(ge=1)]
"""The place of an item among all items of its user, from 1."""

State = Literal["queued", "remembered", "partial", "failed"]
"""How far an item got.

`queued`: not in the memory yet. `remembered`: in the memory. `partial`: in the memory but for turns
that could not be written, which it keeps as `Memory.failed_items`. `failed`: given up.
"""


@dataclass(frozen=True, order=True)
class Owner:
    """The user of a tenant whose memory it is.

    Both are names (`name_of`) and plain data: no path, table or query is ever made from them.

    Raises:
        UserError: One of them is no valid name.
    """

    user: str
    tenant: str = "default"

    def __post_init__(self) -> None:
        object.__setattr__(self, "user", name_of("user", self.user))
        object.__setattr__(self, "tenant", name_of("tenant", self.tenant))

    @classmethod
    def stored(cls, user: str, tenant: str) -> Owner:
        """Return an owner that a store has, without a check: an old name must not hide a store."""
        owner = object.__new__(cls)
        owner.__dict__.update(user=user, tenant=tenant)
        return owner


@dataclass(frozen=True)
class Stamp:
    """What wrote a memory: a program goes on with it only if it would have written the same."""

    writer: str
    """Digest of what decides the memory: method, settings, writing prompts, memory fields."""
    program: str = ""
    """Digest of the whole program. A changed reading prompt changes it and needs no rebuild."""
    embedder: str = ""
    """Name of the embedder; "" for none."""
    schema: Annotated[int, Field(alias="schema_version")] = DOCUMENT
    """Version of `Document`."""

    def writes_like(self, other: Stamp) -> bool:
        """Return whether both would have written the same memory."""
        own_identity = (self.writer, self.embedder, self.schema)
        return own_identity == (other.writer, other.embedder, other.schema)


@dataclass(frozen=True)
class Change:
    """The difference between two versions of a stored memory, as JSON of `memory.deltas`."""

    memory: str
    """Leads from `Document.memory` of the version before to that of this one."""
    settled: str | None = None
    """Leads from this memory to the one that questions are answered from; None if that stayed."""


@dataclass(frozen=True)
class Log:
    """How a memory is stored: its whole text as it once was, and the changes since."""

    base: str = ""
    """Names that text."""
    text: int = 0
    """Characters of the text."""
    changes: int = 0
    """Characters of all changes."""
    count: int = 0
    """How many changes there are."""


@dataclass(frozen=True)
class Document:
    """A stored memory: what a program made of the items of a user up to `position`.

    It is stored, and read, in one of two ways: as its whole text (`memory`, `settled`), or as what
    is new in it (`change` when it is stored, `since` when it is read).
    """

    memory: str
    """JSON of the memory that further items are written into; "" where changes say what is new."""
    position: int
    """Position of the last item in it; 0 for none."""
    settled: str | None
    """JSON of the memory that questions are answered from, if it is another than `memory`."""
    settled_position: int
    """Position of the last item in that; behind `position` while items are being written."""
    speakers: tuple[str, ...]
    """Names of who said something, in order of first appearance."""
    stamp: Stamp
    """What wrote it."""
    partial: tuple[str, ...] = ()
    """Ids of items with turns that could not be written. For `Store.commit`; not read back."""
    change: Change | None = None
    """What is new in it, in place of its text. For `Store.commit`; not read back."""
    since: tuple[Change, ...] | None = None
    """What is new in it since the `Log` that was passed to `Store.read`, in place of its text."""
    log: Log = field(default=Log(), compare=False)
    """How it is stored; with a change, this one included."""


@dataclass(frozen=True)
class StoredItem:
    """A raw item, and how far it got."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    position: Position
    item: AnyItem
    state: State
    attempts: Number = 0
    """How often it could not be written."""
    error: str = ""
    """What went wrong last; "" for nothing."""
    digest: str = ""
    """Identifies what was added, so that the same item is not stored twice."""


@dataclass(frozen=True)
class Snapshot:
    """What a store held of a user at one moment; all of it was read in one transaction."""

    owner: Owner
    version: str
    """Changes whenever the memory does; "" for an unknown user."""
    stamp: Stamp | None
    """What wrote the memory; None while there is none."""
    document: Document | None
    """The memory; None while there is none, or where the caller knew this version."""
    waiting: tuple[StoredItem, ...] = ()
    """Items that are not in the finalized memory: queued, given up, or written since then."""
    open: tuple[Session, ...] = ()
    """Sessions that have not ended, with the turns so far."""
    forgets: int = 0
    """How often anybody was forgotten in this store; see `Store.forgets`."""
    amended: int = 0
    """The number of the user's last amendment; 0 for none."""
    parsed: Mapping[Hashable, Any] = field(
        default_factory=dict[Hashable, Any], compare=False, repr=False
    )
    """Parsed items and turns by their JSON. Pass it to the next `Store.read`, which reuses them."""


@dataclass(frozen=True)
class Contents:
    """Everything that a store holds of a user, read in one transaction: for export and restore."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    owner: Owner
    items: tuple[StoredItem, ...]
    open: tuple[Session, ...] = ()
    """Sessions that have not ended."""
    document: Document | None = None
    amendments: tuple[Amendment, ...] = ()
    metadata: dict[Position, Metadata] = field(default_factory=dict[int, dict[str, Scalar]])
    """Metadata of the items, by position."""
    open_metadata: dict[str, Metadata] = field(default_factory=dict[str, dict[str, Scalar]])
    """Metadata of the open sessions, by id."""


@dataclass(frozen=True)
class Claim:
    """The right to write one user's memory for a while; `Store.commit` needs it."""

    owner: Owner
    worker: str
    """Names who holds it."""
    version: str
    """The version of the memory that it was given for; void when the memory has another one."""


class StoredTurn(NamedTuple):
    """A turn, and the item that it is in."""

    turn: Turn
    item: Item


class SessionInfo(NamedTuple):
    """What a store knows of a session beside its turns."""

    id: str
    metadata: dict[str, Any]


class IdleSession(NamedTuple):
    """An open session in which nobody has said anything for a while."""

    owner: Owner
    session: str
    """Its id."""


class Erasure(NamedTuple):
    """Whether the bytes of what was forgotten are gone."""

    erased: bool | None
    """None where a database server decides that."""
    held_by: str
    """What still holds them, and when they go; "" if nothing does."""
