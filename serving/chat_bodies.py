"""What requests and responses of the chat hold: OpenAI's chat completions, as far as something here depends on it.

Whatever else a request says is kept as it is, for the language model behind the service.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from ..errors import UserError
from ..memory.entries import Evidence
from ..memory.metadata import Conditions, checked_metadata
from .bodies import Chosen, Metadata, Name, Speaker, Text


class Part(BaseModel):
    """A part of a message's content: a text, an image, a file."""

    model_config = ConfigDict(extra="allow")
    type: Annotated[str, Field(max_length=64)]
    text: Text | None = None

    @model_validator(mode="after")
    def _holds_its_text(self) -> Part:
        if self.type == "text" and self.text is None:
            raise ValueError("a part of type text must have a text")
        return self


class ChatMessage(BaseModel):
    """A message of the conversation."""

    model_config = ConfigDict(extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | list[Part] | None = None
    name: Speaker | None = None

    @property
    def text(self) -> str:
        """The content as one text, of what is no text nothing."""
        if isinstance(self.content, list):
            return "\n".join(part.text or "" for part in self.content if part.type == "text")
        return self.content or ""

    @property
    def beyond(self) -> str | None:
        """What of it is no text of a user, an assistant or a system; None if it is just that."""
        if self.role in ("tool", "function"):
            return "role"
        if isinstance(self.content, list) and any(part.type != "text" for part in self.content):
            return "content"
        extra = self.model_extra or {}
        return next((name for name in ("tool_calls", "function_call", "audio") if extra.get(name)), None)


class Labels(BaseModel):
    """The client's own data; only `session` means something here."""

    model_config = ConfigDict(extra="allow")
    session: Name | None = None


class Own(Chosen):
    """What is Mempiler's own in a request, and is never handed on: of its session, and of what is recalled."""

    metadata: Metadata | None = None
    """A few plain values by name, added to those of the session."""

    @model_validator(mode="after")
    def _can_be_stored(self) -> Own:
        try:
            checked_metadata(self.metadata)
            Conditions.parse(self.conditions)
        except UserError as error:
            raise ValueError(str(error)) from None
        return self


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="allow")
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


class ChatRequest(BaseModel):
    """A chat completion request, with fields of OpenAI's that are not listed."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "model": "mempiler",
                    "user": "ada",
                    "messages": [{"role": "user", "content": "Where do I live?"}],
                    "metadata": {"session": "2025-03-05"},
                }
            ]
        },
    )
    model: Annotated[str, Field(max_length=256)] = ""
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    user: Name
    """Owns the memory."""
    metadata: Labels | None = None
    mempiler: Own | None = None
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None

    @property
    def beyond(self) -> str | None:
        """The place of the first thing in it that no program answers, but a language model; None if there is none."""
        extra = self.model_extra or {}
        if self.n not in (None, 1):
            return "n"
        if found := next((name for name in _BEYOND if extra.get(name) not in _PLAIN), None):
            return found
        places = ((n, message.beyond) for n, message in enumerate(self.messages))
        return next((f"messages.{n}.{what}" for n, what in places if what), None)

    @property
    def asks(self) -> bool:
        """Whether it ends with what a user says."""
        return self.messages[-1].role == "user" and bool(self.messages[-1].text.strip())

    def said(self) -> list[dict[str, Any]]:
        """The messages with their content as text, as they are stored."""
        named = ((m, {"name": m.name} if m.name else {}) for m in self.messages)
        return [{"role": m.role, "content": m.text, **name} for m, name in named]


class ChatAnswer(BaseModel):
    """The message that answers."""

    role: Literal["assistant"] = "assistant"
    content: str = Field(examples=["You live in Lisbon."])
    refusal: None = None


class Choice(BaseModel):
    """The one choice of a completion."""

    index: int = 0
    message: ChatAnswer
    logprobs: None = None
    finish_reason: Literal["stop"] = "stop"


class Tokens(BaseModel):
    """Estimated sizes in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Remembered(BaseModel):
    """What is Mempiler's own in a completion."""

    session: str = Field(examples=["2025-03-05"])
    evidence: tuple[Evidence, ...]


class Completion(BaseModel):
    """A chat completion in OpenAI's form."""

    id: str = Field(examples=["chatcmpl-5f0c"])
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Tokens
    mempiler: Remembered


class Model(BaseModel):
    """The served program as a model."""

    id: str = Field(examples=["mempiler"])
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "mempiler"


class Models(BaseModel):
    """The program, and the language model behind it where that is within reach."""

    object: Literal["list"] = "list"
    data: list[Model]
