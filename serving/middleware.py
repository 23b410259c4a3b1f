"""What every request passes before its route: a line of the log, and bounds of its body."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from .logs import log
from .metrics import Metrics
from .refusals import BUG, SLOW_BODY, TOO_LARGE, response_of


class RequestLog:
    """ASGI middleware: one line per request, an id in `X-Request-ID`, and 500 for unforeseen errors.

    Args:
        app: The application behind it.
        metrics: Where requests are counted.
    """

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves a request and logs it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, request, status = time.perf_counter(), uuid.uuid4().hex, 0
        scope.setdefault("state", {})["request"] = request

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request.encode())]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception:
            log.error("a request failed for an unforeseen reason", exc_info=True, extra={"request": request})
            if not status:
                await response_of(BUG())(scope, receive, sent)
        finally:
            self._line(scope, request, status, time.perf_counter() - begun)

    def _line(self, scope: Any, request: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None)
        self._metrics.request(route, scope["method"], status, seconds)
        line = {"request": request, "method": scope["method"], "route": route, "status": status}
        line |= {"ms": round(seconds * 1000, 1), "tenant": scope["state"].get("tenant")}
        log.info("request", extra=line)


class BodyLimit:
    """ASGI middleware that refuses bodies that are large, announced or not (413), or slow (408), before any parsing.

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
            await response_of(SLOW_BODY())(scope, receive, send)
            return
        if body is None:
            await response_of(TOO_LARGE())(scope, receive, send)
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
