"""What requests and responses about single entries hold."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..memory.amending import LONGEST, LONGEST_BY
from ..memory.stored import MAX_KEY
from .bodies import Body, Said, Time, unicode_text

EntryId = Annotated[
    str,
    Path(description="The id of an entry, as lists, searches and evidence give it", max_length=2 * MAX_KEY),
    AfterValidator(unicode_text),
]
Since = Annotated[Time | None, Query(description="Only what is of this moment or later")]
Until = Annotated[Time | None, Query(description="Only what is from before this moment")]
By = Annotated[str, Field(max_length=LONGEST_BY, examples=["ada"]), AfterValidator(unicode_text)]


class NewText(Body):
    """What an entry says from now on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "I moved to Porto.", "by": "ada"}]})
    text: Annotated[Said, Field(max_length=LONGEST, examples=["I moved to Porto."])]
    by: By = ""
    """Who says so, for the history."""


class EntryChange(BaseModel):
    """One change of an entry."""

    what: Literal["written", "update", "delete", "undo"] = Field(examples=["update"])
    text: str = Field(description="What it said before.", examples=["Ada: I moved to Lisbon."])
    new: str | None = Field(None, description="What it said after an update.", examples=["Ada: I moved to Porto."])
    at: datetime | None = None
    by: str = ""
    turns: list[str] = Field(description="The turns it rests on.", examples=[["chat-17:1"]])


class EntryHistory(BaseModel):
    """What became of an entry, oldest first."""

    entry: str = Field(examples=["chat-17:1"])
    changes: list[EntryChange]


class EntrySession(BaseModel):
    """A session that an entry comes from."""

    id: str = Field(examples=["chat-17"])
    metadata: dict[str, Any] = Field(default={}, examples=[{"channel": "phone"}])


class ListedEntry(BaseModel):
    """One entry of a memory, or a turn that is not in it yet."""

    id: str = Field(examples=["chat-17:1"])
    text: str = Field(examples=["Ada: I moved to Lisbon."])
    kind: str = Field(examples=["turn"])
    time: datetime | None = None
    speaker: str | None = Field(None, examples=["Ada"])
    turns: list[str] = Field(examples=[["chat-17:1"]])
    sessions: list[EntrySession]
    waiting: bool = Field(description="Whether it is a turn that is not in the memory yet.")


class Entries(BaseModel):
    """A page of entries in the order of their ids."""

    entries: list[ListedEntry]
    next: str | None = Field(None, description="The cursor of the next page; null for the last one.")
