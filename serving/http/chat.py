"""The OpenAI-compatible routes: any OpenAI client gains a long-term memory by its base URL.

There are two models. NAME is the program, which answers questions from the memory. NAME-chat is the
language model itself, with the recalled memory beside the user's message (`relay`). It also gets
what no program can answer: tools, images, response formats, several choices.

A failure before the first word of a stream is a status. An answer of which no word came before it
was whole is stored first, then sent in parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Response
from starlette.exceptions import HTTPException

from ...async_bridge import in_thread
from ...engines.call_context import Deadline
from ...engines.endpoint.relay import Upstream
from ...records import Context, Turn
from .completion import Completion
from .conversation import Conversation
from .event_stream import EventStream
from .relay import Relay
from .request_context import BEARER_TOKEN, CurrentContext, RequestContext
from .schemas import ERRORS, ChatRequest, ResponseExtension
from .service import Service

router = APIRouter(prefix="/v1", tags=["chat"], dependencies=[BEARER_TOKEN], responses=ERRORS)

PROGRAM_DESCRIPTION = (
    "The program: it answers questions from the memory in its own short words. "
    "This is what an evaluation measured."
)
CHAT_DESCRIPTION = (
    "Your language model itself, with the recalled memory put beside the user's message. "
    "This is what a chat client wants."
)
COMPLETION_DESCRIPTION = (
    "OpenAI's chat completion, or the events of one; "
    "its field `mempiler` holds the session and the evidence."
)


@router.get("/models", summary="List the models")
async def list_models(context: CurrentContext) -> dict[str, Any]:
    """List what clients may give as `model`: the program, and the language model with a memory."""
    service = context.service
    models = [_model(service, service.name, PROGRAM_DESCRIPTION)]
    if service.upstream is not None:
        models.append(_model(service, service.chat_name, CHAT_DESCRIPTION))
    return {"object": "list", "data": models}


@router.post(
    "/chat/completions",
    summary="Chat with a memory",
    response_model=None,
    responses={
        200: {
            "description": COMPLETION_DESCRIPTION,
            "content": {"application/json": {}, "text/event-stream": {}},
        }
    },
)
async def complete(
    body: ChatRequest,
    context: CurrentContext,
    x_stainless_retry_count: Annotated[str, Header(include_in_schema=False)] = "0",
) -> Response | None:
    """Store the user's new messages, answer the last one with the memory, and store the answer."""
    service = context.service
    _check_request(body, context)
    upstream = _upstream_for(body, service)

    session_gap = timedelta(minutes=service.settings.session_gap)
    # OpenAI's client and others that Stainless generates count in this header how often they have
    # repeated a request. Any number but 0 marks a repetition.
    is_repetition = x_stainless_retry_count.strip("0").isdigit()
    memory = context.memory(body.user)
    conversation = Conversation(memory, body, session_gap, is_repetition)

    stream = EventStream() if body.stream else None
    # The response lists the fields of the request that were ignored. A language model is sent all
    # fields; the program reads only some of them.
    ignored_fields = [] if upstream is not None else body.ignored_fields
    completion = Completion(body, service.name, ignored_fields, stream)
    exchange = _Exchange(conversation, completion, upstream, stream)

    # This waits for a free slot of the tenant. It ends when the client leaves, or when the time
    # for the request is over.
    work = context.run_model_work(exchange.answer, memory)
    if stream is None:
        return await work
    return await stream.response(work)


class _Question(NamedTuple):
    """What is known of a question before any model is asked."""

    stored_answer: str | None = None
    """The answer, if the client repeats a request that was answered."""
    turns_before: tuple[Turn, ...] = ()
    """What the program is shown before the question; () if it is not the program that answers."""


@dataclass(frozen=True)
class _Exchange:
    """What a user says in one request, and the answer to it."""

    conversation: Conversation
    completion: Completion
    """What the answer of the program is sent as."""
    upstream: Upstream | None
    """The language model, if it answers the request; None if the program does."""
    stream: EventStream | None
    """Where the events of the answer go; None if the client wants it in one piece."""

    async def answer(self, deadline: Deadline) -> Response | None:
        """Store what the user says, find the answer, and store it.

        Returns:
            The response; None if all of it was sent to the stream.
        """
        # What the user says is stored before any model is asked.
        question = await in_thread(self._store_question)
        if question.stored_answer is not None:
            return await in_thread(partial(self._repeat_answer, question.stored_answer))

        if self.upstream is not None:
            relay = Relay(self.conversation, self.upstream, deadline)
            return await relay.answer(self.stream)

        prediction = await self.conversation.ask(
            question.turns_before, self.completion.answer_stream
        )
        answer = str(prediction.answer)
        # The client may have read words already. If they are not those of the answer, this is an
        # error, and nothing is stored.
        self.completion.check_words_sent(answer)
        return await in_thread(partial(self._store_answer, answer, prediction.context, deadline))

    def _store_question(self) -> _Question:
        """Store what the user says, unless it was answered before."""
        self.conversation.enter_session()
        stored_answer = self.conversation.stored_answer()
        if stored_answer is not None:
            return _Question(stored_answer)

        self.conversation.store_new_turns()
        if self.upstream is not None:
            # The language model is sent the messages themselves.
            return _Question()
        return _Question(turns_before=self.conversation.turns_before_question())

    def _repeat_answer(self, stored_answer: str) -> Response | None:
        """Return the response with an answer that is stored already, or send it to the stream."""
        extension = ResponseExtension(
            session=self.conversation.session_id,
            evidence=(),
            answer_id=self.conversation.answer_id,
        )
        return self.completion.finish(stored_answer, extension)

    def _store_answer(self, answer: str, context: Context, deadline: Deadline) -> Response | None:
        """Store an answer of the program; return the response, or send it to the stream."""
        extension = self.conversation.store_answer(answer, context, deadline)
        return self.completion.finish(answer, extension)


def _check_request(body: ChatRequest, context: RequestContext) -> None:
    """Refuse a request that is too large, or for a program that does not chat.

    Raises:
        HTTPException: 400 or 413.
    """
    service = context.service
    if not service.chats:
        task = service.program.task.name
        raise HTTPException(400, f"the task {task} does not chat; see /v1/users/{{user}}/ask")

    context.check_message_count(len(body.messages))
    # What tools say is handed on as it is, and not remembered.
    context.check_text_lengths(
        message.text for message in body.messages if message.role not in ("tool", "function")
    )


def _upstream_for(body: ChatRequest, service: Service) -> Upstream | None:
    """Return the language model if it is to answer the request; None if the program is.

    The language model answers where the client names it (`NAME-chat`), and where the request has a
    field that no program supports. Without a language model to relay to, the program answers both
    names.

    Raises:
        HTTPException: Neither can answer the request (400).
    """
    unsupported_field = body.field_unsupported_by_programs
    if service.upstream is not None:
        is_language_model_named = body.model == service.chat_name
        if is_language_model_named or unsupported_field is not None:
            return service.upstream

    if unsupported_field is not None:
        raise HTTPException(
            400,
            f"{unsupported_field}: only a language model can do this, and this service has none"
            " whose address speaks OpenAI's chat",
        )
    last_message = body.messages[-1]
    if last_message.role != "user" or not last_message.text.strip():
        raise HTTPException(400, "messages: the last message must be of role user, with a text")
    return None


def _model(service: Service, name: str, description: str) -> dict[str, Any]:
    """Return a model in OpenAI's form, with a description."""
    return {
        "id": name,
        "object": "model",
        "created": service.started,
        "owned_by": "mempiler",
        "description": description,
    }
