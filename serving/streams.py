"""Answers as streams of server-sent events, made in a thread of the pool, sent as they come.

    call(deadline, send) ── send(headers) ── send(part) ── send(part) ──> the client
         └ what fails before the headers is a status, what fails after them an event that ends the stream

A client that goes away ends the work, as that of any request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from fastapi.responses import StreamingResponse

from ..engines.endpoint.deadline import Deadline
from .logs import failure, log
from .refusals import body_of, refusal_of
from .service import Caller
from .user_memory import UserMemory

T = TypeVar("T")

UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of every stream."""
Send = Callable[[Any], None]


async def streamed(call: Callable[[Deadline, Send], T], caller: Caller, begins: UserMemory) -> StreamingResponse | T:
    """Answers a request for a stream.

    Args:
        call: Takes the deadline of its request, and what sends the headers of the stream and then its parts.
        caller: Who asks.
        begins: Of whom it stores something.

    Returns:
        The stream; what the call returns where it sent nothing.
    """
    parts: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def send(part: Any) -> None:
        loop.call_soon_threadsafe(parts.put_nowait, part)

    task = asyncio.ensure_future(caller.asking(lambda deadline: call(deadline, send), begins))
    task.add_done_callback(lambda _: parts.put_nowait(None))
    try:
        headers = await parts.get()
    except asyncio.CancelledError:
        task.cancel()
        raise
    if headers is None:
        return task.result()
    more = {**headers, **UNBUFFERED}
    return StreamingResponse(_parts(parts, task), media_type="text/event-stream", headers=more)


async def _parts(parts: asyncio.Queue[Any], task: asyncio.Future[Any]) -> AsyncIterator[Any]:
    """The parts of a stream; one that breaks off ends with an event that says so, which clients raise as an error."""
    try:
        while (part := await parts.get()) is not None:
            yield part
        if (error := task.exception()) is not None:
            log.error("a stream broke off", extra=failure(error))
            yield event_of(body_of(refusal_of(error)))
    finally:
        task.cancel()


def event_of(value: dict[str, Any]) -> str:
    """A value as an event."""
    return f"data: {json.dumps(value)}\n\n"
