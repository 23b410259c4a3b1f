"""Hand requests on to an endpoint as they are, and its replies back as they come.

    upstream = upstream_of(lm)
    async with upstream.stream({"messages": [{"role": "user", "content": "Hi"}]}) as reply:
        async for line in reply.lines:
            print(line)
    upstream.count(usage, body, output)

No thread waits for the endpoint: requests are made in the event loop of `loop`, and the caller's
own event loop awaits the parts of the reply.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dspy.clients.errors import error_boundary
from dspy.lm15 import AsyncOpenAIChatLM, LM15Error
from dspy.utils.exceptions import LMAuthError, LMTransportError

from ...async_bridge import in_thread
from ...records import estimate_tokens, fewest_tokens
from ..metered_lm import MeteredLM
from ..token_counts import believable_count, text_of_messages, token_number
from ..usage import Usage
from .client import Client
from .engine import Engine
from .line_buffer import LineBuffer
from .loop import aiterate

if TYPE_CHECKING:
    from .transport import PlainRequest


RESERVED_PART_TOKENS = 4096
"""Tokens that are reserved for an image, a file or another part of a message that is no text."""


class RelayedReply(NamedTuple):
    """A reply of an endpoint, without the secrets that the endpoint was sent."""

    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""
    lines: AsyncIterable[bytes]
    """The body as it comes, with its newlines."""


class _ReplyPart(NamedTuple):
    """A part of a reply: first the head, without content, then the content as it comes."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class RelayedOutput:
    """All that a model writes in one reply: the texts and tool calls of each of its answers.

    It is added in whole messages, or in the parts of a stream, which come in any order.
    """

    def __init__(self) -> None:
        self._texts = defaultdict[str, list[str]](list)
        """The parts of each text, by a key that tells in which answer it is, and where."""

    def add(self, reply: Mapping[str, Any]) -> None:
        """Add what is written in a completion, or in a chunk of one.

        What has not the form of OpenAI's replies is left out: endpoints may send anything.
        """
        choices = reply.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            message = choice.get("message") or choice.get("delta")
            if isinstance(message, dict):
                self._add_message(choice.get("index"), message)

    def text(self) -> str:
        """Return all texts, one a line."""
        texts = ["".join(parts) for parts in self._texts.values()]
        return "\n".join(texts)

    def _add_message(self, answer: object, message: Mapping[str, Any]) -> None:
        """Add a message, or a part of one, to an answer.

        Args:
            answer: The index of the answer.
            message: The message.
        """
        for field in ("content", "refusal"):
            self._add_text((answer, field), message.get(field))
        self._add_function((answer, "function"), message.get("function_call"))

        calls = message.get("tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                # Only the calls in a stream have an index.
                index = call.get("index", place)
                self._add_function((answer, "tool", index), call.get("function"))

    def _add_function(self, key: tuple[object, ...], function: object) -> None:
        if isinstance(function, dict):
            self._add_text((*key, "name"), function.get("name"))
            self._add_text((*key, "arguments"), function.get("arguments"))

    def _add_text(self, key: tuple[object, ...], text: object) -> None:
        if isinstance(text, str):
            # As text, because an index that an endpoint sends may be anything.
            self._texts[repr(key)].append(text)


class Upstream:
    """An endpoint that speaks OpenAI's chat; requests are handed on to it, without retries.

    Args:
        lm: The model, whose guard and meter hold.
        engine: The engine of the model, whose timeouts hold.
        client: What asks for the model.
    """

    def __init__(self, lm: MeteredLM, engine: Engine, client: Client) -> None:
        # Its import takes a tenth of a second, before the time of a call begins.
        from .transport import Transport

        self.lm = lm
        self.model = client.model
        """What the endpoint calls the model."""
        self._client: AsyncOpenAIChatLM = client.lm
        self._secrets = client.secrets
        self._seconds = engine.seconds
        self._transport = Transport(engine.timeout, client.secrets)

    @asynccontextmanager
    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[RelayedReply]:
        """Send a request for a chat completion; the block reads the reply as it comes.

        A block that is left early, e.g. because its task was cancelled, ends the request.

        Args:
            body: The request as the endpoint takes it; its `model` is replaced.

        Raises:
            LMError: The endpoint cannot be reached, breaks off, is silent, or refuses the key. What
                it says about the key is not repeated.
            EndpointError: It has failed again and again, and is not asked for a while.
            BudgetError: A limit is reached.
        """
        guard = self.lm.guard
        # Nothing is estimated. Should a limit come before the call is made, that shows.
        expected = Usage(unpriced=1)
        if guard.has_limits:
            # A long prompt takes a while. No slot may be held while a thread is waited for.
            expected = await in_thread(partial(self._expected_usage, body))

        # An error passes these from the last to the first: its secrets are hidden, it becomes one
        # of DSPy, it is counted, and the slot is given back.
        slots = guard.slots(self.lm.endpoint)
        async with slots.aslot(), guard.areserve(expected):
            with self.lm.admitted(), error_boundary(self.model), self._secrets.hiding():
                async with aclosing(aiterate(self._exchange(body), self._seconds)) as parts:
                    # The first part is the head of the reply, all others are its content.
                    head = await anext(parts)
                    async with aclosing(self._lines(parts, head.status)) as lines:
                        yield RelayedReply(head.status, head.headers, lines)

        # A reply with such a status is handed on, and raises nothing that would be counted.
        if head.status >= 500:
            guard.record_failure(LMTransportError(f"status {head.status}", model=self.model))

    def _expected_usage(self, body: Mapping[str, Any]) -> Usage:
        """Return what a request uses at most."""
        prompt_tokens = _estimate_prompt(body)
        max_tokens = token_number(body.get("max_tokens"))
        if max_tokens is None:
            max_tokens = token_number(body.get("max_completion_tokens"))
        answers = token_number(body.get("n")) or 1
        return self.lm.largest_usage(prompt_tokens, max_tokens, answers)

    def count(self, usage: object, body: Mapping[str, Any], output: RelayedOutput) -> None:
        """Count a call that was answered.

        Args:
            usage: What the answer reports, of any kind; None if it reports nothing.
            body: The request, as `stream` takes it.
            output: All that the model wrote.
        """
        reported = usage if isinstance(usage, dict) else {}
        prompt = text_of_messages(body["messages"])
        prompt_tokens = believable_count(reported.get("prompt_tokens"), fewest_tokens(prompt))
        written = output.text()
        answer_tokens = believable_count(reported.get("completion_tokens"), fewest_tokens(written))
        estimated = prompt_tokens is None or answer_tokens is None

        if prompt_tokens is None:
            prompt_tokens = _estimate_prompt(body)
        if answer_tokens is None:
            answer_tokens = estimate_tokens(written)
        self.lm.count(prompt_tokens, answer_tokens, estimated=estimated)

    async def _exchange(self, body: Mapping[str, Any]) -> AsyncGenerator[_ReplyPart]:
        """Send a request, and yield the parts of the reply: first its head, then its content.

        Raises:
            LMAuthError: The endpoint refuses the key.
            LM15Error: It cannot be reached, breaks off, is silent, or its reply is too large.
        """
        async with self._transport.stream(self._http_request(body)) as reply:
            if reply.status in (401, 403):
                # Not handed on: what the endpoint says may quote the key.
                refusal = f"the endpoint refuses the key ({reply.status})"
                raise LMAuthError(refusal, model=self.model)

            headers = {name.lower(): value for name, value in reply.headers}
            yield _ReplyPart(reply.status, headers, b"")
            async for chunk in reply:
                yield _ReplyPart(reply.status, headers, chunk)

    def _http_request(self, body: Mapping[str, Any]) -> PlainRequest:
        """Return the request for a chat completion, with the key and the name of the model."""
        from .transport import PlainRequest

        accepted = "text/event-stream" if body.get("stream") else "application/json"
        headers = {
            "Authorization": f"Bearer {self._client.api_key or 'none'}",
            "Content-Type": "application/json",
            "Accept": accepted,
        }
        url = f"{self._client.base_url.rstrip('/')}/chat/completions"
        content = json.dumps({**body, "model": self.model}).encode()
        return PlainRequest("POST", url, headers, content)

    async def _lines(self, parts: AsyncIterable[_ReplyPart], status: int) -> AsyncGenerator[bytes]:
        """Yield the content of a reply, cut behind its newlines, without secrets."""
        buffer = LineBuffer()
        async for part in parts:
            for line in buffer.add(part.content):
                yield self._without_secrets(line, status)
        if buffer.rest:
            yield self._without_secrets(buffer.rest, status)

    def _without_secrets(self, line: bytes, status: int) -> bytes:
        """Return a line without secrets, which only errors show."""
        if status == 200 and b'"error"' not in line:
            return line
        return self._secrets.hide_in_bytes(line)


def upstream_of(lm: Any) -> Upstream | None:
    """Return the endpoint of a model, if requests can be handed on to it.

    None for a model that runs in this process, for one without a key, and for one whose endpoint
    does not speak OpenAI's chat.

    Args:
        lm: Any language model; only a `MeteredLM` with an `Engine` has an endpoint here.
    """
    engine = getattr(lm, "engine", None)
    if not isinstance(engine, Engine):
        return None

    try:
        client = engine.client(lm.model)
    except LM15Error:  # there is no key
        return None
    if not isinstance(client.lm, AsyncOpenAIChatLM):
        return None
    return Upstream(lm, engine, client)


def _estimate_prompt(body: Mapping[str, Any]) -> int:
    """Return our estimate of the tokens that a model reads of a request."""
    # Tools and response formats are read with the prompt, and so are earlier calls of tools.
    messages = [_without_content(message) for message in body["messages"]]
    others = json.dumps({**body, "messages": messages}, ensure_ascii=False)
    tokens = estimate_tokens(text_of_messages(body["messages"])) + estimate_tokens(others)
    for message in body["messages"]:
        parts = message.get("content")
        if isinstance(parts, list):
            tokens += RESERVED_PART_TOKENS * sum(map(_is_no_text, parts))
    return tokens


def _without_content(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "content"}


def _is_no_text(part: Any) -> bool:
    """Return whether a part of a message is an image, a file or the like."""
    return not isinstance(part, dict) or part.get("type") != "text"
