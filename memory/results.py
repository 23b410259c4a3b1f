"""What the operations on a user's memory return, in Python and over HTTP.

| operation | in Python | over HTTP |
|---|---|---|
| add, replace or end a session | `Added` | `Added` |
| forget a user or a session | `Receipt` | `Receipt` |
| list users | `MemoryStatus` of each | `Users` |
| list sessions | `SessionStatus` of each | `Sessions` |
| read the memory | a `Memory` | `MemoryState` |
| list or get entries | `EntryPage`, `ListedEntry` | `EntryPage`, `ListedEntry` |
| change an entry, read its history | `EntryChange` | `EntryHistory` |
| search | `records.SearchResult` | `FoundEvidence` |
| ask | a prediction of DSPy | `Answer` |
| give feedback on an answer | `Feedback` | `Feedback` |

A service sends these classes as JSON, and `mempiler.Client` reads that back. The docstrings of
classes and fields are what its OpenAPI page shows. Times are in UTC: in Python without a zone, in
JSON with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from ..records import Context, Hit, SearchResult
from ..records.timestamps import utc
from .store.documents import Stamp
from .store.owner import Owner
from .store.states import State

DEFAULT_PAGE_SIZE = 100
"""Entries on a page, if the caller does not say how many."""
MAX_PAGE_SIZE = 1000
"""The most entries on one page, and the most that one search returns."""


def _with_zone(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC)


UtcTime = Annotated[
    datetime,
    AfterValidator(utc),
    PlainSerializer(_with_zone, return_type=datetime, when_used="json"),
]
"""The type of a field that holds a time."""


class _Result(BaseModel):
    """Base of all results. Fields that only a newer service sends are ignored."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


# Sessions that are stored or forgotten.


class Added(_Result):
    """A session that was added, or that had been added before."""

    id: str = Field(examples=["chat-17"])
    position: int = Field(examples=[1])
    """The number of the session among those of its user, from 1."""
    new: bool
    """False if the very same session was stored before."""


class Receipt(_Result):
    """What was forgotten. In Python it is false if there was nothing of that name."""

    forgotten: str = Field(examples=["ada"])
    """The user or the session."""
    sessions: int = 0
    """How many sessions were deleted."""
    turns: int = 0
    """How many turns were deleted."""
    erased: bool | None = None
    """Whether the bytes are gone; null where the database decides that."""
    held_by: str = ""
    """What still holds the bytes, and when they go."""
    known: bool = Field(default=True, exclude=True)
    """Whether there was anything of that name."""

    def __bool__(self) -> bool:
        return self.known


# Users, their sessions and their memories.


class MemoryStatus(_Result):
    """What is stored of a user."""

    user: str = Field(examples=["ada"])
    sessions: int = 0
    """Sessions that have ended."""
    queued: int = 0
    """Sessions that wait to be written into the memory."""
    partial: int = 0
    """Sessions with turns that could not be written yet; these are searched raw."""
    failed: int = 0
    """Sessions that could not be read or written, and are set aside."""
    open_turns: int = 0
    """Turns of sessions that have not ended."""
    position: int = 0
    """How many of the sessions were gone through for the memory."""
    updated: float | None = None
    """When the memory last changed, in seconds since 1970."""
    tenant: str = Field(default="", exclude=True)
    stamp: Stamp | None = Field(default=None, exclude=True)
    """What wrote the memory; None while there is none, and over HTTP."""

    @property
    def owner(self) -> Owner:
        """The user and their tenant."""
        return Owner.stored(self.user, self.tenant)


class Users(_Result):
    """One page of the users of a tenant, in order of their names."""

    users: tuple[MemoryStatus, ...]
    next: str | None = None
    """`after` of the next page, which may be empty; null for the last one."""


class SessionStatus(_Result):
    """How far a session got on its way into the memory."""

    id: str = Field(examples=["chat-17"])
    state: Literal["open"] | State
    turns: int = Field(examples=[2])
    """How many turns it has."""


class Sessions(_Result):
    """The sessions of a user, oldest first, open ones last."""

    sessions: tuple[SessionStatus, ...]


class MemoryState(_Result):
    """The memory of a user from which questions are answered."""

    user: str = Field(examples=["ada"])
    method: str = Field(examples=["turn-rag"])
    """The method of the service's program, which decides what a memory looks like."""
    memory: Mapping[str, object]
    waiting: int = Field(examples=[0])
    """Sessions that are not in the memory yet; they are searched raw."""


# Single entries of a memory.


class Origin(_Result):
    """A session that an entry comes from."""

    id: str = Field(examples=["chat-17"])
    metadata: Mapping[str, object] = Field(default={}, examples=[{"channel": "phone"}])


class ListedEntry(_Result):
    """One entry of a memory, or a turn that is not in it yet."""

    id: str = Field(examples=["chat-17:1"])
    text: str = Field(examples=["Ada: I moved to Lisbon."])
    kind: str = Field(examples=["turn"])
    """turn, session, fact, conclusion, situation, topic, summary, ..."""
    time: UtcTime | None = None
    speaker: str | None = Field(default=None, examples=["Ada"])
    turns: tuple[str, ...] = Field(examples=[["chat-17:1"]])
    """Ids of the turns it rests on."""
    sessions: tuple[Origin, ...] = ()
    """The sessions of these turns, in their order."""
    waiting: bool = False
    """Whether it is a turn that is not in the memory yet."""


class EntryPage(_Result):
    """One page of entries, in the order of their ids."""

    entries: tuple[ListedEntry, ...] = ()
    next: str | None = None
    """The cursor of the next page; null for the last one."""


class EntryChange(_Result):
    """One line of the history of an entry."""

    what: Literal["written", "update", "delete", "undo"] = Field(examples=["update"])
    text: str = Field(examples=["Ada: I moved to Lisbon."])
    """The text before the change."""
    new: str | None = Field(default=None, examples=["Ada: I moved to Porto."])
    """The text after an update."""
    at: UtcTime | None = None
    """The time of the change; for "written", the time of the entry."""
    by: str = ""
    """Who changed it, in the words of the caller."""
    turns: tuple[str, ...] = Field(default=(), examples=[["chat-17:1"]])
    """Ids of the turns it rests on."""
    number: int = 0
    """The number of the change, with which `after` asks for what follows; 0 for "written"."""


class EntryHistory(_Result):
    """One page of the changes of an entry, oldest first."""

    entry: str = Field(examples=["chat-17:1"])
    """The id of the entry."""
    changes: tuple[EntryChange, ...]
    next: int | None = None
    """`after` of the next page, which may be empty; null for the last one."""


# Answers, and the evidence that a search finds.


class Source(_Result):
    """A turn that evidence rests on, as it was said."""

    id: str = Field(examples=["chat-17:1"])
    speaker: str = Field(examples=["Ada"])
    text: str = Field(examples=["I moved to Lisbon."])
    time: UtcTime | None = None


class Evidence(_Result):
    """An entry of a memory that a search or a question found, or a turn that is not in it yet."""

    id: str = Field(examples=["chat-17:1"])
    text: str = Field(examples=["Ada: I moved to Lisbon."])
    score: float = Field(examples=[2.1])
    """How well it fits the query; higher is better."""
    kind: str = Field(examples=["turn"])
    label: str = ""
    """What the method calls it, e.g. the type of a fact."""
    speaker: str | None = None
    time: UtcTime | None = None
    sources: tuple[Source, ...]
    """The turns it rests on."""

    @property
    def hit(self) -> Hit:
        """The evidence as a search returns it in Python: with the ids of its turns alone."""
        return Hit(
            id=self.id,
            text=self.text,
            score=self.score,
            kind=self.kind,
            label=self.label,
            speaker=self.speaker,
            time=self.time,
            sources=tuple(source.id for source in self.sources),
        )


class FoundEvidence(_Result):
    """What a search found, best first.

    Scores of entries cannot be compared with those of waiting turns.
    """

    entries: tuple[Evidence, ...]
    """Entries of the memory."""
    waiting: tuple[Evidence, ...]
    """Turns that are not in the memory yet."""

    @property
    def search_result(self) -> SearchResult:
        """The evidence as a search returns it in Python."""
        return SearchResult(entries=_hits(self.entries), pending=_hits(self.waiting))


class Answer(_Result):
    """An answer, with the evidence that it rests on, best first."""

    answer: str = Field(examples=["Lisbon"])
    evidence: tuple[Evidence, ...]
    answer_id: str = Field(default="", examples=["ans_5d41402abc4b2a76b9719d911017c592"])
    """Names the answer, for feedback."""

    @property
    def context(self) -> Context:
        """The evidence, under the name that it has in a prediction in Python."""
        return Context(hits=_hits(self.evidence))


class Feedback(_Result):
    """What a user said about an answer, as it is stored."""

    answer_id: str = Field(examples=["ans_5d41402abc4b2a76b9719d911017c592"])
    right: bool | None = None
    """Null if the user did not say."""
    correction: str | None = Field(default=None, examples=["Porto"])
    """What the answer should have been."""
    useful_entries: tuple[str, ...] = Field(default=(), examples=[["chat-17:1"]])
    """Ids of the entries that hold what the right answer needs."""
    memory_version: str
    """The version of the memory that the answer was given from."""
    at: UtcTime


def _hits(evidence: tuple[Evidence, ...]) -> tuple[Hit, ...]:
    return tuple(piece.hit for piece in evidence)
