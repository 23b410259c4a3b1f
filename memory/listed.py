"""What is told of the entries of a memory, one by one: an entry, a page of them, a line of a history.

A memory of this process and a client of a service return the same of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

PAGE = 100
"""Entries of a page where it is not said how many."""


@dataclass(frozen=True)
class Origin:
    """A session that an entry comes from."""

    id: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Listed:
    """One entry of a memory."""

    id: str
    text: str
    kind: str
    """turn, session, fact, conclusion, situation, topic, summary, ..."""
    time: datetime | None = None
    speaker: str | None = None
    turns: tuple[str, ...] = ()
    """Ids of the turns it rests on."""
    sessions: tuple[Origin, ...] = ()
    """The sessions of these turns, in their order."""
    waiting: bool = False
    """Whether it is a turn that is not in the memory yet."""


@dataclass(frozen=True)
class Page:
    """Some entries, in the order of their ids."""

    entries: tuple[Listed, ...] = ()
    next: str | None = None
    """Where the next page begins; None for the last one."""


@dataclass(frozen=True)
class EntryEvent:
    """One line of the history of an entry."""

    what: Literal["written", "update", "delete", "undo"]
    text: str
    """What it said before; of "written", what it said at first."""
    new: str | None = None
    """What it said afterwards, after an update; what an undo took back."""
    at: datetime | None = None
    """When; of "written", when it is of."""
    by: str = ""
    """Who changed it, in the words of the caller."""
    turns: tuple[str, ...] = ()
    """Ids of the turns it rests on."""
