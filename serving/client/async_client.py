"""The client of a service for asyncio."""

from __future__ import annotations

import asyncio
from typing import Self, TypeVar

import httpx

from ...memory.results import MemoryStatus, Users
from ...secret_values import Secrets, secrets_of_address
from .client import RETRIES, TIMEOUT, http_settings
from .requests import ApiRequest, AsyncRemoteMemory

T = TypeVar("T")


class AsyncClient:
    """A service, for asyncio; arguments as `Client`."""

    def __init__(self, url: str, token: str | None = None, timeout: float = TIMEOUT, retries: int = RETRIES) -> None:
        self._retries = retries
        self._secrets = Secrets([token, *secrets_of_address(url)])
        self._http = httpx.AsyncClient(**http_settings(url, token, timeout))

    def memory(self, user: str) -> AsyncRemoteMemory:
        """As `Client.memory`."""
        return AsyncRemoteMemory(self.send, user)

    async def users(self) -> list[MemoryStatus]:
        """As `Client.users`."""
        found, page = list[MemoryStatus](), Users(users=(), next="")
        while page.next is not None:
            page = await self.send(ApiRequest("GET", "/v1/users", Users.model_validate, params={"after": page.next}))
            found += page.users
        return found

    async def send(self, call: ApiRequest[T]) -> T:
        """Makes a call; errors as those of `Client.send`."""
        attempt = 0
        while True:
            try:
                found = await self._http.request(call.method, call.path, json=call.body, params=call.params)
            except httpx.HTTPError as error:
                found = error
            pause = call.pause(found, attempt)
            if pause is None or attempt == self._retries:
                return call.result(found, self._secrets)
            await asyncio.sleep(pause)
            attempt += 1

    async def close(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
