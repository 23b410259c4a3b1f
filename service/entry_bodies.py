"""What requests and responses about single entries hold."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, Field

from ..memory.stored import MAX_KEY
from .bodies import unicode_text

EntryId = Annotated[
    str,
    Path(description="The id of an entry, as lists, searches and evidence give it", max_length=2 * MAX_KEY),
    AfterValidator(unicode_text),
]


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
