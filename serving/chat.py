"""The OpenAI-compatible routes: any OpenAI client gains a long-term memory by its base URL.

    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="TOKEN")
    client.chat.completions.create(model="mempiler", user="ada", messages=[...])

`user` owns the memory; `metadata={"session": "..."}` names a session. A field `mempiler` of a request says more of the
session, and of what is to be recalled; that of an answer holds the session and the evidence. Two answer:

    the program    questions in words. With `stream=True` the words are sent as the model writes them (`spoken`)
    the model      what no program answers (tools, images, response formats, several choices), and every request for
                   the model NAME-chat: handed on as it is, with a memory, see `relay`

Limits: of the program, temperature, penalties and the like are the service's settings, and `usage` is an estimate from
the texts of the request and the answer.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from ..engines.deadline import Deadline
from .auth import GUARD, Asked
from .chat_bodies import ChatRequest, Completion, Model, Models, Remembered
from .conversation import Reply, converse, request_of
from .refusals import Refusal
from .relay import Relay
from .routes import check_length
from .service import Service
from .spoken import Spoken
from .streams import UNBUFFERED, Send, streamed
from .user_memory import UserMemory

router = APIRouter(prefix="/v1", tags=["chat"], dependencies=[GUARD])


@router.get("/models", summary="List the models")
async def models(caller: Asked) -> Models:
    """The program that is served, and the language model with a memory, under names clients may give as `model`."""
    service = caller.service
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
    caller: Asked,
    x_stainless_retry_count: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Any:
    """Stores what the user says, answers with what is remembered of them, and stores the answer."""
    service = caller.service
    if not service.chats:
        raise Refusal(400, f"the task {service.program.task.name} does not chat; see /v1/users/{{user}}/ask")
    check_length(len(body.messages), service)
    # A stream enters its pool by a task of its own.
    memory = await caller.begun(body.user, service.asking, later=bool(body.stream))
    repeated = (x_stainless_retry_count or "0").isdigit() and x_stainless_retry_count not in (None, "0")
    spoken = Spoken(body, service.name)
    relay = _relay(body, service, memory, repeated)
    call = relay.answer if relay else partial(_complete, spoken, service, memory, repeated)
    answer: Any = await (streamed(call, caller) if body.stream else caller.asking(call))
    service.worker.wake()
    if relay and isinstance(answer, str):
        answer = spoken.completion(answer, Remembered(session=relay.session, evidence=()))
    if not (body.stream and isinstance(answer, Completion)):
        return answer
    return StreamingResponse(spoken.events(answer), media_type="text/event-stream", headers=UNBUFFERED)


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


def _complete(
    spoken: Spoken, service: Service, memory: UserMemory, repeated: bool, deadline: Deadline, send: Send | None = None
) -> Completion:
    body = spoken.body
    words = spoken.words(send) if send else None
    gap = timedelta(minutes=service.settings.session_gap)
    reply: Reply = converse(memory, request_of(body, repeated), gap, deadline, words)
    service.note(memory, body.messages[-1].text, reply.answer)
    remembered = Remembered(session=reply.session, evidence=memory.evidence(reply.context.hits, reply.seen))
    completion = spoken.completion(reply.answer, remembered)
    spoken.end(completion)
    return completion
