"""Streams the answer while the model writes it: the words of the task's predictor, and of no other.

What was sent is the beginning of the answer, or `remainder` says that it is not: a call that is repeated goes on where
it says the same again. Nothing is sent before the end where the model gives no pieces or their form does not tell
(`reading.partial`), under the adapter `compact`, and by tasks that make something else of the answer.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import dspy

from ..engines.call_context import ChunkCallback, call_context
from ..errors import AnswerChangedError
from ..reading.layouts import Layout
from ..reading.partial import PartialAnswer, is_text_output
from ..records.context_variables import set_context

ANSWER = "answer"
"""The output of a task that is sent."""


class AnswerStream:
    """What was sent of one answer.

    Args:
        send: Takes the next words, in the thread that hears them from the model.
    """

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._sent: list[str] = []

    def begin(self, layout: Layout) -> ChunkCallback:
        """Begins to read an attempt of the model; returns what takes its pieces."""
        growing, again = PartialAnswer(ANSWER, layout), "".join(self._sent)

        def take(piece: str) -> None:
            nonlocal again
            found = growing.add_piece(piece)
            common = min(len(found), len(again))
            if again[:common] == found[:common]:
                again, new = again[common:], found[common:]
                if new:
                    self._sent.append(new)
                    self._send(new)
            else:
                growing.stop()

        return take

    def remainder(self, answer: str) -> str:
        """What is left to send.

        Raises:
            AnswerChangedError: What was sent is not the beginning of the answer.
        """
        sent = "".join(self._sent)
        if not answer.startswith(sent):
            raise AnswerChangedError("the answer is another one than its beginning, which was sent already; ask again")
        return answer[len(sent) :]


ANSWER_LISTENER: contextvars.ContextVar[AnswerStream | None] = contextvars.ContextVar("wanted_words", default=None)
"""Who takes the words of the answer that is asked for; None mostly, and then nothing below need be called."""
PREDICTOR_LISTENER: contextvars.ContextVar[AnswerStream | None] = contextvars.ContextVar("answering", default=None)
"""Who takes the words of the block's predictor, which writes the answer and whose words are given as they are."""


async def stream_answer(ask: Callable[[], Awaitable[dspy.Prediction]]) -> AsyncGenerator[str]:
    """The words of an answer in parts, and what is left of it at its end.

    Args:
        ask: Asks a program.

    Raises:
        AnswerChangedError: See `AnswerStream.remainder`; or whatever asking raises.
    """
    parts: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def send(part: str) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, part)

    words = AnswerStream(send)

    async def asking() -> dspy.Prediction:
        with set_context(ANSWER_LISTENER, words):
            return await ask()

    task = asyncio.ensure_future(asking())
    task.add_done_callback(lambda _: parts.put_nowait(None))
    try:
        while (part := await parts.get()) is not None:
            yield part
        if rest := words.remainder(str((await task).answer)):
            yield rest
    finally:
        task.cancel()


def streamed(signature: type[dspy.Signature], layout: Layout) -> AbstractContextManager[None]:
    """Sends the words of an answer that the block's call writes, where they are wanted."""
    words = PREDICTOR_LISTENER.get()
    if words is None or not is_text_output(signature, ANSWER):
        return nullcontext()
    return call_context(on_text=lambda: words.begin(layout))
