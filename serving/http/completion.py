"""The program's answer in OpenAI's form: one chat completion, or the events of a stream."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from ...programs.answer_stream import AnswerStream
from ...records.token_counts import estimate_tokens
from .event_stream import EventStream, event
from .schemas import ChatRequest, ResponseExtension

_WORD = re.compile(r"\s*\S+\s*?|\s+")
"""A word with the white space before it. Such parts make up the whole text again."""


class Completion:
    """The completion of one chat request.

    Args:
        body: The request.
        model: What clients call the program.
        ignored_fields: Fields of the request that the answer does not depend on.
        stream: Where the events go; None if the client wants the completion in one piece.
    """

    def __init__(
        self,
        body: ChatRequest,
        model: str,
        ignored_fields: Sequence[str],
        stream: EventStream | None,
    ) -> None:
        self._body = body
        self._ignored_fields = tuple(ignored_fields)
        self._stream = stream
        self._has_begun = False
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }
        self.answer_stream: AnswerStream | None = None
        """Takes the words of the answer while the model writes them; None without a stream."""
        if stream is not None:
            self.answer_stream = AnswerStream(self._send_words)

    def check_words_sent(self, answer: str) -> None:
        """Refuse an answer that does not begin with the words that the client got already.

        Raises:
            AnswerChangedError: It begins otherwise.
        """
        if self.answer_stream is not None:
            # Called for its error alone; `finish` sends the remainder.
            self.answer_stream.remainder(answer)

    def finish(self, answer: str, extension: ResponseExtension) -> Response | None:
        """Return the completion; or send the rest of the stream, and return None.

        Call it in a thread: it estimates the tokens, which takes a while for a long conversation.

        Args:
            answer: The whole answer.
            extension: The field `mempiler`; the names of ignored fields are added here.
        """
        full_extension = extension.model_copy(update={"ignored": self._ignored_fields})
        extension_json = full_extension.model_dump(mode="json")
        usage = self._estimated_usage(answer)
        if self._stream is None:
            return self._whole_response(answer, extension_json, usage)
        self._finish_stream(self._stream, answer, extension_json, usage)
        return None

    def _whole_response(
        self, answer: str, extension: dict[str, Any], usage: dict[str, int]
    ) -> Response:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer, "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
        return JSONResponse(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": usage,
                "mempiler": extension,
            }
        )

    def _finish_stream(
        self,
        stream: EventStream,
        answer: str,
        extension: dict[str, Any],
        usage: dict[str, int],
    ) -> None:
        """Send the words that were not sent yet, and the events at the end of a stream."""
        remainder = answer
        if self.answer_stream is not None:
            remainder = self.answer_stream.remainder(answer)
        for word in _WORD.findall(remainder):
            self._send_words(word)

        self._send_chunk(stream, [_choice({}, "stop")], mempiler=extension)
        options = self._body.stream_options
        if options is not None and options.include_usage:
            self._send_chunk(stream, [], usage=usage)
        stream.send("data: [DONE]\n\n")

    def _send_words(self, words: str) -> None:
        if self._stream is not None:
            self._send_chunk(self._stream, [_choice({"content": words})])

    def _send_chunk(
        self, stream: EventStream, choices: list[dict[str, Any]], **fields: object
    ) -> None:
        """Send an event; the first one comes after an event that says who speaks."""
        head = {**self._head, "object": "chat.completion.chunk"}
        if not self._has_begun:
            self._has_begun = True
            stream.begin()
            speaker = _choice({"role": "assistant", "content": ""})
            stream.send(event({**head, "choices": [speaker]}))
        stream.send(event({**head, "choices": choices, **fields}))

    def _estimated_usage(self, answer: str) -> dict[str, int]:
        prompt_tokens = sum(estimate_tokens(message.text) for message in self._body.messages)
        answer_tokens = estimate_tokens(answer)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": answer_tokens,
            "total_tokens": prompt_tokens + answer_tokens,
        }


def _choice(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
    """Return the only choice of an event."""
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
