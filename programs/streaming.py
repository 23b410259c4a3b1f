"""Stream the answer while the model writes it: the words of the task's predictor and of no other.

Nothing is sent before the end where the model gives no pieces or their form does not tell what they
are (`reading.partial`), under the adapter `compact`, and by tasks that change what the model says.

`dspy.streamify` cannot do this: its listeners refuse our adapters, whose class names they do not
know, send the words of both attempts where an unreadable answer is asked for again, and show
escaped markers as the model quotes them (tried with DSPy 3.4.1).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import dspy

from ..engines.call_context import call_context
from ..reading.layouts import Layout
from ..reading.partial import is_text_output
from ._context import current_program_context, program_context
from .answer_stream import ANSWER, AnswerStream


async def stream_answer(ask: Callable[[], Awaitable[dspy.Prediction]]) -> AsyncGenerator[str]:
    """Yield the words of an answer while the model writes them; the parts make up the answer.

    Args:
        ask: Asks a program, whose prediction has the answer.

    Raises:
        AnswerChangedError: The answer does not begin with the words that were yielded.
        Exception: Any error that `ask` raises.
    """
    loop = asyncio.get_running_loop()
    # None marks the end of the answer.
    parts: asyncio.Queue[str | None] = asyncio.Queue()

    def send(part: str) -> None:
        # Words arrive in another thread, and a queue of asyncio belongs to its loop.
        loop.call_soon_threadsafe(parts.put_nowait, part)

    stream = AnswerStream(send)
    with send_answer_to(stream):
        # The task copies the context variables of this block, and with them the stream.
        question = asyncio.ensure_future(ask())
    question.add_done_callback(lambda _: parts.put_nowait(None))

    try:
        part = await parts.get()
        while part is not None:
            yield part
            part = await parts.get()

        # Some answers are not sent in parts, and the whole answer is then left at the end.
        prediction = await question
        remainder = stream.remainder(str(prediction.answer))
        if remainder:
            yield remainder
    finally:
        # The caller may stop early; after the end, this does nothing.
        question.cancel()


def send_answer_to(stream: AnswerStream | None) -> AbstractContextManager[None]:
    """Send the words of the answer that a program gives in the block to a stream, if not None."""
    return program_context(answer_stream=stream)


def predictor_writes_answer(is_unchanged: bool) -> AbstractContextManager[None]:
    """Let the predictor that a task calls in the block send its words as words of the answer.

    Args:
        is_unchanged: Whether the task returns the answer as the predictor writes it. Otherwise the
            words of the predictor are not those of the answer, and are not sent.
    """
    stream = current_program_context().answer_stream if is_unchanged else None
    return program_context(predictor_stream=stream)


def send_output(signature: type[dspy.Signature], layout: Layout) -> AbstractContextManager[None]:
    """Send the words of the answer while the model's call in the block writes them.

    Nothing is sent if nobody reads the answer in parts, or if its type is not `str`.

    Args:
        signature: Declares the outputs of the call.
        layout: How the prompt asks for the outputs, such as "headers" or "json".
    """
    stream = current_program_context().predictor_stream
    if stream is None or not is_text_output(signature, ANSWER):
        return nullcontext()
    # A call that is repeated begins another attempt: `on_text` is called for each of them.
    return call_context(on_text=partial(stream.begin_attempt, layout))
