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
    """Return a context manager that sets where a program in its block sends its answer.

    The program sends the words of the answer to the stream while the model writes them.

    Args:
        stream: Takes the words; None if nobody reads the answer in parts.
    """
    return program_context(answer_stream=stream)


def stream_predictor(is_unchanged: bool) -> AbstractContextManager[None]:
    """Return a context manager that decides whether the predictor in its block is streamed.

    Words that were sent cannot be taken back. So the predictor writes to the stream of the answer
    only if the task returns its words as they are.

    Args:
        is_unchanged: Whether the task returns the answer as the predictor writes it.
    """
    # Every model call in the block reads the field `predictor_stream`, see `send_output`.
    if not is_unchanged:
        # Nothing that the predictor writes is sent.
        return program_context(predictor_stream=None)
    return program_context(predictor_stream=current_program_context().answer_stream)


def send_output(signature: type[dspy.Signature], layout: Layout) -> AbstractContextManager[None]:
    """Return a context manager that streams the answer of the model call in its block.

    Nothing is sent if nobody reads the answer in parts, or if its type is not `str`.

    Args:
        signature: Declares the outputs of the call.
        layout: How the prompt asks for the outputs, such as "headers" or "json".
    """
    stream = current_program_context().predictor_stream
    if stream is None or not is_text_output(signature, ANSWER):
        return nullcontext()
    # The engine calls `on_text` before each attempt of the call, and gets a new function that takes
    # the pieces of that attempt. So the words of a broken attempt are not sent again.
    return call_context(on_text=partial(stream.begin_attempt, layout))
