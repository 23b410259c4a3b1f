"""Clients of a service: its memories under the methods of a memory of this process.

    with Client("http://127.0.0.1:8000", "a token of the file") as client:
        memory = client.memory("ada")
        memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}], id="chat-17")
        memory.ask("Where does Ada live?").answer

`AsyncClient` is the same for asyncio, with an `a` before the names: `await memory.aask(...)`. Connections are kept and
shared; a client may be used from many threads, or tasks, at once.

Limits: what a service does not tell is not there: `status` knows no tenant and no program, a memory is read as its
JSON, a change of an entry is a line of its history, and `add` returns when the session is stored, not when it is
remembered.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Self, TypeVar

import httpx

from .. import __version__
from ..errors import UserError, check_number
from ..memory.stored import Summary
from . import verbs
from .call import Call, Pause, judged
from .hearing import SILENCE, Event, Hearing
from .remote import AsyncRemoteMemory, RemoteMemory
from .verbs import Imported

T = TypeVar("T")

TIMEOUT = 90.0
"""Seconds without a byte of an answer; a service gives up after 60."""
CONNECTING = 10.0
"""Seconds to connect."""
RETRIES = 3
EVENTS = "/v1/events"


class Client:
    """A service.

    Args:
        url: Its address, such as http://127.0.0.1:8000.
        token: One of its token file; None for a service without.
        timeout: Seconds without a byte of an answer after which a call has failed.
        retries: How often a call is sent again that was not done, or can be done twice.

    Raises:
        UserError: The address is none.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT, retries: int = RETRIES) -> None:
        self._retries, self._patience = retries, timeout
        self._http = httpx.Client(**_settings(url, token, timeout))

    def memory(self, user: str) -> RemoteMemory:
        """The memory of a user, known or not.

        Raises:
            UserError: The name cannot stand in an address.
        """
        return RemoteMemory(self, user)

    def users(self) -> list[Summary]:
        """The users of the token's tenant, in order of their names."""
        return self.send(verbs.users())

    def import_sessions(self, sessions: Iterable[Mapping[str, Any]]) -> Imported:
        """Stores sessions of many users, each an object of `user`, `id`, `messages` and perhaps `metadata`.

        They are sent as they come. An import that was cut off is repeated as a whole; what was stored is `known` then.
        """
        return self.send(verbs.import_sessions(sessions))

    def events(self, after: int | None = None) -> Iterator[Event]:
        """What becomes of sessions, as it happens: without an end, and over connections that break.

        Args:
            after: The number of the last event that is known, 0 for all that are kept; None for what comes from now on.

        Raises:
            MempilerError: The service refuses, or was not there for as long as the timeout.
        """
        hearing = Hearing(after, self._patience)
        while True:
            why: httpx.HTTPError | httpx.Response | None = None
            try:
                with self._http.stream("GET", EVENTS, headers=hearing.headers, timeout=SILENCE) as stream:
                    if not stream.is_success:
                        stream.read()
                        why = stream
                    else:
                        yield from filter(None, map(hearing.line, stream.iter_lines()))
            except httpx.HTTPError as error:
                why = error
            time.sleep(hearing.broken(why))

    def send(self, call: Call[T]) -> T:
        """Makes a call.

        Raises:
            UserError: The service refuses it; `ConflictError` where other content is stored under the name.
            EndpointError: The service's language model does not answer.
            ServiceError: The service does not answer, or cannot at the moment.
        """
        attempt = 0
        while isinstance(found := judged(call, self._sent(call), attempt, self._retries), Pause):
            time.sleep(found.seconds)
            attempt += 1
        return found

    def _sent(self, call: Call[Any]) -> httpx.Response | httpx.HTTPError:
        try:
            content = None if call.lines is None else map(_line, call.lines)
            return self._http.request(call.method, call.path, json=call.body, params=call.params, content=content)
        except httpx.HTTPError as error:
            return error

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient:
    """A service, for asyncio; arguments as `Client`."""

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT, retries: int = RETRIES) -> None:
        self._retries, self._patience, self._http = (
            retries,
            timeout,
            httpx.AsyncClient(**_settings(url, token, timeout)),
        )

    def memory(self, user: str) -> AsyncRemoteMemory:
        """The memory of a user, known or not.

        Raises:
            UserError: The name cannot stand in an address.
        """
        return AsyncRemoteMemory(self, user)

    async def users(self) -> list[Summary]:
        """The users of the token's tenant, in order of their names."""
        return await self.send(verbs.users())

    async def import_sessions(self, sessions: Iterable[Mapping[str, Any]]) -> Imported:
        """Stores sessions of many users; as `Client.import_sessions`."""
        return await self.send(verbs.import_sessions(sessions))

    async def events(self, after: int | None = None) -> AsyncIterator[Event]:
        """What becomes of sessions, as it happens; as `Client.events`."""
        hearing = Hearing(after, self._patience)
        while True:
            why: httpx.HTTPError | httpx.Response | None = None
            try:
                async with self._http.stream("GET", EVENTS, headers=hearing.headers, timeout=SILENCE) as stream:
                    if not stream.is_success:
                        await stream.aread()
                        why = stream
                    else:
                        async for line in stream.aiter_lines():
                            if (event := hearing.line(line)) is not None:
                                yield event
            except httpx.HTTPError as error:
                why = error
            await asyncio.sleep(hearing.broken(why))

    async def send(self, call: Call[T]) -> T:
        """Makes a call; errors as those of `Client.send`."""
        attempt = 0
        while isinstance(found := judged(call, await self._sent(call), attempt, self._retries), Pause):
            await asyncio.sleep(found.seconds)
            attempt += 1
        return found

    async def _sent(self, call: Call[Any]) -> httpx.Response | httpx.HTTPError:
        try:
            content = None if call.lines is None else _awaited(map(_line, call.lines))
            return await self._http.request(call.method, call.path, json=call.body, params=call.params, content=content)
        except httpx.HTTPError as error:
            return error

    async def close(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _line(session: Mapping[str, Any]) -> bytes:
    return json.dumps(session, default=_time).encode() + b"\n"


def _time(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise UserError(f"{value!r:.100} is no JSON value")


async def _awaited(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _settings(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """What both kinds of httpx's clients are made with.

    Raises:
        UserError: The address or the timeout is none.
    """
    check_number("timeout", timeout)
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        address = httpx.URL("")
    if address.scheme not in ("http", "https") or not address.host:
        raise UserError(f"{str(url)[:100]!r} is no address of a service; give one such as http://127.0.0.1:8000")
    headers = {"User-Agent": f"mempiler/{__version__}"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return {"base_url": address, "headers": headers, "timeout": httpx.Timeout(timeout, connect=CONNECTING)}
