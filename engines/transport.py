"""How DSPy's own clients of model endpoints read: not beyond the call's deadline, and not more than a number of bytes.

DSPy's limits are for one read each, so that an endpoint that sends a byte now and then, or never ends, holds a call and
its memory for good. `Clients` gives every client that DSPy makes for a model a transport that ends such a reply, and
lets it stream (`pieces`).

Limits: endpoints that DSPy reaches through LiteLLM are not read here; their calls still end at the deadline.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from dspy._vendor.lm15.transports import StdlibAsyncTransport, StdlibTransport
from dspy.lm15 import ProviderError

from .deadline import SLICE, deadline_here
from .pieces import AsyncPieceEngine, PieceEngine

MOST_BYTES = 4_000_000
"""Most bytes of a reply."""
_PIECE = 16_384
"""Bytes of one read: what is compressed may grow a thousandfold before it is counted."""


class Clients(dict[Any, Any]):
    """DSPy's clients of one model, by their settings.

    Args:
        most: Bytes of a reply.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Any, client: Any) -> None:
        asynchronous = type(client).__name__.startswith("Async")
        # DSPy builds the transport of a client when it is first used, and keeps what is there.
        kind = _Async if asynchronous else BoundedTransport
        client.router._transport = kind(self._most, **client.router.config.transport_kwargs())
        client.__class__ = AsyncPieceEngine if asynchronous else PieceEngine
        super().__setitem__(key, client)


class BoundedTransport(StdlibTransport):
    """Blocking reads in small parts of time."""

    def __init__(self, most: int = MOST_BYTES, **settings: Any) -> None:
        super().__init__(**settings)
        self._most = most

    def stream(self, request: Any) -> Any:
        response = super().stream(request)
        response._chunks = self._limited(response._chunks)
        return response

    def _limited(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > self._most:
                raise _too_large(self._most)
            yield chunk

    def _open(self, *given: Any, **named: Any) -> Any:
        connection: Any = super()._open(*given, **named)
        connection.sock = _Socket(connection.sock)
        return connection


class _Async(StdlibAsyncTransport):
    """The same for asyncio, where the deadline cancels the task."""

    def __init__(self, most: int = MOST_BYTES, **settings: Any) -> None:
        super().__init__(**settings)
        self._most = most

    async def _do_stream(self, request: Any) -> Any:
        response = await super()._do_stream(request)
        response._chunks = self._limited(response._chunks)
        return response

    async def _limited(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > self._most:
                raise _too_large(self._most)
            yield chunk


class _Socket:
    """A socket whose reads end at the deadline of the call that reads."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._timeout = inner, 0.0

    def settimeout(self, seconds: float) -> None:
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        deadline, silent = deadline_here(), time.monotonic() + self._timeout
        while (left := min(silent - time.monotonic(), deadline.left)) > 0:
            self._inner.settimeout(min(left, SLICE))
            try:
                return self._inner.recv(min(size, _PIECE))
            except TimeoutError:
                continue
        raise TimeoutError("timed out")

    def sendall(self, data: bytes) -> None:
        self._inner.settimeout(max(0.001, min(self._timeout, deadline_here().left)))
        self._inner.sendall(data)

    def fileno(self) -> int:
        return self._inner.fileno()

    def close(self) -> None:
        self._inner.close()


def _too_large(most: int) -> ProviderError:
    return ProviderError(f"the reply is larger than {most} bytes")
