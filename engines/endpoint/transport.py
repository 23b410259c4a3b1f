"""HTTP for the clients of `dspy.lm15`, by aiohttp: a reply is bounded in bytes and in silence.

Bytes are counted after aiohttp has unpacked them, a part at a time: a few kilobytes may unpack to
gigabytes. A transport does not limit the whole time of a call. Whoever waits for the call cancels
it, which closes its connection.

Importing this file imports aiohttp, which takes a tenth of a second. So it is imported where a
client is made, before the time of a call begins.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import functools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from dspy.lm15 import TimeoutError as EndpointTimeoutError
from dspy.lm15 import TransportError

from ...secret_values import Secrets
from ...text import one_line
from .errors import BrokenReplyError, DisconnectedError, LargeReplyError, UnreachableError
from .loop import run

MOST_BYTES = 4_000_000
"""Most bytes of a reply."""
CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to be made."""
KEEP_ALIVE = 30.0
"""Seconds that an unused connection is kept."""

Headers = Mapping[str, str] | Sequence[tuple[str, str]]


class HttpRequest(Protocol):
    """A request as the clients of `dspy.lm15` make it."""

    @property
    def method(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def body(self) -> bytes | None: ...


@dataclass(frozen=True)
class PlainRequest:
    """A request that no client of `dspy.lm15` makes."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes | None = None


class Transport:
    """What clients of `dspy.lm15` send their requests through.

    Args:
        silence: Seconds without a byte after which a reply has failed.
        secrets: What requests hold and no error may show, because an endpoint may repeat it.
        most_bytes: Most bytes of a reply.
    """

    def __init__(self, silence: float, secrets: Secrets, most_bytes: int = MOST_BYTES) -> None:
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT, sock_read=silence
        )
        self._secrets = secrets
        self._most_bytes = most_bytes

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Reply]:
        """Send a request; the block reads the reply.

        Raises:
            UnreachableError: The endpoint cannot be reached.
            BrokenReplyError: It began to answer (status 200), and breaks off.
            DisconnectedError: The connection is lost before that.
            dspy.lm15.TransportError: The transfer fails in another way.
            dspy.lm15.TimeoutError: It is silent for too long.
            LargeReplyError: Its reply is larger than allowed.
        """
        status = 0
        with self._secrets.hiding():
            try:
                async with self._send(request) as response:
                    status = response.status
                    yield Reply(response, self._secrets, self._most_bytes)
            # From the special errors of aiohttp to the general one.
            except aiohttp.ConnectionTimeoutError as error:
                raise UnreachableError(f"timed out: {error}") from error
            except aiohttp.ServerTimeoutError as error:
                raise EndpointTimeoutError(f"timed out: {error}") from error
            except aiohttp.ClientConnectorError as error:
                raise _unreachable(error) from error
            except aiohttp.ClientError as error:
                error_class = _class_of_failure(error, status)
                raise error_class(one_line(error, 300) or type(error).__name__) from error

    def _send(self, request: HttpRequest) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Return a context manager that sends a request, and gives the beginning of the reply."""
        address = urlsplit(request.url)
        headers = request.headers
        url = request.url
        # aiohttp would send a name and password as Latin-1, which has few letters.
        credentials = address.netloc.rpartition("@")[0]
        if credentials:
            headers = _headers_with_login(credentials, headers)
            url = address._replace(netloc=_host_of(address.netloc)).geturl()

        session = _session_of(asyncio.get_running_loop())
        return session.request(
            request.method,
            url,
            headers=headers,
            data=request.body or None,
            timeout=self._timeout,
            proxy=_proxy_of(address.scheme, _host_of(address.netloc)),
            allow_redirects=False,
        )


class Reply:
    """A reply while it is read.

    Its headers show no secrets, and neither does the body of a refusal: whoever reads a refusal
    quotes its beginning in an error. Secrets are hidden before, because half a key that was cut off
    could not be recognized any more.
    """

    http_version = "HTTP/1.1"

    def __init__(self, response: aiohttp.ClientResponse, secrets: Secrets, most_bytes: int) -> None:
        self.status = response.status
        self.reason = response.reason or ""
        self.headers = [(name, secrets.hide(value)) for name, value in response.headers.items()]
        self.secrets = secrets
        self._response = response
        self._most_bytes = most_bytes

    async def read(self) -> bytes:
        """Return the whole body.

        Raises:
            LargeReplyError: It is larger than allowed.
        """
        chunks = [chunk async for chunk in self]
        content = b"".join(chunks)
        if 200 <= self.status < 300:
            return content
        return self.secrets.hide_in_bytes(content)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it comes; secrets in it are not hidden.

        Raises:
            LargeReplyError: It is larger than allowed.
        """
        size = 0
        async for chunk in self._response.content.iter_any():
            size += len(chunk)
            if size > self._most_bytes:
                raise LargeReplyError(f"the reply is larger than {self._most_bytes} bytes")
            yield chunk


def _class_of_failure(error: aiohttp.ClientError, status: int) -> type[TransportError]:
    """Return the class for a failure of a connection that was made.

    Args:
        error: The failure.
        status: The status of the reply; 0 if none has come.
    """
    if status == 200:
        return BrokenReplyError
    is_lost = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
    if is_lost and status == 0:
        return DisconnectedError
    return TransportError


def _unreachable(error: aiohttp.ClientConnectorError) -> UnreachableError:
    """Return the error for a connection that cannot be made, with the reason of the system."""
    number = error.errno or 0
    # Failed look-ups of names have negative numbers, which the system has no text for.
    reason = os.strerror(number) if number > 0 else str(error)
    return UnreachableError(f"{reason}: {error.host}:{error.port}")


def _host_of(netloc: str) -> str:
    """Return the host and port of an address, without a name and password before them."""
    return netloc.rpartition("@")[2]


def _headers_with_login(credentials: str, headers: Headers) -> Headers:
    """Return headers with the name and password of an address as their `Authorization`.

    They are sent as UTF-8 (RFC 7617), and replace a key.
    """
    user, _, password = credentials.partition(":")
    login = f"{unquote(user)}:{unquote(password)}"
    encoded_login = base64.b64encode(login.encode()).decode()

    pairs = headers.items() if isinstance(headers, Mapping) else headers
    others = [(name, value) for name, value in pairs if name.lower() != "authorization"]
    return [*others, ("Authorization", f"Basic {encoded_login}")]


@functools.cache
def _proxy_of(scheme: str, host: str) -> str | None:
    """Return the proxy for a host, as the environment sets it; None if there is none."""
    proxy = getproxies().get(scheme)
    if proxy is None or proxy_bypass(host):
        return None
    return proxy


@functools.cache
def _session_of(loop: asyncio.AbstractEventLoop) -> aiohttp.ClientSession:
    """Return the session of an event loop, which all its requests share with their connections."""
    session = aiohttp.ClientSession(
        # limit=0 sets no limit: `BudgetGuard.slots` limits how many calls run at the same time.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
        # Replies shall not be compressed, and no cookie is kept.
        headers={"Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    atexit.register(_close_session, session, os.getpid())
    return session


def _close_session(session: aiohttp.ClientSession, process_id: int) -> None:
    """Close a session when the process that made it ends, or else aiohttp warns."""
    # In a child of a fork, the connections are still those of the parent.
    if process_id == os.getpid():
        with suppress(Exception):
            run(session.close(), 1)
