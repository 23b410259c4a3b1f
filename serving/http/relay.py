"""Forwards chat requests to the language model, with the recalled memory added.

Only texts of the user and of the answer are remembered: whoever can write into a page that a tool reads could write
into a memory. The block is data, and says so. It goes into the user's own message: there it has least authority, and
what stands before it stays the same, so that caches hold. The event that ends an answer waits until the answer is
stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dspy.utils.exceptions import LMTransportError
from fastapi.responses import Response

from ...engines.endpoint.relay import Upstream
from ...engines.call_context import Deadline
from ...records import Context
from .schemas import ChatRequest
from .conversation import Conversation
from ..prompt_text import prepend_text

Send = Callable[[Any], None]
"""Takes the headers of a stream, and then its parts."""
_HEADERS = ("x-ratelimit-", "retry-after", "openai-processing-ms", "openai-version")
"""What the names of headers begin with that are handed back."""


@dataclass
class Relay:
    """One request that is handed on, and what becomes of it."""

    conversation: Conversation
    """What the request says, heard."""
    upstream: Upstream
    _context: Context = field(init=False, default=Context())
    _sent: dict[str, Any] = field(init=False, default_factory=dict[str, Any])
    """The request as the language model gets it."""
    _text: str = field(init=False, default="")
    _stored: bool = field(init=False, default=False)

    def answer(self, deadline: Deadline, send: Send | None = None) -> Response:
        """Recalls, asks and stores, in a thread of its own; the response where it is none of a stream."""
        self._context = self.conversation.recall()
        self._sent = payload(self.conversation.body, self._context)
        with self.upstream.ask(self._sent) as (status, given, lines):
            headers = {name: value for name, value in given.items() if name.startswith(_HEADERS)}
            if request_id := given.get("x-request-id"):
                headers["x-upstream-request-id"] = request_id
            kind = given.get("content-type", "application/json")
            if status == 200 and send and kind.startswith("text/event-stream"):
                send(headers)
                self._stream(lines, deadline, send)
                return Response()
            content = b"".join(lines)
            if status == 200:
                content, kind = self._whole(content, deadline), "application/json"
            return Response(content, status, {**headers, "content-type": kind})

    def _whole(self, content: bytes, deadline: Deadline) -> bytes:
        """A completion, its text stored, with Mempiler's own field."""
        try:
            completion = json.loads(content)
            self._text = _words(completion["choices"][0]["message"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise LMTransportError("the endpoint's answer is no completion", model=self.upstream.model) from error
        self._end(completion, deadline)
        self.upstream.count(completion.get("usage"), self._sent, self._text)
        return json.dumps(completion).encode()

    def _stream(self, lines: Iterator[bytes], deadline: Deadline, send: Send) -> None:
        usage, ended = None, False
        for line in lines:
            event, ended = _event(line), ended or line.strip() == b"data: [DONE]"
            usage = event.get("usage") or usage
            if self._takes_in(event):
                self._end(event, deadline)
                line = b"data: " + json.dumps(event).encode() + b"\n"
            send(line)
        if not (ended or self._stored):
            raise LMTransportError("the endpoint's stream broke off", model=self.upstream.model)
        self.upstream.count(usage, self._sent, self._text)

    def _takes_in(self, event: dict[str, Any]) -> bool:
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._text += _words(choice.get("delta"))
                return bool(choice.get("finish_reason")) and not self._stored
        return False

    def _end(self, completion: dict[str, Any], deadline: Deadline) -> None:
        """Stores the text of an answer, and gives the completion Mempiler's own field."""
        self._stored = True
        remembered = self.conversation.store_answer(self._text, self._context, deadline)
        completion["mempiler"] = remembered.model_dump(mode="json")


def payload(body: ChatRequest, context: Context) -> dict[str, Any]:
    """What the language model is sent: the request without what is Mempiler's, and what was recalled."""
    sent = body.model_dump(mode="json", exclude_unset=True, exclude={"user", "metadata", "mempiler"})
    others = body.metadata.model_dump(mode="json", exclude={"session"}) if body.metadata else {}
    return {**sent, **({"metadata": others} if others else {}), "messages": _beside(sent["messages"], context)}


def _beside(messages: list[dict[str, Any]], context: Context) -> list[dict[str, Any]]:
    """The messages, what was recalled before the words of the user's last one."""
    recalled = context.text()
    last = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=None)
    if not recalled or last is None:
        return messages
    told = prepend_text(recalled, messages[last].get("content"))
    return [*messages[:last], {**messages[last], "content": told}, *messages[last + 1 :]]


def _words(message: Any) -> str:
    """The text of a message or of a part of one; "" if it has none. What could not be stored is left out of it."""
    words = message.get("content") if isinstance(message, dict) else None
    return words.replace("\x00", "").encode("utf-8", "ignore").decode() if isinstance(words, str) else ""


def _event(line: bytes) -> dict[str, Any]:
    """The object of a line of a stream; {} for any other line."""
    if not line.startswith(b"data:"):
        return {}
    try:
        found = json.loads(line.removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
