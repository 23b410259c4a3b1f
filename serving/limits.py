"""Bodies of bounded size that come in bounded time, or are refused before they are parsed (408, 413)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from .refusals import SLOW_BODY, TOO_LARGE, Refusal


class BodyLimit:
    """ASGI middleware that refuses bodies that are large, announced or not, or slow, before they are parsed.

    Args:
        app: The application behind it.
        most: Bytes.
        seconds: Time for the whole body to come.
    """

    def __init__(self, app: Any, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on, with its whole body read; or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = announced.isdigit() and int(announced[:20]) > self._most
        try:
            async with asyncio.timeout(self._seconds):
                body = None if too_large else await self._read(receive)
        except TimeoutError:
            await send_refusal(send, SLOW_BODY())
            return
        if body is None:
            await send_refusal(send, TOO_LARGE())
            return
        # Read once more, the body is the whole one; a wait for more is a wait for the client to leave.
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Any:
            message = next(messages, None)
            return message if message is not None else await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Any) -> bytes | None:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                return None
            if not message.get("more_body"):
                return b"".join(parts)


async def send_refusal(send: Any, refusal: Refusal) -> None:
    """Sends a refusal from a middleware."""
    body = json.dumps(refusal.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
