"""Request and response bodies of the service and its clients, as pydantic models.

Chat requests have the form of OpenAI's chat completions; only fields that something here depends on
are declared. What the Python API checks is checked here by the same functions, so that a request
that they refuse is answered like any other malformed one.
"""

from __future__ import annotations

from collections.abc import Mapping
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

from ...memory.answers import ANSWER_ID_PATTERN, MAX_CORRECTION_LENGTH, MAX_USEFUL_ENTRIES
from ...memory.entry_choice import EntryChoice
from ...memory.metadata import Metadata, MetadataFilter
from ...memory.names import (
    HTTP_NAME_PATTERN,
    MAX_AUTHOR_LENGTH,
    MAX_ENTRY_LENGTH,
    MAX_ID_LENGTH,
    StorableText,
    valid_name,
)
from ...memory.results import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    EntryHistory,
    Evidence,
    ListedEntry,
)
from ...records.timestamps import Moment, utc
from ..settings import MAX_MESSAGES

MAX_OPTIONS = 100
"""The most options of one question."""
MAX_WORDS = 100_000
"""The most characters of one text that an agent passes to a tool."""
MAX_PARTS = 1000
"""The most parts of the content of one message."""

# Types of single values. Names and limits are shown on the OpenAPI page.

Name = Annotated[
    str,
    Field(min_length=1, max_length=256, pattern=HTTP_NAME_PATTERN, examples=["ada"]),
    AfterValidator(partial(valid_name, "name")),
]
"""The name of a user or a session."""
NonEmptyText = Annotated[StorableText, Field(min_length=1, examples=["I moved to Lisbon."])]
Speaker = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        # Without control characters and line separators, so that it stays on its line of a prompt.
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*\S$",
    ),
]
Time = Annotated[Moment, AfterValidator(utc)]
EntryId = Annotated[
    StorableText,
    Field(
        description="The id of an entry, as lists, searches and evidence give it",
        max_length=2 * MAX_ID_LENGTH,
    ),
]
After = Annotated[
    StorableText,
    Field(description="`next` of the page before", max_length=MAX_ID_LENGTH),
]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)]
By = Annotated[StorableText, Field(max_length=MAX_AUTHOR_LENGTH, examples=["ada"])]
"""The author of a change, for the history."""

# What agents pass to tools, see `serving.mcp`.
Words = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_WORDS),
]
Most = Annotated[int, Field(ge=1, le=50)]
UsefulEntries = Annotated[tuple[EntryId, ...], Field(max_length=MAX_USEFUL_ENTRIES)]
Conditions = Annotated[
    MetadataFilter | None,
    Field(
        description=(
            "conditions of the metadata of sessions, "
            'such as {"channel": "phone", "year": {"gte": 2024}}'
        )
    ),
]
Since = Annotated[
    Time | None,
    Field(description="only what is of this moment or later, such as 2025-03-05"),
]
Until = Annotated[
    Time | None,
    Field(description="only what is from before this moment; what has no time is left out"),
]


class Body(BaseModel):
    """Base of request bodies: unknown fields are refused, so that a typing slip is seen."""

    model_config = ConfigDict(extra="forbid")


class EntryFilter(Body):
    """Which entries of a memory a request looks at."""

    where: Conditions = None
    since: Since = None
    until: Until = None

    @property
    def as_kwargs(self) -> EntryChoice:
        """The filter as keyword arguments of the Python API."""
        return {"where": self.where, "since": self.since, "until": self.until}


class Listing(EntryFilter):
    """Query of an address that lists entries; `where` is a JSON object there."""

    where: Annotated[Json[MetadataFilter] | None, Field(examples=['{"year": 2025}'])] = None
    cursor: Annotated[str | None, Field(min_length=1, max_length=2048)] = None
    """`next` of the page before."""
    limit: Limit = DEFAULT_PAGE_SIZE


class HistoryQuery(Body):
    """Query of an address that lists the changes of an entry."""

    after: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    """`next` of the page before."""
    limit: Limit = DEFAULT_PAGE_SIZE


class SessionMessage(Body):
    """One message of a session."""

    role: Annotated[
        str,
        Field(min_length=1, max_length=64, pattern=r"^[\w -]+$", examples=["user"]),
    ]
    content: NonEmptyText
    name: Speaker | None = None
    time: Time | None = None


class NewSession(Body):
    """A session to be stored and remembered."""

    id: Name | None = None
    """Makes the call repeatable: the same session under the same id is stored once."""
    messages: Annotated[
        list[SessionMessage],
        Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    ]
    metadata: Metadata | None = None


class Question(EntryFilter):
    """A question about what is remembered of a user."""

    question: NonEmptyText
    options: Annotated[list[NonEmptyText], Field(max_length=MAX_OPTIONS, fail_fast=True)] | None = (
        None
    )
    """What to choose from, for programs whose task is a choice."""
    date: Annotated[NonEmptyText, Field(max_length=64)] | None = None
    """When it is asked, in words; now if left out."""


class Search(EntryFilter):
    """What to look for in the memory of a user."""

    query: NonEmptyText
    k: Limit = 10
    """The most entries of the memory, and the most turns that are not in it yet."""
    fallback: StrictBool = False
    """Whether to return the newest few, as for a question, if no hit may answer the query."""


class NewText(Body):
    """What an entry says from now on."""

    text: Annotated[
        NonEmptyText,
        Field(max_length=MAX_ENTRY_LENGTH, examples=["I moved to Porto."]),
    ]
    by: By = ""


class NewFeedback(Body):
    """What a user says about an answer."""

    answer_id: Annotated[
        str,
        Field(pattern=ANSWER_ID_PATTERN, examples=["ans_5d41402abc4b2a76b9719d911017c592"]),
    ]
    """`answer_id` of the answer."""
    right: StrictBool | None = None
    correction: Annotated[NonEmptyText, Field(max_length=MAX_CORRECTION_LENGTH)] | None = None
    """What the answer should have been. Such an answer counts as wrong."""
    useful_entries: Annotated[
        list[EntryId], Field(max_length=MAX_USEFUL_ENTRIES, fail_fast=True)
    ] = []
    """Ids of entries, or of stored turns, that hold what the right answer needs."""


class ChangedEntry(EntryHistory):
    """A change of an entry, alone, and the entry as it is now."""

    now: ListedEntry | None
    """Null once it is deleted."""


# The chat


class OpenAIModel(BaseModel):
    """Base of OpenAI's bodies: undeclared fields are kept, for the language model."""

    model_config = ConfigDict(extra="allow")


class ContentPart(OpenAIModel):
    """A part of a message's content: a text, an image, a file."""

    type: Annotated[str, Field(max_length=64)]
    text: StorableText | None = None


class ChatMessage(OpenAIModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: (
        StorableText
        | Annotated[list[ContentPart], Field(max_length=MAX_PARTS, fail_fast=True)]
        | None
    ) = None
    name: Speaker | None = None

    @property
    def text(self) -> str:
        """The text of the content; "" for images, files and tool calls."""
        if isinstance(self.content, list):
            texts = [part.text or "" for part in self.content if part.type == "text"]
            return "\n".join(texts)
        return self.content or ""

    @property
    def field_unsupported_by_programs(self) -> str | None:
        """The first field that a program cannot take into account, only a language model; or None.

        A program reads and writes texts: it knows no tools, images or sounds.
        """
        if self.role in ("tool", "function"):
            return "role"
        if isinstance(self.content, list) and any(part.type != "text" for part in self.content):
            return "content"

        extra = self.model_extra or {}
        for name in ("tool_calls", "function_call", "audio"):
            if extra.get(name):
                return name
        return None


class Labels(OpenAIModel):
    """OpenAI's `metadata`, the client's own data; only `session` means something here."""

    session: Name | None = None


class RequestExtension(EntryFilter):
    """The field `mempiler` of a chat request, which no model sees."""

    metadata: Metadata | None = None
    """A few plain values by name, added to those of the session."""


class StreamOptions(OpenAIModel):
    """Options of a stream."""

    include_usage: StrictBool = False


FIELDS_BEYOND_TEXT = (
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
"""Fields that may ask for more than a text, which no program can give."""

TEXT_ONLY_VALUES: tuple[Any, ...] = (
    None,
    False,
    "none",
    0,
    [],
    {},
    ["text"],
    {"type": "text"},
)
"""Values of `FIELDS_BEYOND_TEXT` that ask for nothing more than a text; None is that of a field
that is left out."""

DEFAULT_VALUES: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "stop": [],
    "store": False,
    "service_tier": "auto",
    "parallel_tool_calls": True,
}
"""OpenAI's defaults, which ask for nothing; besides, null asks for nothing in any field."""


class ChatRequest(OpenAIModel):
    """A chat completion request, with fields of OpenAI's that are not declared."""

    model: Annotated[str, Field(max_length=256)] = ""
    messages: Annotated[
        list[ChatMessage],
        Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    ]
    user: Name
    """The user whose memory it is."""
    metadata: Labels | None = None
    mempiler: RequestExtension | None = None
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None

    @property
    def field_unsupported_by_programs(self) -> str | None:
        """The path of the first field that no program can take into account, e.g. `tools`.

        Only a language model can answer a request with such a field. None if there is none.
        """
        # A program gives one answer.
        if self.n is not None and self.n != 1:
            return "n"

        extra = self.model_extra or {}
        for name in FIELDS_BEYOND_TEXT:
            asks_for_text_only = extra.get(name) in TEXT_ONLY_VALUES
            if not asks_for_text_only:
                return name

        for number, message in enumerate(self.messages):
            name = message.field_unsupported_by_programs
            if name is not None:
                return f"messages.{number}.{name}"
        return None

    @property
    def ignored_fields(self) -> list[str]:
        """The paths of fields that ask for something, which a program's answer leaves out.

        For example sampling settings such as `temperature`, and fields that nothing here knows. The
        client is told of them.
        """
        paths: list[str] = []
        for name, value in (self.model_extra or {}).items():
            # A program answers only if these ask for nothing, see `field_unsupported_by_programs`.
            if name in FIELDS_BEYOND_TEXT:
                continue
            is_default = value is None or DEFAULT_VALUES.get(name) == value
            if not is_default:
                paths.append(name)

        if self.metadata is not None:
            labels = self.metadata.model_extra or {}
            paths.extend(f"metadata.{name}" for name in labels)
        if self.stream_options is not None:
            options = self.stream_options.model_extra or {}
            paths.extend(f"stream_options.{name}" for name in options)
        return paths


class ResponseExtension(BaseModel):
    """The field `mempiler` of a completion."""

    session: str = Field(examples=["2025-03-05"])
    evidence: tuple[Evidence, ...]
    answer_id: str = Field(default="", examples=["ans_5d41402abc4b2a76b9719d911017c592"])
    """Names the answer, for feedback."""
    ignored: tuple[str, ...] = ()
    """Fields of the request that the program ignored, e.g. `temperature`."""


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
