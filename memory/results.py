"""Records of memories: a memory of this process returns these records, a service sends them, and a client reads them.

Moments are in UTC, without a zone in Python and with one in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from ..records import Context, Hit, SearchResult
from ..records.timestamps import utc
from .store.documents import Stamp
from .store.owner import Owner
from .store.records import State

DEFAULT_PAGE_SIZE = 100
"""Entries of a page where it is not said how many."""
MAX_PAGE_SIZE = 1000
"""Most entries of one search, or of one page."""

_ZONED = PlainSerializer(lambda time: time.replace(tzinfo=UTC), return_type=datetime, when_used="json")
Moment = Annotated[datetime, AfterValidator(utc), _ZONED]


class _Frozen(BaseModel):
    """Frozen base; what a newer service says beside is passed over."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Added(_Frozen):
    """What became of a session that was added."""

    id: str = Field(examples=["chat-17"])
    position: int = Field(examples=[1])
    new: bool
    """False if the very same session was stored before."""


class Receipt(_Frozen):
    """What was forgotten; false if there was nothing of that name."""

    forgotten: str = Field(examples=["ada"])
    """The user or the session."""
    sessions: int = 0
    turns: int = 0
    erased: bool | None = None
    """Whether the bytes are gone; null where the database decides that."""
    held_by: str = ""
    """What holds them, and when they go."""
    known: bool = Field(default=True, exclude=True)
    """Whether there was anything of that name."""

    def __bool__(self) -> bool:
        return self.known


class MemoryStatus(_Frozen):
    """What is stored of a user."""

    user: str = Field(examples=["ada"])
    sessions: int = 0
    queued: int = 0
    partial: int = 0
    """Sessions with turns that could not be written yet; these are searched raw."""
    failed: int = 0
    open_turns: int = 0
    position: int = 0
    """How many of the sessions were gone through for the memory."""
    updated: float | None = None
    """When the memory last changed, in seconds since 1970."""
    tenant: str = Field(default="", exclude=True)
    stamp: Stamp | None = Field(default=None, exclude=True)
    """Who wrote the memory; None while there is none, and over HTTP."""

    @property
    def owner(self) -> Owner:
        """Whose memory it is."""
        return Owner.stored(self.user, self.tenant)


class Users(_Frozen):
    """The users of a tenant, in order of their names, a page of them."""

    users: tuple[MemoryStatus, ...]
    next: str | None = None
    """`after` of the next page, which may be empty; null for the last one."""


class SessionStatus(_Frozen):
    """How far a session got."""

    id: str = Field(examples=["chat-17"])
    state: Literal["open"] | State
    turns: int = Field(examples=[2])


class Sessions(_Frozen):
    """The sessions of a user, oldest first, open ones last."""

    sessions: tuple[SessionStatus, ...]


class MemoryState(_Frozen):
    """What questions are answered from, in the form of the program's method, and what is not in it yet."""

    user: str = Field(examples=["ada"])
    method: str = Field(examples=["turn-rag"])
    memory: Mapping[str, Any]
    waiting: int = Field(examples=[0])
    """Sessions that are not in it yet; they are searched raw."""


class Origin(_Frozen):
    """A session that an entry comes from."""

    id: str = Field(examples=["chat-17"])
    metadata: Mapping[str, Any] = Field(default={}, examples=[{"channel": "phone"}])


class ListedEntry(_Frozen):
    """One entry of a memory, or a turn that is not in it yet."""

    id: str = Field(examples=["chat-17:1"])
    text: str = Field(examples=["Ada: I moved to Lisbon."])
    kind: str = Field(examples=["turn"])
    """turn, session, fact, conclusion, situation, topic, summary, ..."""
    time: Moment | None = None
    speaker: str | None = Field(default=None, examples=["Ada"])
    turns: tuple[str, ...] = Field(examples=[["chat-17:1"]])
    """Ids of the turns it rests on."""
    sessions: tuple[Origin, ...] = ()
    """The sessions of these turns, in their order."""
    waiting: bool = False
    """Whether it is a turn that is not in the memory yet."""


class EntryPage(_Frozen):
    """Some entries, in the order of their ids."""

    entries: tuple[ListedEntry, ...] = ()
    next: str | None = None
    """The cursor of the next page; null for the last one."""


class EntryChange(_Frozen):
    """One line of the history of an entry."""

    what: Literal["written", "update", "delete", "undo"] = Field(examples=["update"])
    text: str = Field(examples=["Ada: I moved to Lisbon."])
    """What it said before."""
    new: str | None = Field(default=None, examples=["Ada: I moved to Porto."])
    """What it said after an update."""
    at: Moment | None = None
    """When; of "written", when it is of."""
    by: str = ""
    """Who changed it, in the words of the caller."""
    turns: tuple[str, ...] = Field(default=(), examples=[["chat-17:1"]])
    """The turns it rests on."""
    number: int = 0
    """By what a page of a history begins behind it; 0 of "written"."""


class EntryHistory(_Frozen):
    """What became of an entry, oldest first, a page of it."""

    entry: str = Field(examples=["chat-17:1"])
    changes: tuple[EntryChange, ...]
    next: int | None = None
    """`after` of the next page, which may be empty; null for the last one."""


class Source(_Frozen):
    """A turn that evidence rests on, as it was said."""

    id: str = Field(examples=["chat-17:1"])
    speaker: str = Field(examples=["Ada"])
    text: str = Field(examples=["I moved to Lisbon."])
    time: Moment | None = None


class Evidence(_Frozen):
    """One entry of a memory that was recalled or found, or a turn that is not in it yet."""

    id: str = Field(examples=["chat-17:1"])
    text: str = Field(examples=["Ada: I moved to Lisbon."])
    score: float = Field(examples=[2.1])
    kind: str = Field(examples=["turn"])
    label: str = ""
    """What the method calls it, e.g. the type of a fact."""
    speaker: str | None = None
    time: Moment | None = None
    sources: tuple[Source, ...]

    @property
    def hit(self) -> Hit:
        """The same with the ids of its turns."""
        return Hit.model_validate({**dict(self), "sources": tuple(source.id for source in self.sources)})


class FoundEvidence(_Frozen):
    """What a search found, best first; scores of entries and of waiting turns cannot be compared."""

    entries: tuple[Evidence, ...]
    """Entries of the memory."""
    waiting: tuple[Evidence, ...]
    """Turns that are not in the memory yet."""

    @property
    def found(self) -> SearchResult:
        """The same as hits."""
        return SearchResult(*(tuple(one.hit for one in part) for part in (self.entries, self.waiting)))


class Answer(_Frozen):
    """An answer, with what it rests on, best first."""

    answer: str = Field(examples=["Lisbon"])
    evidence: tuple[Evidence, ...]

    @property
    def context(self) -> Context:
        """What it rests on, by the name that it has in the prediction of a memory of this process."""
        return Context(hits=tuple(one.hit for one in self.evidence))
