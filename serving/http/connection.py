"""HTTP/1.1 on one connection, with bounds on what a client makes the service parse before anybody looks at a token.

uvicorn and h11 parse in Python, in the thread that serves everybody: a chunk takes 13 microseconds, however small. What
is out of bounds, or framed so that a proxy may see another request in it, is refused, and the connection is read no
further.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import (
    AMBIGUOUS,
    MALFORMED,
    NO_WEBSOCKET,
    TOO_LARGE,
    TOO_MANY_CHUNKS,
    TOO_MANY_HEADERS,
    response_of,
)

MAX_HEADER_BYTES = 32_768
"""Most bytes of the headers of a request."""
MAX_HEADERS = 100
"""Most headers of a request."""
FREE_CHUNKS = 100
"""Chunks that every request may have."""
BYTES_PER_CHUNK = 256
"""Bytes of a body for which it may have one chunk more."""
LINGER = 2.0
"""Seconds for which the rest of a refused request is thrown away before its connection is closed.

A connection that is closed while its client sends is reset, and many clients then read no answer.
"""
_END_OF_HEAD = re.compile(rb"\n\r?\n")


class BoundedConnection(h11.Connection):
    """The server's side of a connection; what is out of bounds is an h11.RemoteProtocolError.

    Args:
        max_body: Most bytes of a body as they are received: the frames of chunks count.
    """

    def __init__(self, max_body: int) -> None:
        super().__init__(h11.SERVER, MAX_HEADER_BYTES)
        self.refusal: HTTPException | None = None
        """Why the connection is read no further, where this class says so; None if h11 does."""
        self._max_body = max_body
        self._received = 0
        self._head_ended_at = 0
        self._chunks = 0
        self._payload = 0
        self._asks_to_switch = False

    def receive_data(self, data: bytes) -> None:
        """Take what came over the connection."""
        self._received += len(data)
        super().receive_data(data)

    def next_event(self) -> Any:
        """Parse the next part of a request.

        Raises:
            h11.RemoteProtocolError: It is malformed or out of bounds.
        """
        if self.their_state is h11.IDLE:
            self._check_number_of_headers()

        event = super().next_event()

        if isinstance(event, h11.Request):
            self._check_framing(event)
            self._check_upgrade(event)
            self._head_ended_at = self._received - len(self.trailing_data[0])
            self._chunks = 0
            self._payload = 0
        elif isinstance(event, h11.Data):
            self._check_body(event)
        elif isinstance(event, h11.EndOfMessage) and event.headers:
            raise self._refuse(AMBIGUOUS())
        return event

    def _check_number_of_headers(self) -> None:
        """Count the lines of a head before h11 takes them apart."""
        buffered = self.trailing_data[0]
        end = _END_OF_HEAD.search(buffered)
        lines = buffered.count(b"\n", 0, end.start() if end else len(buffered))
        # The line that has the method is no header, and the last header's end is not counted.
        if lines > MAX_HEADERS:
            raise self._refuse(TOO_MANY_HEADERS())

    def _check_framing(self, request: h11.Request) -> None:
        """Refuse a body of which two lengths are told, and one in chunks of which HTTP/1.0 knows nothing."""
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" not in names:
            return
        if b"content-length" in names or request.http_version < b"1.1":
            raise self._refuse(AMBIGUOUS())

    def _check_upgrade(self, request: h11.Request) -> None:
        """Refuse a WebSocket, and note whether a request asks for another protocol.

        Java's own client asks for HTTP/2 (`Upgrade: h2c`) with every request: such a request is answered over HTTP/1.1.
        """
        protocols = b",".join(value for name, value in request.headers if name == b"upgrade").lower()
        if b"websocket" in protocols:
            raise self._refuse(NO_WEBSOCKET())
        self._asks_to_switch = bool(protocols) or request.method == b"CONNECT"

    def send(self, event: Any) -> Any:
        """Return the bytes of the next part of an answer.

        An answer to a request that asks for another protocol ends the connection: a proxy that takes the switch for
        done would let everything behind it pass unseen.
        """
        if self._asks_to_switch and isinstance(event, h11.Response):
            headers = [*event.headers, (b"connection", b"close")]
            event = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
        return super().send(event)

    def _check_body(self, part: h11.Data) -> None:
        self._payload += len(part.data)
        self._chunks += part.chunk_start
        if self._received - self._head_ended_at > self._max_body:
            raise self._refuse(TOO_LARGE())
        if self._chunks > FREE_CHUNKS + self._payload // BYTES_PER_CHUNK:
            raise self._refuse(TOO_MANY_CHUNKS())

    def _refuse(self, refusal: HTTPException) -> h11.RemoteProtocolError:
        self.refusal = refusal
        return h11.RemoteProtocolError(refusal.detail)


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol over a `BoundedConnection`, for one connection.

    Args:
        max_body: Most bytes of a body as they are received.
        **uvicorn: The arguments of uvicorn's protocol.
    """

    def __init__(self, max_body: int, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.conn = BoundedConnection(max_body)
        self._is_refused = False

    def data_received(self, data: bytes) -> None:
        """Take what came over the connection; after a refusal it is thrown away."""
        if not self._is_refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed, and end the connection; uvicorn calls this."""
        self._is_refused = True
        refusal = cast(BoundedConnection, self.conn).refusal or MALFORMED()
        if self.cycle is None or self.cycle.response_complete:
            self._answer(refusal)
        else:
            # The application waits for the rest of this body: it answers, so that the log has a line of the request.
            self.cycle.scope.setdefault("state", {})["refusal"] = refusal
            self.cycle.message_event.set()

    def _answer(self, refusal: HTTPException) -> None:
        """Answer where no application can, as there is no request yet, and end the connection a moment later."""
        response = response_of(refusal)
        head = h11.Response(status_code=response.status_code, headers=response.raw_headers)
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.loop.call_later(LINGER, self.transport.close)


def bounded_protocol(max_body: int) -> type[asyncio.Protocol]:
    """Return what makes the protocol of each connection, in the form in which uvicorn takes it."""
    make: Callable[..., asyncio.Protocol] = partial(BoundedProtocol, max_body)
    return cast(type[asyncio.Protocol], make)
