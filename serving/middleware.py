"""What every request passes before its route: a line of the log, then its token, then the bounds of its body."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from .auth import Tokens, tenant_of
from .logs import log
from .operations import Metrics
from .refusals import BUG, SLOW_BODY, TOO_LARGE, Refusal, response_of


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
            seconds, route = time.perf_counter() - begun, getattr(scope.get("route"), "path", None)
            self._metrics.request(route, scope["method"], status, seconds)
            line = {"request": request, "method": scope["method"], "route": route, "status": status}
            line |= {"ms": round(seconds * 1000, 1), "tenant": scope["state"].get("tenant")}
            log.info("request", extra=line)


class Gate:
    """ASGI middleware: a request goes on with its tenant and its whole body, or is refused before any parsing.

    Without a token no body is read. One that is large, announced or not, is refused with 413, a slow one with 408.

    Args:
        app: The application behind it.
        tokens: Who may ask, see `tenant_of`.
        most: Bytes of a body.
        seconds: Time for the whole body to come.
    """

    def __init__(self, app: Any, tokens: Tokens | None, most: int, seconds: float) -> None:
        self._app, self._tokens, self._most, self._seconds = app, tokens, most, seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope.setdefault("state", {})["tenant"] = tenant_of(scope, self._tokens)
            async with asyncio.timeout(self._seconds):
                body = await self._body(scope["headers"], receive)
        except (Refusal, TimeoutError) as error:
            refused = error if isinstance(error, Refusal) else SLOW_BODY()
            await response_of(refused)(scope, receive, send)
            return
        # Read once more, the body is the whole one; a wait for more is a wait for the client to leave.
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Any:
            message = next(messages, None)
            return message if message is not None else await receive()

        await self._app(scope, replay, send)

    async def _body(self, headers: Any, receive: Any) -> bytes:
        announced = dict(headers).get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > self._most:
            raise TOO_LARGE()
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._most:
                raise TOO_LARGE()
            if not message.get("more_body"):
                break
        return bytes(body)
