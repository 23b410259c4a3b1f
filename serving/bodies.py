"""What requests and responses of a service hold, with examples for its OpenAPI page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ..errors import UserError
from ..memory.amending import LONGEST as LONGEST_TEXT
from ..memory.amending import LONGEST_BY
from ..memory.metadata import LONGEST, MOST_CHOICES
from ..memory.metadata import MOST as MOST_VALUES
from ..memory.stored import ADDRESSABLE, MAX_KEY, name_of
from .view import MOST


def _utc(time: datetime) -> datetime:
    """The same moment in UTC, without a zone: what the records hold."""
    try:
        return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    except OverflowError:
        raise ValueError("this moment is outside the calendar") from None


def _text(time: Any) -> Any:
    """Numbers could be seconds or milliseconds, so only texts are dates."""
    if not isinstance(time, str):
        raise ValueError("a time must be a text of the form 2025-03-05T18:20:00Z")
    return time


def unicode_text(text: str) -> str:
    """A text that a store and a response can hold."""
    if "\x00" in text:
        raise ValueError("a text must not hold the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text must not hold half of a surrogate pair") from None
    return text


def _name(text: str) -> str:
    try:
        return name_of("name", text)
    except UserError as error:
        raise ValueError(str(error)) from None


Name = Annotated[str, Field(min_length=1, max_length=256, pattern=ADDRESSABLE, examples=["ada"]), AfterValidator(_name)]
Text = Annotated[str, AfterValidator(unicode_text)]
Said = Annotated[Text, Field(min_length=1)]
Speaker = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\S$")]
"""A name that stays on its line of a prompt."""
Time = Annotated[datetime, BeforeValidator(_text), AfterValidator(_utc)]


EntryId = Annotated[
    str,
    Path(description="The id of an entry, as lists, searches and evidence give it", max_length=2 * MAX_KEY),
    AfterValidator(unicode_text),
]
Since = Annotated[Time | None, Query(description="Only what is of this moment or later")]
Until = Annotated[Time | None, Query(description="Only what is from before this moment")]
By = Annotated[str, Field(max_length=LONGEST_BY, examples=["ada"]), AfterValidator(unicode_text)]


class Body(BaseModel):
    """Base of request bodies: unknown fields are refused, so that a typing slip is seen."""

    model_config = ConfigDict(extra="forbid")


Plain = Annotated[str, AfterValidator(unicode_text), Field(max_length=LONGEST)] | bool | int | float
Metadata = Annotated[dict[str, Plain], Field(max_length=MOST_VALUES, examples=[{"channel": "phone", "year": 2025}])]


class Range(Body):
    """What a value of a session is to be: all that is given must hold."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"gte": 2024, "lt": 2026}]})
    in_: Annotated[list[Plain] | None, Field(alias="in", min_length=1, max_length=MOST_CHOICES)] = None
    gt: Plain | None = None
    gte: Plain | None = None
    lt: Plain | None = None
    lte: Plain | None = None


Where = Annotated[
    dict[str, Plain | Range], Field(max_length=MOST_VALUES, examples=[{"channel": "phone", "year": {"gte": 2024}}])
]
"""Conditions of the metadata of sessions, all of which must hold."""


class Chosen(Body):
    """What of a memory is looked at."""

    where: Where | None = None
    """Only what rests on sessions whose metadata meet these conditions."""
    since: Time | None = None
    """Only what is of this moment or later; what has no time is left out."""
    until: Time | None = None
    """Only what is from before this moment; what has no time is left out."""

    @property
    def conditions(self) -> dict[str, Any]:
        """`where` as the Python interface takes it."""
        given = self.where or {}
        return {
            name: one.model_dump(by_alias=True, exclude_none=True) if isinstance(one, Range) else one
            for name, one in given.items()
        }


class SaidMessage(Body):
    """One message of a session."""

    role: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w -]+$", examples=["user"])]
    content: Said
    name: Speaker | None = None
    time: Time | None = None


class NewSession(Body):
    """A session to be stored and remembered."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "chat-17",
                    "messages": [
                        {
                            "role": "user",
                            "name": "Ada",
                            "content": "I moved to Lisbon.",
                            "time": "2025-03-05T18:20Z",
                        },
                        {"role": "assistant", "content": "How do you like it so far?"},
                    ],
                }
            ]
        }
    )
    id: Name | None = None
    """Makes the call repeatable: the same session under the same id is stored once."""
    messages: Annotated[list[SaidMessage], Field(min_length=1)]
    metadata: Metadata | None = None
    """A few plain values by name, by which searches and questions choose sessions."""


class Question(Chosen):
    """A question about what is remembered of a user."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"question": "Where does Ada live?"}]})
    question: Said
    options: list[Said] | None = None
    """What to choose from, for programs whose task is a choice."""
    date: Annotated[Said, Field(max_length=64)] | None = None
    """When it is asked, in words; now if left out."""


class Search(Chosen):
    """What to look for in the memory of a user."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"query": "Lisbon", "k": 5, "since": "2025-01-01"}]})
    query: Said
    k: Annotated[int, Field(ge=1, le=MOST)] = 10
    """Most entries of the memory, and most turns that are not in it yet."""


class Health(BaseModel):
    """That the process runs."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """What must work for requests to be served."""

    ready: bool
    parts: dict[str, bool] = Field(
        examples=[{"store": True, "disk": True, "worker": True, "room": True, "tokens": True, "model": True}]
    )


class NewText(Body):
    """What an entry says from now on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "I moved to Porto.", "by": "ada"}]})
    text: Annotated[Said, Field(max_length=LONGEST_TEXT, examples=["I moved to Porto."])]
    by: By = ""
    """Who says so, for the history."""


class Problem(BaseModel):
    """What went wrong."""

    message: str = Field(examples=["there is no such user"])
    type: str = Field(examples=["not_found_error"])
    code: int = Field(examples=[404])


class ErrorBody(BaseModel):
    """The form of every error."""

    error: Problem


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request cannot be served as it is."},
    "5XX": {"model": ErrorBody, "description": "It cannot be served now; it can be repeated."},
}
"""The responses that every route may give besides its own."""
