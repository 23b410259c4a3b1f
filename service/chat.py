"""The OpenAI-compatible routes: any OpenAI client gains a long-term memory by its base URL.

    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="TOKEN")
    client.chat.completions.create(model="mempiler", user="ada", messages=[...])

`user` owns the memory; `metadata={"session": "..."}` names a session. The answer holds, beside OpenAI's fields, a field
`mempiler` with the session and the evidence. With `stream=True` the answer is made whole, stored, and then sent in
parts: an answer must be durable before it is given, and what fails is a status and not half a stream.

Limits: temperature, penalties and the like are the service's settings, and are ignored; tools, images, several choices
and response formats are refused. `usage` is an estimate from the texts of the request and the answer.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator

from ..engines.deadline import Deadline
from ..programs.user_memory import UserMemory
from ..records.context import estimate_tokens
from .access import Places, Served, Tenant
from .bodies import Evidence, Name, Speaker, Text
from .conversation import Reply, converse, request_of
from .refusals import Refusal
from .service import Service
from .users import check_length, evidence

router = APIRouter(prefix="/v1", tags=["chat"])

_REFUSED = ("tools", "functions", "modalities", "audio")


class TextPart(BaseModel):
    """A part of a message's content."""

    model_config = ConfigDict(extra="ignore")
    type: Literal["text"]
    text: Text


class ChatMessage(BaseModel):
    """A message of the conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart] | None = None
    name: Speaker | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class Metadata(BaseModel):
    """The client's own data; only `session` means something here."""

    model_config = ConfigDict(extra="allow")
    session: Name | None = None


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")
    include_usage: StrictBool = False


class ChatRequest(BaseModel):
    """A chat completion request; fields of OpenAI's that are not listed are accepted and ignored."""

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
    metadata: Metadata | None = None
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None

    @field_validator("messages")
    @classmethod
    def _ends_with_the_user(cls, messages: list[ChatMessage]) -> list[ChatMessage]:
        if messages[-1].role != "user" or not messages[-1].text.strip():
            raise ValueError("the last message must be of role user, with a text")
        return messages

    @model_validator(mode="after")
    def _asks_for_text(self) -> ChatRequest:
        extra = self.model_extra or {}
        found = next((name for name in _REFUSED if extra.get(name) and extra[name] != ["text"]), None)
        form = extra.get("response_format")
        if found or (form and form != {"type": "text"}):
            raise ValueError(f"{found or 'response_format'} is not supported; leave it out")
        return self


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
    evidence: list[Evidence]


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
    """The one model there is."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/models", summary="List the model")
async def models(service: Served, tenant: Tenant) -> Models:
    """The program that is served, under the name clients may give as `model`."""
    return Models(data=[Model(id=service.name, created=service.started)])


@router.post(
    "/chat/completions",
    summary="Chat with a memory",
    response_model=Completion,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def complete(
    body: ChatRequest,
    service: Served,
    tenant: Tenant,
    work: Places,
    x_stainless_retry_count: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Any:
    """Stores what the user says, answers with what is remembered of them, and stores the answer."""
    if not service.chats:
        raise Refusal(400, f"the task {service.program.task.name} does not chat; see /v1/users/{{user}}/ask")
    check_length(len(body.messages), service)
    # Before it waits for its turn: a user may be forgotten while it does.
    memory = await anyio.to_thread.run_sync(service.writing, tenant, body.user)
    repeated = (x_stainless_retry_count or "0").isdigit() and x_stainless_retry_count not in (None, "0")
    completion = await work.asking(lambda deadline: _complete(body, service, memory, repeated, deadline))
    service.worker.wake()
    if not body.stream:
        return completion
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return StreamingResponse(_events(completion, usage), media_type="text/event-stream", headers=_UNBUFFERED)


_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def _complete(
    body: ChatRequest, service: Service, memory: UserMemory, repeated: bool, deadline: Deadline
) -> Completion:
    messages = [{"role": m.role, "content": m.text, **({"name": m.name} if m.name else {})} for m in body.messages]
    request = request_of(messages, body.metadata.session if body.metadata else None, repeated)
    reply: Reply = converse(memory, request, timedelta(minutes=service.settings.session_gap), deadline)
    service.note(memory, messages[-1]["content"], reply.answer)
    sizes = sum(estimate_tokens(message["content"]) for message in messages), estimate_tokens(reply.answer)
    return Completion(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=service.name,
        choices=[Choice(message=ChatAnswer(content=reply.answer))],
        usage=Tokens(prompt_tokens=sizes[0], completion_tokens=sizes[1], total_tokens=sum(sizes)),
        mempiler=Remembered(session=reply.session, evidence=evidence(memory, reply.context, reply.seen)),
    )


def _events(completion: Completion, usage: bool) -> Iterator[str]:
    """A completion as server-sent events: role, words, end with Mempiler's own field, and the usage if asked for."""
    head = {"id": completion.id, "object": "chat.completion.chunk", "created": completion.created}
    head["model"] = completion.model

    def event(delta: dict[str, Any], reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _line({**head, "choices": [choice], **more})

    yield event({"role": "assistant", "content": ""})
    for part in re.findall(r"\s*\S+\s*?|\s+", completion.choices[0].message.content):
        yield event({"content": part})
    yield event({}, "stop", mempiler=completion.mempiler.model_dump(mode="json"))
    if usage:
        yield _line({**head, "choices": [], "usage": completion.usage.model_dump()})
    yield "data: [DONE]\n\n"


def _line(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"
