"""Clients of a service: its memories under the methods of a memory of this process.

`AsyncClient` is the same for asyncio, with an `a` before the names: `await memory.aask(...)`. Connections are kept and
shared; a client may be used from many threads, or tasks, at once. `add` returns when the session is stored.
"""

from __future__ import annotations

import time
from typing import Any, Self, TypeVar

import httpx

from ... import __version__
from ...memory.results import MemoryStatus, Users
from ...secret_values import Secrets, secrets_of_address
from ...validation import check_address, check_number
from .requests import ApiRequest, RemoteMemory

T = TypeVar("T")

TIMEOUT = 90.0
"""Seconds without a byte of an answer; a service gives up after 60."""
CONNECTING = 10.0
"""Seconds to connect."""
RETRIES = 3


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
        self._retries = retries
        self._secrets = Secrets([token, *secrets_of_address(url)])
        self._http = httpx.Client(**http_settings(url, token, timeout))

    def memory(self, user: str) -> RemoteMemory:
        """The memory of a user, known or not.

        Raises:
            UserError: The name cannot stand in an address.
        """
        return RemoteMemory(self.send, user)

    def users(self) -> list[MemoryStatus]:
        """The users of the token's tenant, in order of their names."""
        found, page = list[MemoryStatus](), Users(users=(), next="")
        while page.next is not None:
            page = self.send(ApiRequest("GET", "/v1/users", Users.model_validate, params={"after": page.next}))
            found += page.users
        return found

    def send(self, call: ApiRequest[T]) -> T:
        """Makes a call.

        Raises:
            UserError: The service refuses it; `ConflictError` where other content is stored under the name.
            EndpointError: The service's language model does not answer.
            ServiceError: The service does not answer, or cannot at the moment.
        """
        attempt = 0
        while True:
            try:
                found = self._http.request(call.method, call.path, json=call.body, params=call.params)
            except httpx.HTTPError as error:
                found = error
            pause = call.pause(found, attempt)
            if pause is None or attempt == self._retries:
                return call.result(found, self._secrets)
            time.sleep(pause)
            attempt += 1

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def http_settings(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """What both kinds of httpx's clients are made with."""
    check_number("timeout", timeout)
    check_address("url", url)
    headers = {"User-Agent": f"mempiler/{__version__}"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return {"base_url": url, "headers": headers, "timeout": httpx.Timeout(timeout, connect=CONNECTING)}
