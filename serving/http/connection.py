"""HTTP/1.1 on one connection, with bounds on what is parsed before anybody looks at a token.

uvicorn and h11 parse in Python, in the thread that serves everybody: a chunk takes 13 microseconds,
however small. Requests that are out of bounds are refused. So are those whose framing a proxy may
read otherwise, and thus see another request in them. After a refusal the connection is read no
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
"""For so many bytes of its body a request may have one more chunk."""
LINGER = 2.0
"""Seconds for which the rest of a refused request is thrown away before its connection is closed.

A connection that is closed while its client sends is reset, and many clients then read no answer.
"""

_END_OF_HEAD = re.compile(rb"\n\r?\n")


class BoundedConnection(h11.Connection):
    """The server's side of a connection; it raises an h11.RemoteProtocolError for what it refuses.

    Args:
        max_body: Most bytes of a body as they are received: the frames of chunks count.
    """

    def __init__(self, max_body: int) -> None:
        super().__init__(h11.SERVER, MAX_HEADER_BYTES)
        self.refusal: HTTPException | None = None
        """Why this class refuses to read further; None if it does not, or if h11 does."""
        self._max_body = max_body

        self._received = 0
        """Bytes that came over the connection."""
        self._head_ended_at = 0
        """How many of them had come when the head of the current request ended."""
        self._chunks = 0
        """Chunks of the current body."""
        self._payload = 0
        """Bytes of the current body, without the frames of chunks."""
        self._asks_to_switch = False
        """Whether the current request asks for another protocol."""

    def receive_data(self, data: bytes) -> None:
        """Take what came over the connection."""
        self._received += len(data)
        super().receive_data(data)

    def next_event(self) -> Any:
        """Parse the next part of a request, and return it as an event of h11.

        Raises:
            h11.RemoteProtocolError: It is malformed or out of bounds.
        """
        if self.their_state is h11.IDLE:
            self._check_number_of_headers()

        event = super().next_event()

        if isinstance(event, h11.Request):
            self._check_framing(event)
            self._check_upgrade(event)
            self._begin_body()
        elif isinstance(event, h11.Data):
            self._check_body(event)
        elif isinstance(event, h11.EndOfMessage) and event.headers:
            # Headers behind the body (trailers). Some proxies merge them with those of the head,
            # and so read another request than h11.
            raise self._refuse(AMBIGUOUS())
        return event

    @property
    def _unparsed(self) -> bytes:
        """What came over the connection and was not parsed yet."""
        data, _ = self.trailing_data
        return data

    def _check_number_of_headers(self) -> None:
        """Refuse a head with too many headers, before h11 takes them apart.

        A head that has not come completely is counted as far as it has.
        """
        head = self._unparsed
        end = _END_OF_HEAD.search(head)
        length = len(head) if end is None else end.start() + 1
        # A newline ends each header, and also the line of the method, which is no header.
        header_count = head.count(b"\n", 0, length) - 1
        if header_count > MAX_HEADERS:
            raise self._refuse(TOO_MANY_HEADERS())

    def _begin_body(self) -> None:
        """Count from here on: the head of a request has just been parsed."""
        self._head_ended_at = self._received - len(self._unparsed)
        self._chunks = 0
        self._payload = 0

    def _check_framing(self, request: h11.Request) -> None:
        """Refuse a body with two lengths, and a body in chunks, which HTTP/1.0 does not have."""
        names = {name for name, _ in request.headers}
        if b"transfer-encoding" not in names:
            return
        if b"content-length" in names or request.http_version < b"1.1":
            raise self._refuse(AMBIGUOUS())

    def _check_upgrade(self, request: h11.Request) -> None:
        """Refuse a request for a WebSocket, and note any other request to switch protocols.

        Such other requests are answered over HTTP/1.1, because Java's client asks for HTTP/2
        (`Upgrade: h2c`) in every request. `send` needs to know of them.
        """
        upgrades = [value for name, value in request.headers if name == b"upgrade"]
        protocols = b",".join(upgrades).lower()
        if b"websocket" in protocols:
            raise self._refuse(NO_WEBSOCKET())
        self._asks_to_switch = bool(protocols) or request.method == b"CONNECT"

    def send(self, event: Any) -> Any:
        """Return the bytes of the next part of an answer.

        The answer to a request that asks for another protocol ends the connection. A proxy may take
        such a connection for switched, and pass on all that follows unchecked. So a client could
        smuggle further requests past it.
        """
        if self._asks_to_switch and isinstance(event, h11.Response):
            event = h11.Response(
                status_code=event.status_code,
                headers=[*event.headers, (b"connection", b"close")],
                reason=event.reason,
            )
        return super().send(event)

    def _check_body(self, part: h11.Data) -> None:
        """Count the next part of a body; refuse a body that is too long or in too many chunks.

        A longer body may have more chunks.
        """
        self._payload += len(part.data)
        if part.chunk_start:
            self._chunks += 1

        # The length is that of all received bytes. It includes the line before each chunk, which
        # costs as much time to read as the payload.
        received_of_body = self._received - self._head_ended_at
        if received_of_body > self._max_body:
            raise self._refuse(TOO_LARGE())
        max_chunks = FREE_CHUNKS + self._payload // BYTES_PER_CHUNK
        if self._chunks > max_chunks:
            raise self._refuse(TOO_MANY_CHUNKS())

    def _refuse(self, refusal: HTTPException) -> h11.RemoteProtocolError:
        """Keep why the connection is read no further; return the error to raise."""
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
        """Refuse what cannot be parsed; uvicorn calls this method.

        Args:
            msg: uvicorn's message, which is not sent: the refusal has one of its own.
        """
        self._is_refused = True
        refusal = cast(BoundedConnection, self.conn).refusal or MALFORMED()
        is_in_body = self.cycle is not None and not self.cycle.response_complete
        if not is_in_body:
            self._send_refusal(refusal)
            return

        # The application has the request already, and `AuthMiddleware` waits for the rest of its
        # body. The event wakes it up. It reads the refusal, and answers with it like with any of
        # its own, so that the request is logged.
        self.cycle.scope.setdefault("state", {})["refusal"] = refusal
        self.cycle.message_event.set()

    def _send_refusal(self, refusal: HTTPException) -> None:
        """Answer a request that the application does not know of, and close after `LINGER` seconds.

        What still comes until then is thrown away. If the connection was closed at once, many
        clients would not read the answer.
        """
        response = response_of(refusal)
        events = (
            h11.Response(status_code=response.status_code, headers=response.raw_headers),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.loop.call_later(LINGER, self.transport.close)


def bounded_protocol(max_body: int) -> type[asyncio.Protocol]:
    """Return what makes the protocol of each connection, in the form in which uvicorn takes it."""
    make: Callable[..., asyncio.Protocol] = partial(BoundedProtocol, max_body)
    return cast(type[asyncio.Protocol], make)
