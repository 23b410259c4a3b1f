"""HTTP for the clients of `dspy.lm15`, over aiohttp: what is read is bounded, in bytes and in silence.

Bytes are counted after aiohttp has unpacked them, a part at a time: a few kilobytes may unpack to gigabytes. How long a
call may take in all is up to whoever waits for it: a call that is cancelled closes its connection.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from dspy.lm15 import (
    AuthError,
    InvalidRequestError,
    ProviderError,
    RateLimitError,
    ServerError,
    TransportError,
    UnsupportedModelError,
)
from dspy.lm15 import TimeoutError as EndpointTimeoutError

from ...secret_values import Secrets
from ...text import one_line
from .loop import run

MOST_BYTES = 4_000_000
"""Most bytes of a reply."""
CONNECT = 10.0
"""Seconds for a connection to be made."""
IDLE = 30.0
"""Seconds that an unused connection is kept."""


class UnreachableError(TransportError):
    """Raised if no connection to an endpoint can be made: nothing listens there, or its name is not known."""


class Transport:
    """What clients of `dspy.lm15` send requests through.

    Args:
        silence: Seconds without a byte after which a reply has failed.
        secrets: What requests hold that no error may show: an endpoint may repeat it.
        most_bytes: Most bytes of a reply.
    """

    def __init__(self, silence: float, secrets: Secrets, most_bytes: int = MOST_BYTES) -> None:
        self._waits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=silence)
        self._secrets = secrets
        self._most_bytes = most_bytes

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Reply]:
        """Sends a request that has `method`, `url`, `headers` as pairs and `body`.

        Raises:
            UnreachableError: The endpoint cannot be reached.
            TransportError: Of lm15, as all: the endpoint breaks off.
            TimeoutError: It is silent for too long.
            ProviderError: Its reply is larger than allowed.
        """
        with self._secrets.hiding():
            async with self._exchange(request) as reply:
                yield reply

    @asynccontextmanager
    async def _exchange(self, request: Any) -> AsyncIterator[Reply]:
        address = urlsplit(request.url)
        more: dict[str, Any] = {"allow_redirects": False, "proxy": _proxy(address.scheme, address.netloc)}
        more |= {"headers": request.headers, "data": request.body or None, "timeout": self._waits}
        session = _session(asyncio.get_running_loop())
        try:
            async with session.request(request.method, request.url, **more) as response:
                yield Reply(response, self._secrets, self._most_bytes)
        except aiohttp.ServerTimeoutError as error:
            raise EndpointTimeoutError(f"timed out: {error}") from error
        except aiohttp.ClientConnectorError as error:
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error
            raise UnreachableError(f"{reason}: {error.host}:{error.port}") from error
        except aiohttp.ClientError as error:
            raise TransportError(one_line(error, 300) or type(error).__name__) from error


class Reply:
    """A reply while it is read.

    Its headers show no secrets. Neither does the whole body of a refusal: who reads one makes an error of its
    beginning, and half a key that was cut off could not be found any more.
    """

    http_version = "HTTP/1.1"

    def __init__(self, response: aiohttp.ClientResponse, secrets: Secrets, most_bytes: int) -> None:
        self.status, self.reason, self._response = response.status, response.reason or "", response
        self.secrets = secrets
        self._most_bytes = most_bytes
        self.headers = [(name, secrets.hide(value)) for name, value in response.headers.items()]

    async def read(self) -> bytes:
        """The whole body."""
        content = b"".join([chunk async for chunk in self])
        return content if 200 <= self.status < 300 else self.secrets.hide_in_bytes(content)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most_bytes
        async for chunk in self._response.content.iter_any():
            left -= len(chunk)
            if left < 0:
                raise ProviderError(f"the reply is larger than {self._most_bytes} bytes")
            yield chunk


def error_of_status(status: int, message: str, retry_after: float | None = None) -> ProviderError:
    """Return the error of `dspy.lm15` that an HTTP status above 299 stands for.

    Args:
        status: The HTTP status.
        message: What the endpoint says.
        retry_after: Seconds that the endpoint asks to wait; None if it asks for nothing.
    """
    kind: type[ProviderError]
    if status in (401, 403):
        kind = AuthError
    elif status == 404:
        kind = UnsupportedModelError
    elif status == 408:
        kind = EndpointTimeoutError
    elif status == 429:
        kind = RateLimitError
    elif status >= 500:
        kind = ServerError
    elif status >= 400:
        kind = InvalidRequestError
    else:
        kind = ProviderError
    return kind(message, status=status, retry_after=retry_after)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a reply asks to wait before the next attempt; None if it does not say.

    Args:
        headers: Of the reply, by their names in small letters.
    """
    milliseconds = headers.get("retry-after-ms")
    wait = headers.get("retry-after")
    with suppress(ValueError):
        if milliseconds is not None:
            return float(milliseconds) / 1000
        if wait is not None and wait.strip().isdigit():
            return float(wait)
        if wait is not None:
            return max(0.0, parsedate_to_datetime(wait).timestamp() - time.time())
    return None


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
