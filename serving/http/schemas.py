"""Request and response bodies of the service and its clients, as pydantic models.

A request of a chat has the form of OpenAI's chat completions as far as something here depends on it. What the Python
interface checks is checked by the same functions; their errors are the caller's, as those of a form are.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    StrictBool,
    StringConstraints,
)

from ...memory.entry_choice import EntryChoice
from ...memory.results import MAX_PAGE_SIZE, DEFAULT_PAGE_SIZE, EntryHistory, Evidence, ListedEntry
from ...memory.metadata import Metadata, MetadataFilter
from ...memory.names import (
    HTTP_NAME_PATTERN,
    MAX_AUTHOR_LENGTH,
    MAX_ENTRY_LENGTH,
    MAX_ID_LENGTH,
    StorableText,
    valid_name,
)
from ...records.timestamps import Moment, utc
from ..settings import MAX_MESSAGES

MAX_OPTIONS = 100
"""Most things to choose from."""
MAX_WORDS = 100_000
"""Most characters of what an agent hands to a tool."""
MAX_PARTS = 1000
"""Most parts of the content of a message."""

Name = Annotated[
    str,
    Field(min_length=1, max_length=256, pattern=HTTP_NAME_PATTERN, examples=["ada"]),
    AfterValidator(partial(valid_name, "name")),
]
NonEmptyText = Annotated[StorableText, Field(min_length=1, examples=["I moved to Lisbon."])]
Speaker = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\S$")]
"""A name that stays on its line of a prompt."""
Time = Annotated[Moment, AfterValidator(utc)]
EntryId = Annotated[
    StorableText,
    Field(description="The id of an entry, as lists, searches and evidence give it", max_length=2 * MAX_ID_LENGTH),
]
After = Annotated[StorableText, Field(description="`next` of the page before", max_length=MAX_ID_LENGTH)]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)]
By = Annotated[StorableText, Field(max_length=MAX_AUTHOR_LENGTH, examples=["ada"])]


class Body(BaseModel):
    """Base of request bodies: unknown fields are refused, so that a typing slip is seen."""

    model_config = ConfigDict(extra="forbid")


Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_WORDS)]
Most = Annotated[int, Field(ge=1, le=50)]
Conditions = Annotated[
    MetadataFilter | None,
    Field(description='conditions of the metadata of sessions, such as {"channel": "phone", "year": {"gte": 2024}}'),
]
Since = Annotated[Time | None, Field(description="only what is of this moment or later, such as 2025-03-05")]
Until = Annotated[Time | None, Field(description="only what is from before this moment; what has no time is left out")]


class EntryFilter(Body):
    """Which entries of a memory are looked at."""

    where: Conditions = None
    since: Since = None
    until: Until = None

    @property
    def as_kwargs(self) -> EntryChoice:
        """The same as the Python interface takes it."""
        return {"where": self.where, "since": self.since, "until": self.until}


class Listing(EntryFilter):
    """Which entries are listed, in the address; conditions are a JSON object there."""

    where: Annotated[Json[MetadataFilter] | None, Field(examples=['{"year": 2025}'])] = None
    cursor: Annotated[str | None, Field(min_length=1, max_length=2048)] = None
    """`next` of the page before."""
    limit: Limit = DEFAULT_PAGE_SIZE


class HistoryQuery(Body):
    """Which changes of an entry's history, in the address."""

    after: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """`next` of the page before."""
    limit: Limit = DEFAULT_PAGE_SIZE


class SessionMessage(Body):
    """One message of a session."""

    role: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[\w -]+$", examples=["user"])]
    content: NonEmptyText
    name: Speaker | None = None
    time: Time | None = None


class NewSession(Body):
    """A session to be stored and remembered."""

    id: Name | None = None
    """Makes the call repeatable: the same session under the same id is stored once."""
    messages: Annotated[list[SessionMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    metadata: Metadata | None = None


class Question(EntryFilter):
    """A question about what is remembered of a user."""

    question: NonEmptyText
    options: Annotated[list[NonEmptyText], Field(max_length=MAX_OPTIONS, fail_fast=True)] | None = None
    """What to choose from, for programs whose task is a choice."""
    date: Annotated[NonEmptyText, Field(max_length=64)] | None = None
    """When it is asked, in words; now if left out."""


class Search(EntryFilter):
    """What to look for in the memory of a user."""

    query: NonEmptyText
    k: Limit = 10
    """Most entries of the memory, and most turns that are not in it yet."""
    fallback: StrictBool = False
    """Whether the newest few are given, as for a question, where nothing found may answer the query."""


class NewText(Body):
    """What an entry says from now on."""

    text: Annotated[NonEmptyText, Field(max_length=MAX_ENTRY_LENGTH, examples=["I moved to Porto."])]
    by: By = ""
    """Who says so, for the history."""


class ChangedEntry(EntryHistory):
    """The change that was made of an entry, alone, and the entry as it is now."""

    now: ListedEntry | None
    """Null once it is deleted."""


class OpenAIModel(BaseModel):
    """Base of OpenAI's bodies: unlisted fields are kept, for the language model."""

    model_config = ConfigDict(extra="allow")


class ContentPart(OpenAIModel):
    """A part of a message's content: a text, an image, a file."""

    type: Annotated[str, Field(max_length=64)]
    text: StorableText | None = None


class ChatMessage(OpenAIModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: StorableText | Annotated[list[ContentPart], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    name: Speaker | None = None

    @property
    def text(self) -> str:
        """The content as one text, of what is no text nothing."""
        if isinstance(self.content, list):
            return "\n".join(part.text or "" for part in self.content if part.type == "text")
        return self.content or ""


class Labels(OpenAIModel):
    """The client's own data; only `session` means something here."""

    session: Name | None = None


class RequestExtension(EntryFilter):
    """The field `mempiler` of a chat request, which no model sees: metadata, and a filter of entries."""

    metadata: Metadata | None = None
    """A few plain values by name, added to those of the session."""


class StreamOptions(OpenAIModel):
    """Options of a stream."""

    include_usage: StrictBool = False


_BEYOND = (
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "modalities",
    "audio",
    "response_format",
    "logprobs",
    "top_logprobs",
    "prediction",
    "web_search_options",
)
"""Fields that ask for more than a text, unless they say what is so without them."""
_PLAIN: tuple[Any, ...] = (None, False, "none", 0, [], {}, ["text"], {"type": "text"})


class ChatRequest(OpenAIModel):
    """A chat completion request, with fields of OpenAI's that are not listed."""

    model: Annotated[str, Field(max_length=256)] = ""
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    user: Name
    """Owns the memory."""
    metadata: Labels | None = None
    mempiler: RequestExtension | None = None
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None

    @property
    def unsupported_field(self) -> str | None:
        """The place of the first thing in it that no program answers, but a language model; None if there is none."""
        extra = self.model_extra or {}
        if self.n not in (None, 1):
            return "n"
        if found := next((name for name in _BEYOND if extra.get(name) not in _PLAIN), None):
            return found
        for n, message in enumerate(self.messages):
            calls, content = message.model_extra or {}, message.content
            if message.role in ("tool", "function"):
                return f"messages.{n}.role"
            if isinstance(content, list) and any(part.type != "text" for part in content):
                return f"messages.{n}.content"
            if found := next((name for name in ("tool_calls", "function_call", "audio") if calls.get(name)), None):
                return f"messages.{n}.{found}"
        return None


class ResponseExtension(BaseModel):
    """The field `mempiler` of a completion: its session and evidence."""

    session: str = Field(examples=["2025-03-05"])
    evidence: tuple[Evidence, ...]


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
