"""HTTP for the clients of `dspy.lm15`, over aiohttp: what is read is bounded, in bytes and in silence.

Bytes are counted after aiohttp has unpacked them, a part at a time: a few kilobytes may unpack to gigabytes. How long a
call may take in all is up to whoever waits for it: a call that is cancelled closes its connection.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from dspy.lm15 import ProviderError, TransportError
from dspy.lm15 import TimeoutError as EndpointTimeoutError

from ...errors import one_line
from .loop import run

MOST_BYTES = 4_000_000
"""Most bytes of a reply."""
CONNECT = 10.0
"""Seconds for a connection to be made."""
IDLE = 30.0
"""Seconds that an unused connection is kept."""


class Transport:
    """What clients of `dspy.lm15` send requests through; a reply has failed after seconds of silence."""

    def __init__(self, silence: float) -> None:
        self._waits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=silence)

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Reply]:
        """Sends a request that has `method`, `url`, `headers` as pairs and `body`.

        Raises:
            TransportError: Of lm15, as all: the endpoint cannot be reached, or breaks off.
            TimeoutError: It is silent for too long.
            ProviderError: Its reply is larger than allowed.
        """
        address = urlsplit(request.url)
        more: dict[str, Any] = {"allow_redirects": False, "proxy": _proxy(address.scheme, address.netloc)}
        more |= {"headers": request.headers, "data": request.body or None, "timeout": self._waits}
        session = _session(asyncio.get_running_loop())
        try:
            async with session.request(request.method, request.url, **more) as response:
                yield Reply(response)
        except aiohttp.ServerTimeoutError as error:
            raise EndpointTimeoutError(f"timed out: {error}") from error
        except aiohttp.ClientConnectorError as error:
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error
            raise TransportError(f"{reason}: {error.host}:{error.port}") from error
        except aiohttp.ClientError as error:
            raise TransportError(one_line(error, 300) or type(error).__name__) from error


class Reply:
    """A reply while it is read."""

    http_version = "HTTP/1.1"

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status, self.reason, self._response = response.status, response.reason or "", response
        self.headers = list(response.headers.items())

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for chunk in self._response.content.iter_any():
            left -= len(chunk)
            if left < 0:
                raise ProviderError(f"the reply is larger than {MOST_BYTES} bytes")
            yield chunk


@functools.cache
def _proxy(scheme: str, host: str) -> str | None:
    found = getproxies().get(scheme)
    return None if found is None or proxy_bypass(host) else found


@functools.cache
def _session(loop: asyncio.AbstractEventLoop) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE)
    asked = {"Accept-Encoding": "identity"}
    made = aiohttp.ClientSession(connector=connector, headers=asked, cookie_jar=aiohttp.DummyCookieJar())
    atexit.register(_close, made, os.getpid())
    return made


def _close(session: aiohttp.ClientSession, process: int) -> None:
    if process == os.getpid():  # in a child of it the connections are still its own
        with suppress(Exception):
            run(session.close(), 1)
