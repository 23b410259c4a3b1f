"""Authentication: before anything is parsed, a request gets its tenant and its whole body.

The tenant is that of the bearer token, see `token_file`; no route takes one from the request. A
service without tokens serves this machine alone, as the tenant `default`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import StoreError
from ..failure_log import failure, log
from . import connection
from .errors import (
    GONE,
    OTHER_ORIGIN,
    OTHER_PATH,
    SLOW_BODY,
    TOO_LARGE,
    UNKNOWN_HOST,
    UNKNOWN_TOKEN,
    refusal_of,
    response_of,
)
from .json_check import JsonCheck
from .tenant_limits import TenantLimiter
from .token_file import OPERATOR, Tokens

GUARDED = "/v1"
"""Below this path every request needs a token; other paths reveal nothing about users."""
METRICS = "/metrics"
"""Shows what all tenants together did, so it is for the operator only."""
OPEN_TENANT = "default"
"""The tenant of all requests to a service without tokens."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine; a service without tokens answers to no other."""

_LOOPBACK_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
"""A `Host` header, in small letters, that names this machine."""
_SAME_ORIGIN_SITES = {"same-origin", "none"}
"""Values of `Sec-Fetch-Site` of pages of this service, and of no page at all."""

Slot = Callable[[str], AbstractContextManager[None]]
"""Takes a tenant; the block is what a request of the tenant holds until it is served."""


class AuthMiddleware:
    """ASGI middleware that lets a request go on with its tenant and its whole body, or refuses it.

    A request whose token or tenant is refused has no body read. A body that is too large is refused
    with 413, whether its length is announced or not; a slow one with 408. A refusal ends the
    connection.

    Args:
        app: The application that serves the requests.
        tokens: Who may send requests; None lets everybody on this machine.
        max_body: Most bytes of a body.
        timeout: Seconds in which a body must come.
        place: What a request below `GUARDED` holds until the last byte of its answer is sent.
        json_check: Looks into large bodies.
        limiter: Limits the requests of tenants.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens | None,
        max_body: int,
        timeout: float,
        place: Slot,
        json_check: JsonCheck,
        limiter: TenantLimiter | None = None,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._max_body = max_body
        self._timeout = timeout
        self._place = place
        self._json_check = json_check
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        with ExitStack() as held:
            try:
                body = await self._admit(scope, receive, held)
            except (HTTPException, StoreError) as error:
                refusal = _refusal_of(error)
            except TimeoutError:
                refusal = SLOW_BODY()
            else:
                await self._app(scope, _replay(body, receive), send)
                return

        # Whoever is refused gives the place back first.
        await self._refuse(refusal, scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, held: ExitStack) -> bytes:
        """Find the tenant of a request, count the request, and return its whole body.

        A request for users' data holds a place of its tenant from here on, and counts against the
        tenant's limit. Health checks and metrics do neither, so they work in a busy service.

        Args:
            scope: The request; its state gets the tenant.
            receive: Receives the body.
            held: Gets the place (`Pool.place`), and gives it back when the request is served.

        Raises:
            HTTPException: The request is refused.
            StoreError: The request cannot be counted.
            TimeoutError: The body did not come in time.
        """
        tenant = tenant_of(scope, self._tokens)
        scope.setdefault("state", {})["tenant"] = tenant
        if tenant is not None and scope["path"].startswith(GUARDED):
            held.enter_context(self._place(tenant))
            if self._limiter is not None:
                await self._limiter.count_request(tenant)

        body = await self._read_body(scope, receive)
        await self._json_check.check(tenant or "", body)
        return body

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        """Receive the whole body.

        Raises:
            HTTPException: It is too large or malformed, or the client went away.
            TimeoutError: It did not come in time.
        """
        announced_length = dict(scope["headers"]).get(b"content-length", b"0")
        # Twenty digits are enough to see that a length is too large.
        if announced_length.isdigit() and int(announced_length[:20]) > self._max_body:
            raise TOO_LARGE()

        body = bytearray()
        async with asyncio.timeout(self._timeout):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    # Half a body might be a valid request, and must not be taken for one.
                    raise GONE()
                # `connection.BoundedProtocol` sets it, for a body that it reads no further.
                refusal = scope["state"].get("refusal")
                if refusal is not None:
                    raise refusal

                body += message.get("body", b"")
                if len(body) > self._max_body:
                    raise TOO_LARGE()
                if not message.get("more_body"):
                    return bytes(body)

    async def _refuse(
        self, refusal: HTTPException, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send a refusal, throw the rest of the body away for a moment, and end the connection."""
        response = response_of(refusal)
        response.headers["Connection"] = "close"
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": response.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})

        # A connection that is closed while its client sends is reset: many would read no answer.
        with suppress(TimeoutError):
            async with asyncio.timeout(connection.LINGER):
                await self._discard_body(receive)

        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _discard_body(self, receive: Receive) -> None:
        """Receive the rest of a body, so that its client can finish sending, and throw it away.

        It ends when the body does, when the client has left, or when more than a valid body came.
        """
        discarded = 0
        while discarded <= self._max_body:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body"):
                return
            discarded += len(message.get("body", b""))


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns a body which was read already, and goes on after it."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            # The body is complete, so the next message says that the client has left.
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _refusal_of(error: HTTPException | StoreError) -> HTTPException:
    """Return the refusal for an error of `AuthMiddleware._admit`; log that of the store."""
    if isinstance(error, StoreError):
        log.error("a request could not be counted", extra=failure(error))
    return refusal_of(error)


def tenant_of(scope: Scope, tokens: Tokens | None) -> str | None:
    """Return the tenant of a request; None for a request that needs none.

    Raises:
        HTTPException: The token is unknown (401) or opens other paths only (403); or there are no
            tokens, and another machine or a page of another origin asks (403).
    """
    path = scope["path"]
    if not (path.startswith(GUARDED) or path == METRICS):
        return None

    headers = Headers(scope=scope)
    if tokens is None:
        _check_same_origin(headers)
        return OPEN_TENANT

    token = _bearer_token(headers)
    tenant = tokens.tenant(token) if token else None
    if tenant is None:
        raise UNKNOWN_TOKEN()
    # The operator's tokens open the metrics and nothing else; no other tokens open them.
    is_operator = tenant == OPERATOR
    wants_metrics = path == METRICS
    if is_operator != wants_metrics:
        raise OTHER_PATH()
    return tenant


def _check_same_origin(headers: Headers) -> None:
    """Refuse what a web page of another origin asks: its author is not the user of the machine.

    Raises:
        HTTPException: Such a page asks (403).
    """
    hosts = headers.getlist("host")
    host = hosts[0].lower() if len(hosts) == 1 else ""
    # A page whose host name was bound to this machine's address (DNS rebinding) sends that name.
    if not _LOOPBACK_HOST.fullmatch(host):
        raise UNKNOWN_HOST()

    own_origins = (f"http://{host}", f"https://{host}")
    if any(origin.lower() not in own_origins for origin in headers.getlist("origin")):
        raise OTHER_ORIGIN()
    if any(site not in _SAME_ORIGIN_SITES for site in headers.getlist("sec-fetch-site")):
        raise OTHER_ORIGIN()


def _bearer_token(headers: Headers) -> str:
    """Return the token of the header `Authorization`; "" if there is no such header, or several."""
    values = headers.getlist("authorization")
    if len(values) != 1:
        return ""
    scheme, _, token = values[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
