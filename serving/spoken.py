"""The program's answer to a chat, whole or told as it comes: role, words, end, and the usage if asked for.

    the model writes ──> words ──> event, event, ...      the first one begins the stream
    answer stored    ──> the rest of the words ──> the end with the field `mempiler`

What fails before the first word is a status. Where no word came before the answer was whole (a model of this process,
an answer from a cache, a task that makes something else of it), it is stored first and then sent in parts.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from ..programs.streaming import Words
from ..records.context import estimate_tokens
from .chat_bodies import ChatAnswer, ChatRequest, Choice, Completion, Remembered, Tokens
from .streams import Send, event_of


class Spoken:
    """One answer.

    Args:
        body: What is answered.
        model: The name of who answers.
    """

    def __init__(self, body: ChatRequest, model: str) -> None:
        self.body = body
        self._id, self._created, self._model = f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model
        self._send: Send | None = None
        self._words: Words | None = None

    def words(self, send: Send) -> Words:
        """What takes the words as they come.

        Args:
            send: Takes the headers of the stream, and then its events.
        """

        def tell(words: str) -> None:
            if self._send is None:
                self._send = send
                send({})
                send(self._event({"role": "assistant", "content": ""}))
            send(self._event({"content": words}))

        self._words = Words(tell)
        return self._words

    def end(self, completion: Completion) -> None:
        """Sends the rest of an answer of which words were sent; nothing if none were.

        Raises:
            AnswerChangedError: They are not its beginning.
        """
        if self._send is None or self._words is None:
            return
        for event in self._ending(completion, self._words.rest(completion.choices[0].message.content)):
            self._send(event)

    def completion(self, answer: str, remembered: Remembered) -> Completion:
        """The whole answer."""
        sizes = sum(estimate_tokens(message.text) for message in self.body.messages), estimate_tokens(answer)
        return Completion(
            id=self._id,
            created=self._created,
            model=self._model,
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
        if self.body.stream_options and self.body.stream_options.include_usage:
            yield event_of({**self._head, "choices": [], "usage": completion.usage.model_dump()})
        yield "data: [DONE]\n\n"

    @property
    def _head(self) -> dict[str, Any]:
        return {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": self._model}

    def _event(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event_of({**self._head, "choices": [choice], **more})
