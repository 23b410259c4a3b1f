"""Hand a chat request on to the language model, with the recalled memory, and its answer back.

- Only texts of the user and of the answer are remembered: whoever can write into a page that a tool
  reads could otherwise write into the memory.
- What is recalled is a block that says that it is data. It stands in the user's own message, where
  it has the least authority; what comes before stays the same, so that the caches of models hold.
- The event that ends an answer waits until the answer is stored.
- What the call has cost is counted before `[DONE]` is sent, after which clients may leave, and also
  if the answer cannot be stored.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from dspy.lm15 import LM15Error
from dspy.utils.exceptions import LMError
from fastapi import Response

from ...async_bridge import in_thread
from ...engines.call_context import Deadline, call_context
from ...engines.endpoint.errors import BrokenReplyError
from ...engines.endpoint.relay import RelayedOutput, Upstream
from ...errors import MempilerError
from ...records import Context
from ..prompt_text import prepend_text
from .conversation import Conversation
from .event_stream import EventStream
from .schemas import ChatRequest

T = TypeVar("T")

_HEADERS_FOR_CLIENTS = (
    "x-ratelimit-",
    "retry-after",
    "openai-processing-ms",
    "openai-version",
)
"""Beginnings of the names of headers that are handed back."""


class Relay:
    """One request that is handed on to the language model.

    Args:
        conversation: The conversation of the request; its new turns are stored.
        upstream: Asks the language model.
        deadline: When the answer is not stored any more.
    """

    def __init__(self, conversation: Conversation, upstream: Upstream, deadline: Deadline) -> None:
        self._conversation = conversation
        self._upstream = upstream
        self._deadline = deadline
        self._hides_usage = False
        """Whether the model is asked to report its usage although the client did not ask for it."""

    async def answer(self, stream: EventStream | None) -> Response | None:
        """Recall, ask the model, and store its answer.

        What the model refuses is returned as it is, also if the client wants a stream. So is the
        answer of an endpoint that does not stream although it was asked to.

        Args:
            stream: Where the events of a streamed answer go; None if the client wants no stream.

        Returns:
            The response; None if all of the answer was sent to the stream.

        Raises:
            LMError: The model cannot be reached, breaks off, or its answer cannot be read.
        """
        context = await self._conversation.recall()
        # With images, a request may be large.
        request = await in_thread(partial(request_with_context, self._conversation.body, context))
        if stream is not None and self._upstream.lm.guard.has_limits:
            self._ask_for_usage(request)

        # The user's requests take turns at the endpoint with the questions of all others.
        owner = self._conversation.memory.owner
        caller = (owner.tenant, owner.user, True)
        with call_context(caller=caller):
            return await self._relay(request, context, stream)

    def _ask_for_usage(self, request: dict[str, Any]) -> None:
        """Let the model report its usage at the end of a stream, which budgets count."""
        options = request.get("stream_options")
        if not isinstance(options, dict):
            options = {}
        self._hides_usage = options.get("include_usage") is not True
        request["stream_options"] = {**options, "include_usage": True}

    async def _relay(
        self, request: Mapping[str, Any], context: Context, stream: EventStream | None
    ) -> Response | None:
        """Ask the model, and store its answer; arguments and errors are those of `answer`.

        Args:
            request: What the endpoint is asked.
            context: What was recalled for it.
            stream: See `answer`.
        """
        async with self._upstream.stream(request) as reply:
            headers = _headers_for_client(reply.headers)
            content_type = reply.headers.get("content-type", "application/json")
            is_answer = reply.status == 200

            if stream is not None and is_answer and content_type.startswith("text/event-stream"):
                stream.begin(headers)
                await self._hand_back_events(reply.lines, request, context, stream)
                return None

            content = b"".join([line async for line in reply.lines])
            if is_answer:
                content = await _in_spare_thread(
                    partial(self._finish_completion, content, request, context)
                )
                content_type = "application/json"
            return Response(content, reply.status, {**headers, "content-type": content_type})

    def _finish_completion(
        self, content: bytes, request: Mapping[str, Any], context: Context
    ) -> bytes:
        """Count the call, store its answer, and return the completion for the client.

        Args:
            content: The completion as the model's endpoint sent it.
            request: What the endpoint was asked.
            context: What was recalled for it.

        Raises:
            BrokenReplyError: The content is no completion.
            StoreError: The answer could not be stored.
        """
        try:
            completion = json.loads(content)
            answer = _storable_text(completion["choices"][0]["message"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise BrokenReplyError("the endpoint's answer is no completion") from error

        # Counted first: the call is paid for, whether or not its answer can be stored.
        output = RelayedOutput()
        output.add(completion)
        self._upstream.count(completion.get("usage"), request, output)
        completion["mempiler"] = self._store_answer(answer, context)
        return json.dumps(completion).encode()

    async def _hand_back_events(
        self,
        lines: AsyncIterable[bytes],
        request: Mapping[str, Any],
        context: Context,
        stream: EventStream,
    ) -> None:
        """Send the lines of a streamed answer; store the answer before the event that ends it.

        Args:
            lines: The answer as it comes from the model's endpoint.
            request: What the endpoint was asked.
            context: What was recalled for it.
            stream: Where the lines go.

        Raises:
            BrokenReplyError: The stream breaks off.
            StoreError: The answer could not be stored.
        """
        reply = _StreamedReply(self._conversation.body.n or 1)
        try:
            await self._send_until_end(lines, reply, request, context, stream)
        except (LM15Error, LMError):
            # A client may leave, and an endpoint hang up, once the answer is whole and sent.
            # What the endpoint would have reported behind it is estimated then.
            if not (reply.is_stored and reply.is_whole):
                raise

        # A whole stream has at least one of two marks: a reason why the answer ends, or [DONE].
        if not reply.is_stored and not reply.is_done:
            raise BrokenReplyError("the endpoint's stream broke off")
        await self._count_once(reply, request)

    async def _send_until_end(
        self,
        lines: AsyncIterable[bytes],
        reply: _StreamedReply,
        request: Mapping[str, Any],
        context: Context,
        stream: EventStream,
    ) -> None:
        """Send lines up to `[DONE]`, or to the end if that does not come.

        Args:
            lines: See `_hand_back_events`, as for the arguments and errors not explained here.
            reply: The lines are added to it.
            request: What the endpoint was asked.
            context: What was recalled for it.
            stream: Where the lines go.

        Raises:
            LM15Error: The endpoint breaks off.
            AbandonedCallError: The client has left.
        """
        async for line in lines:
            chunk = reply.add(line)
            if reply.is_done:
                if not reply.is_stored and not reply.has_error:
                    # Some endpoints give no reason why an answer ends.
                    await self._store_streamed_answer(lines, reply, request, context)
                await self._count_once(reply, request)
                # An endpoint may keep its connection open, so the empty line that ends the event
                # is not waited for.
                stream.send(line.rstrip() + b"\n\n")
                return
            if self._hides_usage and _is_usage_alone(chunk):
                continue

            ends_answer = bool(_first_choice(chunk).get("finish_reason"))
            if not ends_answer or reply.is_stored:
                stream.send(line)
                continue

            # Once a client has read this event, it may rely on it that the answer is stored.
            chunk["mempiler"] = await self._store_streamed_answer(lines, reply, request, context)
            stream.send(b"data: " + json.dumps(chunk).encode() + b"\n")

    async def _store_streamed_answer(
        self,
        lines: AsyncIterable[bytes],
        reply: _StreamedReply,
        request: Mapping[str, Any],
        context: Context,
    ) -> dict[str, Any]:
        """Store the answer of a stream, and return the field `mempiler` of its last chunk.

        If the answer cannot be stored, the call is counted before the error is raised.

        Args:
            lines: What the endpoint has not sent yet.
            reply: The reply, as far as it has come.
            request: What the endpoint was asked.
            context: What was recalled for it.

        Raises:
            StoreError: The answer could not be stored.
        """
        store_answer = partial(self._store_answer, reply.answer, context)
        try:
            extension = await _in_spare_thread(store_answer)
        except MempilerError:
            # The call is paid for all the same. Its usage is reported behind the answer.
            try:
                await reply.add_rest(lines)
            finally:
                await self._count_once(reply, request)
            raise
        reply.is_stored = True
        return extension

    async def _count_once(self, reply: _StreamedReply, request: Mapping[str, Any]) -> None:
        """Count the call of a streamed reply, unless it is counted already.

        Args:
            reply: The reply, as far as it has come.
            request: What the endpoint was asked.
        """
        if reply.is_counted:
            return
        reply.is_counted = True
        count = partial(self._upstream.count, reply.usage, request, reply.output)
        await _in_spare_thread(count)

    def _store_answer(self, answer: str, context: Context) -> dict[str, Any]:
        """Store an answer, and return the field `mempiler` of its completion or last chunk."""
        extension = self._conversation.store_answer(answer, context, self._deadline)
        if not self._deadline.passed:
            self._conversation.keep_answer(answer, context)
        return extension.model_dump(mode="json")


class _StreamedReply:
    """What has come of a streamed reply so far.

    Args:
        answers: For how many answers (`n`) the client asked.
    """

    def __init__(self, answers: int) -> None:
        self.answer = ""
        """The text of the first answer, which alone is stored."""
        self.output = RelayedOutput()
        """All that the model has written."""
        self.usage: object = None
        """What the endpoint reports; None if it has reported nothing."""
        self.is_done = False
        """Whether `[DONE]` has come, which ends the reply."""
        self.is_stored = False
        """Whether the first answer has ended, and was handed to the store."""
        self.has_error = False
        """Whether the endpoint has sent an error in the place of an answer, or of its rest."""
        self.is_counted = False
        """Whether the cost of the call is counted."""
        self._answers = answers
        self._ended_answers = set[int]()
        """The indexes of the answers that have ended."""

    @property
    def is_whole(self) -> bool:
        """Whether all answers have ended."""
        return len(self._ended_answers) >= self._answers

    def add(self, line: bytes) -> dict[str, Any]:
        """Add a line, and return the JSON object in it; {} if it has none."""
        chunk = _chunk_of(line)
        self.answer += _storable_text(_first_choice(chunk).get("delta"))
        self.output.add(chunk)
        self.usage = chunk.get("usage") or self.usage
        for choice in _choices_of(chunk):
            if choice.get("finish_reason"):
                self._ended_answers.add(_index_of(choice))
        if chunk.get("error"):
            self.has_error = True
        if _is_done_mark(line):
            self.is_done = True
        return chunk

    async def add_rest(self, lines: AsyncIterable[bytes]) -> None:
        """Add lines up to `[DONE]`, or as many as come before the endpoint breaks off."""
        if self.is_done:
            return
        with suppress(LM15Error, LMError):
            async for line in lines:
                self.add(line)
                if self.is_done:
                    return


async def _in_spare_thread(call: Callable[[], T]) -> T:
    """Make a call in a thread that is none of those of `in_thread`.

    A relayed request holds a slot at the endpoint, and all threads of `in_thread` may be taken by
    calls that wait for such a slot. There are as many of these threads as requests at most.
    """
    return await anyio.to_thread.run_sync(call, limiter=CapacityLimiter(1))


def request_with_context(body: ChatRequest, context: Context) -> dict[str, Any]:
    """Return the request without Mempiler's fields, and with what was recalled."""
    request = body.model_dump(
        mode="json", exclude_unset=True, exclude={"user", "metadata", "mempiler"}
    )
    if body.metadata is not None:
        labels = body.metadata.model_dump(mode="json", exclude={"session"})
        if labels:
            request["metadata"] = labels

    recalled = context.text()
    if recalled:
        _put_before_last_user_message(request["messages"], recalled)
    return request


def _put_before_last_user_message(messages: list[dict[str, Any]], recalled: str) -> None:
    """Put a recalled text before the words of the user's last message, if there is one."""
    for message in reversed(messages):
        if message["role"] == "user":
            message["content"] = prepend_text(recalled, message.get("content"))
            return


def _headers_for_client(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the model's reply that clients of OpenAI read."""
    selected = {
        name: value for name, value in headers.items() if name.startswith(_HEADERS_FOR_CLIENTS)
    }
    # `x-request-id` is the service's own.
    request_id = headers.get("x-request-id")
    if request_id:
        selected["x-upstream-request-id"] = request_id
    return selected


def _chunk_of(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line of a stream; {} if the line has none."""
    if not line.startswith(b"data:"):
        return {}
    try:
        chunk = json.loads(line.removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return {}
    return chunk if isinstance(chunk, dict) else {}


def _is_done_mark(line: bytes) -> bool:
    """Return whether a line is the event that ends a stream; the space behind `data:` may lack."""
    return line.startswith(b"data:") and line.removeprefix(b"data:").strip() == b"[DONE]"


def _is_usage_alone(chunk: Mapping[str, Any]) -> bool:
    """Return whether a chunk reports the usage, and holds no part of an answer."""
    return bool(chunk.get("usage")) and not chunk.get("choices")


def _choices_of(chunk: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of answers that a chunk has."""
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return []
    return [choice for choice in choices if isinstance(choice, dict)]


def _index_of(choice: Mapping[str, Any]) -> int:
    """Return which answer a choice belongs to; an endpoint may leave out that of an only answer.

    Endpoints may send anything: what is no index is -1.
    """
    index = choice.get("index")
    if index in (None, 0):
        return 0
    return index if isinstance(index, int) else -1


def _first_choice(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the first answer (index 0) that a chunk has; {} if it has none.

    A client may ask for several answers, whose parts come in any order. Only the first is stored.
    """
    for choice in _choices_of(chunk):
        if _index_of(choice) == 0:
            return choice
    return {}


def _storable_text(message: object) -> str:
    """Return the text of a message or of a part of one, "" if it has none.

    NUL characters and halves of surrogate pairs are left out, since no store takes them.
    """
    text = message.get("content") if isinstance(message, dict) else None
    if not isinstance(text, str):
        return ""
    return text.replace("\x00", "").encode("utf-8", "ignore").decode()
