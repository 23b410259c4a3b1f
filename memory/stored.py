"""The records of a memory store: owners, queued items, and memories as documents.

Owner      whose memory: a tenant and a user
Stamp      who wrote it: program, writing prompts, embedder, version of the document
Document   the memory as JSON, and the position up to which items are in it
Snapshot   one consistent view of all of these
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

from ..errors import UserError
from ..records import Item, Session

DOCUMENT = 2
"""Version of `Document`; a memory of an older one is refused with the command that writes it anew."""

MAX_KEY = 512
"""Longest tenant, user or session id, in characters."""

State = Literal["queued", "remembered", "partial", "failed"]
"""`partial`: in the memory but for turns that could not be taken in, which the memory keeps as `unwritten`."""


@dataclass(frozen=True, order=True)
class Owner:
    """Whose memory it is. Both are plain data: no path, table or query is ever made from them.

    Raises:
        UserError: One of them is empty, too long, or no valid text.
    """

    user: str
    tenant: str = "default"

    def __post_init__(self) -> None:
        check_key("user", self.user)
        check_key("tenant", self.tenant)


@dataclass(frozen=True)
class Stamp:
    """Who wrote a memory."""

    writer: str
    """Digest of what decides the memory: method, its settings, writing prompts, the memory's fields."""
    program: str = ""
    """Digest of the whole program; a changed reading prompt changes it and needs no rebuild."""
    embedder: str = ""
    schema: int = DOCUMENT

    def writes_like(self, other: Stamp) -> bool:
        """Whether both would have written the same memory."""
        return (self.writer, self.embedder, self.schema) == (other.writer, other.embedder, other.schema)


@dataclass(frozen=True)
class Document:
    """A stored memory."""

    memory: str
    """JSON of the memory before it is settled: what further items are written into."""
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


@dataclass(frozen=True)
class StoredItem:
    """A raw item and how far it got."""

    position: int
    item: Item
    state: State
    attempts: int = 0
    error: str = ""


@dataclass(frozen=True)
class Added:
    """What became of an item that was added."""

    id: str
    position: int
    new: bool
    """False if the very same item had been added before."""


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


@dataclass(frozen=True)
class Claim:
    """The right to write one user's memory for a while."""

    owner: Owner
    worker: str
    version: str


@dataclass(frozen=True)
class Summary:
    """One line of `mempiler memories list`."""

    owner: Owner
    items: int
    queued: int
    partial: int
    failed: int
    open_turns: int
    position: int
    stamp: Stamp | None
    updated: float | None
    """Seconds since 1970 of the last change of the memory."""


def check_key(what: str, value: object) -> None:
    """Refuses ids that a database or a line of a prompt cannot hold; everything else is data, however it looks.

    Raises:
        UserError: It is empty, longer than `MAX_KEY`, or holds a control character or half a character.
    """
    if not isinstance(value, str) or not value:
        raise UserError(f"{what} {value!r} must be a text that is not empty")
    if len(value) > MAX_KEY:
        raise UserError(f"{what} {value[:40]!r}... has {len(value)} characters; use at most {MAX_KEY}")
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in value):
        raise UserError(f"{what} {value!r} holds a control character or half a character; use one line of plain text")
