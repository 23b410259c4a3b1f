"""A log line for each request, and the id by which a client can name it."""

from __future__ import annotations

import time
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..failure_log import log
from .errors import BUG, response_of
from .metrics import Metrics

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
"""Methods that are logged and counted by name; clients may make up others."""


class RequestLog:
    """ASGI middleware that logs and counts each request, and answers unforeseen errors with 500.

    Each request has an id, which is in the log and in the header `X-Request-ID` of the answer.

    Args:
        app: The application that serves the requests.
        metrics: Where requests are counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started = time.perf_counter()
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.get("headers", ())
                message["headers"] = [*headers, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            log.error(
                "a request failed for an unforeseen reason",
                exc_info=True,
                extra={"request": request_id},
            )
            has_answered = status != 0
            if not has_answered:
                await response_of(BUG())(scope, receive, send_with_id)
        finally:
            self._log_request(scope, request_id, status, time.perf_counter() - started)

    def _log_request(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Count a request that has ended, and log it.

        Args:
            scope: The request.
            request_id: Its id.
            status: The status of its answer; 0 if there was none.
            seconds: How long it took.
        """
        # The route as it is declared: the path itself names users.
        route = getattr(scope.get("route"), "path", None)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.count_request(method, route or "none", status, seconds)
        log.info(
            "request",
            extra={
                "request": request_id,
                "method": method,
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
                "tenant": scope["state"].get("tenant"),
            },
        )
