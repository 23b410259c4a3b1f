"""The OpenAI-compatible routes: any OpenAI client gains a long-term memory by its base URL.

    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="TOKEN")
    client.chat.completions.create(model="mempiler", user="ada", messages=[...])

`user` owns the memory; `metadata={"session": "..."}` names a session. The answer holds, beside OpenAI's fields, a field
`mempiler` with the session and the evidence. Two answer:

    the program    questions in words. With `stream=True` the answer is made whole, stored, and then sent in parts: an
                   answer must be durable before it is given, and what fails is a status and not half a stream
    the model      what no program answers (tools, images, response formats, several choices), and every request for
                   the model NAME-chat: handed on as it is, with a memory, see `relay`

Limits: of the program, temperature, penalties and the like are the service's settings, and `usage` is an estimate from
the texts of the request and the answer.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from ..engines.deadline import Deadline
from ..programs.user_memory import UserMemory
from ..records.context import estimate_tokens
from .access import GUARD, Places, Served, Tenant, Work, before_waiting
from .chat_bodies import ChatAnswer, ChatRequest, Choice, Completion, Model, Models, Remembered, Tokens
from .conversation import Reply, converse, request_of
from .refusals import Refusal
from .relay import UNBUFFERED, Relay, streamed
from .service import Service
from .users import check_length, evidence

router = APIRouter(prefix="/v1", tags=["chat"], dependencies=[GUARD])


@router.get("/models", summary="List the models")
async def models(service: Served, tenant: Tenant) -> Models:
    """The program that is served, and the language model with a memory, under names clients may give as `model`."""
    names = [service.name, *([service.chat_name] if service.upstream else [])]
    return Models(data=[Model(id=name, created=service.started) for name in names])


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
    memory = await before_waiting(service.memory(tenant, body.user), service.asking, tenant)
    repeated = (x_stainless_retry_count or "0").isdigit() and x_stainless_retry_count not in (None, "0")
    if (relay := _relay(body, service, memory, repeated)) is None:
        completion = await work.asking(lambda deadline: _complete(body, service, memory, repeated, deadline))
    else:
        answer = await _handed_on(relay, work)
        if not isinstance(answer, str):
            service.worker.wake()
            return answer
        completion = _completion(service, body, answer, Remembered(session=relay.session, evidence=[]))
    service.worker.wake()
    if not body.stream:
        return completion
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return StreamingResponse(_events(completion, usage), media_type="text/event-stream", headers=UNBUFFERED)


def _relay(body: ChatRequest, service: Service, memory: UserMemory, repeated: bool) -> Relay | None:
    """What hands a request on to the language model; None for one that the program answers.

    Raises:
        Refusal: The program cannot answer it, and no model is within reach.
    """
    beyond = body.beyond
    if service.upstream and (beyond or body.model == service.chat_name):
        return Relay(body, service, memory, repeated, service.upstream)
    if beyond:
        raise Refusal(400, f"{beyond}: takes a language model at an address that speaks OpenAI's chat; there is none")
    if not body.asks:
        raise Refusal(400, "messages: the last message must be of role user, with a text")
    return None


async def _handed_on(relay: Relay, work: Work) -> Any:
    return await (streamed(relay, work) if relay.body.stream else work.asking(relay.answer))


def _complete(
    body: ChatRequest, service: Service, memory: UserMemory, repeated: bool, deadline: Deadline
) -> Completion:
    request = request_of(body.said(), body.metadata.session if body.metadata else None, repeated)
    reply: Reply = converse(memory, request, timedelta(minutes=service.settings.session_gap), deadline)
    service.note(memory, body.messages[-1].text, reply.answer)
    remembered = Remembered(session=reply.session, evidence=evidence(memory, reply.context, reply.seen))
    return _completion(service, body, reply.answer, remembered)


def _completion(service: Service, body: ChatRequest, answer: str, remembered: Remembered) -> Completion:
    sizes = sum(estimate_tokens(message.text) for message in body.messages), estimate_tokens(answer)
    return Completion(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=service.name,
        choices=[Choice(message=ChatAnswer(content=answer))],
        usage=Tokens(prompt_tokens=sizes[0], completion_tokens=sizes[1], total_tokens=sum(sizes)),
        mempiler=remembered,
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
