"""A response whose events are sent while the work that makes them goes on.

stream = EventStream()

async def work() -> None:
    stream.begin()
    stream.send(event({"words": "Hi"}))

return await stream.response(work())
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any

from fastapi import Response
from fastapi.responses import StreamingResponse

from ..failure_log import failure, log
from .errors import STOPPED, body_of, has_client_left, refusal_of

HEADERS = {
    "Cache-Control": "no-store",
    # Tells nginx to send each event at once.
    "X-Accel-Buffering": "no",
}
"""Headers of every stream."""


class EventStream:
    """The events of one response, from the work that makes them to the client.

    The work may call `begin` and `send` in any thread. It is made in the event loop that serves the
    request.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._headers: asyncio.Future[Mapping[str, str]] = self._loop.create_future()
        """Is done once the work has called `begin`; holds the further headers."""
        self._events: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        """What is sent; None, at the end of the work, ends the stream."""

    def begin(self, headers: Mapping[str, str] | None = None) -> None:
        """Begin the response, with further headers.

        Until then the work may still fail with a status, or return another response.
        """
        self._loop.call_soon_threadsafe(self._headers.set_result, headers or {})

    def send(self, text: str | bytes) -> None:
        """Send a part of the stream, such as an event."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, text)

    async def response(self, work: Coroutine[Any, Any, Response | None]) -> Response | None:
        """Start work, wait until it calls `begin`, and return the response that sends its events.

        If the work ends without calling `begin`, return what it returns, or raise its error. A
        client that leaves the stream cancels the work.
        """
        task = asyncio.create_task(work)
        # The mark at the end comes from the task itself, so it also comes if the work fails.
        task.add_done_callback(lambda _: self._events.put_nowait(None))

        try:
            # `begin` completes `_headers`.
            await asyncio.wait({task, self._headers}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise

        if not self._headers.done():
            return task.result()
        return StreamingResponse(
            self._sent_events(task),
            media_type="text/event-stream",
            headers={**self._headers.result(), **HEADERS},
        )

    async def _sent_events(self, task: asyncio.Task[Any]) -> AsyncIterator[str | bytes]:
        """Yield the events that the work sends.

        If the work fails, or the service ends before, the last event is an error, which OpenAI's
        clients raise.

        Args:
            task: Does the work.
        """
        try:
            part = await self._events.get()
            while part is not None:
                yield part
                part = await self._events.get()

            # None came, so the task is done.
            error = task.exception()
            if error is not None and not has_client_left(error):
                log.error("a stream broke off", extra=failure(error))
                yield event(body_of(refusal_of(error)))
        except asyncio.CancelledError:
            # The service ends, or the client has left, to whom nothing is sent any more.
            yield event(body_of(STOPPED()))
            raise
        finally:
            # The client may leave before the end; after the end, this does nothing.
            task.cancel()


def event(value: Mapping[str, Any]) -> str:
    """Return a value as an event of a stream."""
    return f"data: {json.dumps(value)}\n\n"
