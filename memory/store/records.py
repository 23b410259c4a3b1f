"""What a memory store keeps and returns: owners, raw items, and memories as documents.

The store keeps these things of a user. *Items* are what was said, in the order in which they came;
each has a position and a state. The *document* is the memory that a program made of the items up to
a position. *Amendments* are the user's changes of single entries (`memory.edits`). *Answers* are
kept only where users may rate them (`memory.answers`).

    >>> from mempiler.memory.store.store import Store
    >>> from mempiler.memory.store.owner import Owner
    >>> from mempiler.records import Session, Turn
    >>> ada = Owner("ada")
    >>> turn = Turn(id="", speaker="Ada", text="I moved to Lisbon.")
    >>> with Store("memories.sqlite") as store:
    ...     added = store.items.add(ada, Session(id="chat", turns=(turn,)))
    ...     snapshot = store.read(ada)
    >>> [(stored.position, stored.state) for stored in snapshot.pending_items]
    [(1, 'queued')]
    >>> snapshot.document is None
    True

All of these are frozen values, read in one transaction: nothing changes in them afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field

from ...records import AnyItem, Item, Session, Turn
from ..answers import MAX_ANSWERS, KeptAnswer, StoredFeedback
from ..edits import Amendment
from ..metadata import Metadata, Scalar
from .documents import Document, Stamp
from .owner import Owner
from .states import State

MAX_LEASE = 600.0
"""The longest time for which a worker may claim a user, in seconds.

A claim that ends later than that from now was dated by a wrong clock, and counts for nothing.
"""

Number = Annotated[int, Field(ge=0, lt=2**31 - 1)]
"""What an integer column of a database holds."""
Position = Annotated[Number, Field(ge=1)]
"""The place of an item among all items of its user, from 1."""


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
class ParsedRows:
    """What a snapshot has parsed, by its JSON: the next snapshot need not parse it again."""

    items: dict[str, AnyItem] = field(default_factory=dict[str, AnyItem])
    """By the JSON of the item."""
    turns: dict[str, Turn] = field(default_factory=dict[str, Turn])
    """By the JSON of the turn."""
    sessions: dict[tuple[str, ...], Session] = field(default_factory=dict[tuple[str, ...], Session])
    """Open sessions, by their id and the JSON of all their turns."""


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
    pending_items: tuple[StoredItem, ...] = ()
    """Items that are not in the finalized memory: queued, given up, or written since then."""
    open_sessions: tuple[Session, ...] = ()
    """Sessions that have not ended, with the turns so far."""
    forget_count: int = 0
    """How often anybody was forgotten in this store; see `forgetting.Forgetting.count`."""
    last_amendment: int = 0
    """The number of the user's last amendment; 0 for none."""
    parsed: ParsedRows = field(default_factory=ParsedRows, compare=False, repr=False)
    """Pass it to the next `Store.read`, which parses only what is new."""


@dataclass(frozen=True)
class UserDump:
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
    answers: Annotated[tuple[KeptAnswer, ...], Field(max_length=MAX_ANSWERS)] = ()
    """Answers that were kept for feedback, oldest first."""
    feedback: Annotated[tuple[StoredFeedback, ...], Field(max_length=MAX_ANSWERS)] = ()
    """What the user said about these answers."""


@dataclass(frozen=True)
class Claim:
    """The right of a worker to write one user's memory for a while; `Queue.commit` needs it."""

    owner: Owner
    worker: str
    """The name of the worker."""
    version: str
    """The version of the memory when it was claimed. When the memory has another version, e.g.
    because another worker took over, the claim is void."""


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
    """Whether the bytes of deleted rows are gone from the database file."""

    erased: bool | None
    """None where a database server decides that."""
    held_by: str = ""
    """For the user: why the bytes are still there, and when they go; "" if they are gone."""
    is_too_large: bool = False
    """Whether the file is too large to be rewritten, which another attempt would not change."""

    @property
    def is_final(self) -> bool:
        """Whether another attempt would change nothing."""
        return bool(self.erased) or self.is_too_large
