"""The OpenAI-compatible routes: any OpenAI client gains a long-term memory by its base URL.

    client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="TOKEN")
    client.chat.completions.create(model="mempiler", user="ada", messages=[...])

`user` owns the memory; `metadata={"session": "..."}` names a session. A field `mempiler` of a request says more of the
session, and of what is to be recalled; that of an answer holds the session and the evidence. Two answer:

    the program    questions in words. With `stream=True` the words are sent as the model writes them
    the model      what no program answers (tools, images, response formats, several choices), and every request for
                   the model NAME-chat: handed on as it is, with a memory, see `relay`

What fails before the first word of a stream is a status. Where no word came before the answer was whole (a model of
this process, an answer from a cache, a task that makes something else of it), it is stored first, then sent in parts.

Limits: of the program, temperature, penalties and the like are the service's settings, and `usage` is an estimate from
the texts of the request and the answer.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from ..engines.endpoint.deadline import Deadline
from ..programs.streaming import Words
from ..records.context import estimate_tokens
from .chat_bodies import ChatAnswer, ChatRequest, Choice, Completion, Model, Models, Remembered, Tokens
from .conversation import converse, request_of
from .refusals import Refusal
from .relay import Relay
from .service import GUARD, Asked, Service
from .streams import UNBUFFERED, Send, event_of, streamed
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
    caller.check_length(len(body.messages))
    memory = caller.memory(body.user)
    repeated = (x_stainless_retry_count or "0").isdigit() and x_stainless_retry_count not in (None, "0")
    reply = _Reply(body, service, memory, repeated)
    relay = _relay(body, service, memory, repeated)
    call = relay.answer if relay else reply.answer
    answer: Any = await (streamed(call, caller, memory) if body.stream else caller.asking(call, memory))
    service.worker.wake()
    if relay and isinstance(answer, str):
        answer = reply.completion(answer, Remembered(session=relay.session, evidence=()))
    if not (body.stream and isinstance(answer, Completion)):
        return answer
    return StreamingResponse(reply.events(answer), media_type="text/event-stream", headers=UNBUFFERED)


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


class _Reply:
    """The program's answer to one request: stored, and made a completion or the events of a stream."""

    def __init__(self, body: ChatRequest, service: Service, memory: UserMemory, repeated: bool) -> None:
        self._body, self._service, self._memory, self._repeated = body, service, memory, repeated
        self._id, self._created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    def answer(self, deadline: Deadline, send: Send | None = None) -> Completion:
        """Stores, asks and stores, in a thread of its own.

        Args:
            deadline: Of the request.
            send: Takes the headers of a stream, and then its events.

        Raises:
            MempilerError: See `conversation.converse`.
            AnswerChangedError: The words that were sent are not the beginning of the answer.
        """
        begun = False

        def tell(words: str) -> None:
            nonlocal begun
            if not begun and send:
                begun = True
                send({})
                send(self._event({"role": "assistant", "content": ""}))
            if send:
                send(self._event({"content": words}))

        words = Words(tell) if send else None
        gap = timedelta(minutes=self._service.settings.session_gap)
        request = request_of(self._body, self._repeated)
        answer, context, heard = converse(self._memory, request, gap, deadline, words)
        self._service.note(self._memory, self._body.messages[-1].text, answer)
        rests_on = self._memory.evidence(context.hits)
        completion = self.completion(answer, Remembered(session=heard.session, evidence=rests_on))
        if begun and send and words:
            for event in self._ending(completion, words.rest(answer)):
                send(event)
        return completion

    def completion(self, answer: str, remembered: Remembered) -> Completion:
        """The whole answer."""
        sizes = sum(estimate_tokens(message.text) for message in self._body.messages), estimate_tokens(answer)
        return Completion(
            id=self._id,
            created=self._created,
            model=self._service.name,
            choices=[Choice(message=ChatAnswer(content=answer))],
            usage=Tokens(prompt_tokens=sizes[0], completion_tokens=sizes[1], total_tokens=sum(sizes)),
            mempiler=remembered,
        )

    def events(self, completion: Completion) -> Iterator[str]:
        """The events of an answer that is there."""
        yield self._event({"role": "assistant", "content": ""})
        yield from self._ending(completion, completion.choices[0].message.content)

    def _ending(self, completion: Completion, words: str) -> Iterator[str]:
        for part in re.findall(r"\s*\S+\s*?|\s+", words):
            yield self._event({"content": part})
        yield self._event({}, "stop", mempiler=completion.mempiler.model_dump(mode="json"))
        options = self._body.stream_options
        if options and options.include_usage:
            yield event_of({**self._head, "choices": [], "usage": completion.usage.model_dump()})
        yield "data: [DONE]\n\n"

    @property
    def _head(self) -> dict[str, Any]:
        about = {"id": self._id, "created": self._created, "model": self._service.name}
        return {**about, "object": "chat.completion.chunk"}

    def _event(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event_of({**self._head, "choices": [choice], **more})
