"""The OpenAI-compatible routes: any OpenAI client gains a long-term memory by its base URL.

The program answers questions in words. What no program answers (tools, images, response formats, several choices), and
every request for the model NAME-chat, is handed on as it is, with a memory: see `relay`. What fails before the first
word of a stream is a status. Where no word came before the answer was whole, it is stored first, then sent in parts.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from ...async_bridge import in_thread
from ...engines.call_context import Deadline
from ...programs.answer_stream import AnswerStream
from ...records.token_counts import estimate_tokens
from .schemas import ChatRequest, ResponseExtension
from .conversation import Conversation
from .errors import body_of, failure, log, refusal_of
from .relay import Relay, Send
from .request_context import BEARER_TOKEN, CurrentContext, RequestContext
from ..memories.user_memory import UserMemory

router = APIRouter(prefix="/v1", tags=["chat"], dependencies=[BEARER_TOKEN])

UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of every stream."""
COMPLETION = "OpenAI's chat completion, or the events of one; its field `mempiler` holds the session and the evidence."


@router.get("/models", summary="List the models")
async def models(caller: CurrentContext) -> dict[str, Any]:
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
    caller: CurrentContext,
    x_stainless_retry_count: Annotated[str, Header(include_in_schema=False)] = "0",
) -> Any:
    """Stores what the user says, answers with what is remembered of them, and stores the answer."""
    service = caller.service
    if not service.chats:
        raise HTTPException(400, f"the task {service.program.task.name} does not chat; see /v1/users/{{user}}/ask")
    caller.check_message_count(len(body.messages))
    # What tools say is handed on as it is, and not remembered.
    caller.check_text_lengths(message.text for message in body.messages if message.role not in ("tool", "function"))
    # What no program answers is handed on to the language model.
    beyond, upstream = body.unsupported_field, service.upstream
    if not (upstream and (beyond or body.model == service.chat_name)):
        upstream = None
        if beyond:
            how = "takes a language model at an address that speaks OpenAI's chat; there is none"
            raise HTTPException(400, f"{beyond}: {how}")
        if body.messages[-1].role != "user" or not body.messages[-1].text.strip():
            raise HTTPException(400, "messages: the last message must be of role user, with a text")
    memory = caller.memory(body.user)
    repeated = x_stainless_retry_count.strip("0").isdigit()
    talk = Conversation(memory, body, timedelta(minutes=service.settings.session_gap), repeated)

    def call(deadline: Deadline, send: Send | None = None) -> Response:
        reply = _Reply(service.name, talk, send)
        if (given := talk.store_new_turns()) is not None:
            return reply.end(given, ResponseExtension(session=talk.session, evidence=()))
        return Relay(talk, upstream).answer(deadline, send) if upstream else reply.answer(deadline)

    async def work(deadline: Deadline) -> Response:
        return await in_thread(lambda: call(deadline))

    return await (_streamed(call, caller, memory) if body.stream else caller.run_model_work(work, memory))


@dataclass
class _Reply:
    """The program's answer to one request: stored, and made a completion or, with `send`, the events of a stream."""

    model: str
    conversation: Conversation
    send: Send | None
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    begun: bool = False

    def answer(self, deadline: Deadline) -> Response:
        """Asks and stores, in a thread of its own."""
        words = AnswerStream(self._tell) if self.send else None
        found = self.conversation.ask(words)
        answer = str(found.answer)
        rest = words.remainder(answer) if words else None
        remembered = self.conversation.store_answer(answer, found.context, deadline)
        return self.end(answer, remembered, rest)

    def end(self, answer: str, remembered: ResponseExtension, rest: str | None = None) -> Response:
        """The completion; or sends the end of a stream.

        Args:
            answer: The whole answer.
            remembered: Mempiler's own field.
            rest: What of the answer was not sent; all of it if None.
        """
        body, own = self.conversation.body, remembered.model_dump(mode="json")
        sizes = sum(estimate_tokens(message.text) for message in body.messages), estimate_tokens(answer)
        usage = {"prompt_tokens": sizes[0], "completion_tokens": sizes[1], "total_tokens": sum(sizes)}
        if self.send is None:
            message = {"role": "assistant", "content": answer, "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            about = {"id": self.id, "created": self.created, "model": self.model, "object": "chat.completion"}
            return JSONResponse({**about, "choices": [choice], "usage": usage, "mempiler": own})
        for part in re.findall(r"\s*\S+\s*?|\s+", answer if rest is None else rest):
            self._tell(part)
        self._event([_choice({}, "stop")], mempiler=own)
        if body.stream_options and body.stream_options.include_usage:
            self._event([], usage=usage)
        self.send("data: [DONE]\n\n")
        return Response()

    def _tell(self, words: str) -> None:
        self._event([_choice({"content": words})])

    def _event(self, choices: list[Any], **more: Any) -> None:
        """Sends an event, before the first one the headers and who speaks."""
        about = {"id": self.id, "created": self.created, "model": self.model, "object": "chat.completion.chunk"}
        if self.send and not self.begun:
            self.begun = True
            self.send({})
            self.send(event_of({**about, "choices": [_choice({"role": "assistant", "content": ""})]}))
        if self.send:
            self.send(event_of({**about, "choices": choices, **more}))


def _choice(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


async def _streamed(call: Callable[[Deadline, Send], Response], caller: RequestContext, begins: UserMemory) -> Response:
    """Runs a call in a thread of the pool, and sends its parts as they come; what it returns where it sent nothing.

    A client that goes away ends the work, as that of any request.
    """
    parts: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def send(part: Any) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, part)

    async def work(deadline: Deadline) -> Response:
        return await in_thread(lambda: call(deadline, send))

    task = asyncio.ensure_future(caller.run_model_work(work, begins))
    task.add_done_callback(lambda _: parts.put_nowait(None))
    try:
        headers = await parts.get()
    except asyncio.CancelledError:
        task.cancel()
        raise
    if headers is None:
        return task.result()
    more = {**headers, **UNBUFFERED}
    return StreamingResponse(_parts(parts, task), media_type="text/event-stream", headers=more)


async def _parts(parts: asyncio.Queue[Any], task: asyncio.Future[Any]) -> AsyncIterator[Any]:
    """The parts of a stream; one that breaks off ends with an event that says so, which clients raise as an error."""
    try:
        while (part := await parts.get()) is not None:
            yield part
        if (error := task.exception()) is not None:
            log.error("a stream broke off", extra=failure(error))
            yield event_of(body_of(refusal_of(error)))
    finally:
        task.cancel()


def event_of(value: dict[str, Any]) -> str:
    """A value as an event."""
    return f"data: {json.dumps(value)}\n\n"
