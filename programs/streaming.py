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
    """Yield the words of an answer in parts, and at its end what is left of it.

    Args:
        ask: Asks a program.

    Raises:
        AnswerChangedError: The answer does not begin with the words that were yielded.
        Exception: What `ask` raised.
    """
    loop = asyncio.get_running_loop()
    # None stands for the end of the answer.
    parts: asyncio.Queue[str | None] = asyncio.Queue()

    def send(part: str) -> None:
        # The thread of the endpoints sends.
        loop.call_soon_threadsafe(parts.put_nowait, part)

    stream = AnswerStream(send)
    with send_answer_to(stream):
        # The task has a copy of the context, in which the answer is sent.
        asking = asyncio.ensure_future(ask())
    asking.add_done_callback(lambda _: parts.put_nowait(None))

    try:
        part = await parts.get()
        while part is not None:
            yield part
            part = await parts.get()
        prediction = await asking
        remainder = stream.remainder(str(prediction.answer))
        if remainder:
            yield remainder
    finally:
        asking.cancel()


def send_answer_to(stream: AnswerStream | None) -> AbstractContextManager[None]:
    """Send the words of the answer that is asked for in the block; None sends them to nobody."""
    return program_context(answer_stream=stream)


def predictor_writes_answer(is_unchanged: bool) -> AbstractContextManager[None]:
    """Let the predictor that is called in the block send its words as those of the answer.

    Args:
        is_unchanged: Whether the task gives the answer as its predictor writes it. Otherwise the
            words are not sent.
    """
    stream = current_program_context().answer_stream if is_unchanged else None
    return program_context(predictor_stream=stream)


def send_output(signature: type[dspy.Signature], layout: Layout) -> AbstractContextManager[None]:
    """Send the words of the answer that the call in the block writes, if anybody wants them.

    Args:
        signature: Declares the outputs of the call; the answer must be a text.
        layout: How the prompt asks for the outputs.
    """
    stream = current_program_context().predictor_stream
    if stream is None or not is_text_output(signature, ANSWER):
        return nullcontext()
    return call_context(on_text=partial(stream.begin_attempt, layout))
