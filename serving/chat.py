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

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse, StreamingResponse

from ..engines.endpoint.chat import Upstream
from ..engines.endpoint.deadline import Deadline
from ..programs.streaming import Words
from ..records.context import estimate_tokens
from .bodies import ChatRequest, Remembered
from .conversation import Conversation
from .refusals import Refusal
from .relay import Relay
from .service import GUARD, Asked, Service
from .streams import UNBUFFERED, Send, event_of, streamed

CHUNK = "chat.completion.chunk"
"""What the events of a stream are called."""

router = APIRouter(prefix="/v1", tags=["chat"], dependencies=[GUARD])


COMPLETION = "OpenAI's chat completion, or the events of one; its field `mempiler` holds the session and the evidence."


@router.get("/models", summary="List the models")
async def models(caller: Asked) -> dict[str, Any]:
    """The program that is served, and the language model with a memory, under names clients may give as `model`."""
    service = caller.service
    names = [service.name, *([service.chat_name] if service.upstream else [])]
    about = {"object": "model", "created": service.started, "owned_by": "mempiler"}
    return {"object": "list", "data": [{"id": name, **about} for name in names]}


@router.post(
    "/chat/completions",
    summary="Chat with a memory",
    responses={200: {"description": COMPLETION, "content": {"application/json": {}, "text/event-stream": {}}}},
)
async def complete(
    body: ChatRequest,
    caller: Asked,
    x_stainless_retry_count: Annotated[str, Header(include_in_schema=False)] = "0",
) -> Any:
    """Stores what the user says, answers with what is remembered of them, and stores the answer."""
    service = caller.service
    if not service.chats:
        raise Refusal(400, f"the task {service.program.task.name} does not chat; see /v1/users/{{user}}/ask")
    caller.check_length(len(body.messages))
    upstream, memory = _upstream(body, service), caller.memory(body.user)
    repeated = x_stainless_retry_count.strip("0").isdigit()
    talk = Conversation(memory, body, timedelta(minutes=service.settings.session_gap), repeated)
    reply = _Reply(service, talk)

    def call(deadline: Deadline, send: Send | None = None) -> Response | dict[str, Any]:
        if (given := talk.hear()) is not None:
            return reply.completion(given, Remembered(session=talk.session, evidence=()))
        return Relay(service, talk, upstream).answer(deadline, send) if upstream else reply.answer(deadline, send)

    answer = await (streamed(call, caller, memory) if body.stream else caller.asking(call, memory))
    service.worker.wake()
    if not isinstance(answer, dict):
        return answer
    if not body.stream:
        return JSONResponse(answer)
    return StreamingResponse(reply.events(answer), media_type="text/event-stream", headers=UNBUFFERED)


def _upstream(body: ChatRequest, service: Service) -> Upstream | None:
    """The language model that a request is handed on to; None for one that the program answers.

    Raises:
        Refusal: The program cannot answer it, and no model is within reach.
    """
    beyond = body.beyond
    if service.upstream and (beyond or body.model == service.chat_name):
        return service.upstream
    if beyond:
        raise Refusal(400, f"{beyond}: takes a language model at an address that speaks OpenAI's chat; there is none")
    if not body.asks:
        raise Refusal(400, "messages: the last message must be of role user, with a text")
    return None


class _Reply:
    """The program's answer to one request: stored, and made a completion or the events of a stream."""

    def __init__(self, service: Service, talk: Conversation) -> None:
        self._service, self._talk = service, talk
        about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": service.name}
        self._about: dict[str, Any] = about

    def answer(self, deadline: Deadline, send: Send | None = None) -> dict[str, Any]:
        """Asks and stores, in a thread of its own.

        Args:
            deadline: Of the request.
            send: Takes the headers of a stream, and then its events.

        Raises:
            MempilerError: See `Conversation`.
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
        found = self._talk.ask(words)
        answer = str(found.answer)
        rest = words.rest(answer) if words else ""
        completion = self.completion(answer, self._talk.end(answer, found.context, deadline))
        self._service.note(self._talk.memory, self._talk.body.messages[-1].text, answer)
        if begun and send:
            for event in self._ending(completion, rest):
                send(event)
        return completion

    def completion(self, answer: str, remembered: Remembered) -> dict[str, Any]:
        """The whole answer."""
        messages = self._talk.body.messages
        sizes = sum(estimate_tokens(message.text) for message in messages), estimate_tokens(answer)
        message = {"role": "assistant", "content": answer, "refusal": None}
        return {
            **self._about,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": sizes[0], "completion_tokens": sizes[1], "total_tokens": sum(sizes)},
            "mempiler": remembered.model_dump(mode="json"),
        }

    def events(self, completion: dict[str, Any]) -> Iterator[str]:
        """The events of an answer that is there."""
        yield self._event({"role": "assistant", "content": ""})
        yield from self._ending(completion, completion["choices"][0]["message"]["content"])

    def _ending(self, completion: dict[str, Any], words: str) -> Iterator[str]:
        for part in re.findall(r"\s*\S+\s*?|\s+", words):
            yield self._event({"content": part})
        yield self._event({}, "stop", mempiler=completion["mempiler"])
        options = self._talk.body.stream_options
        if options and options.include_usage:
            yield event_of({**self._about, "object": CHUNK, "choices": [], "usage": completion["usage"]})
        yield "data: [DONE]\n\n"

    def _event(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event_of({**self._about, "object": CHUNK, "choices": [choice], **more})
