"""The client of a service for asyncio: the methods of `Client`, awaited.

Example:
    async with AsyncClient("http://127.0.0.1:8000", token) as client:
        await client.memory("ada").add([{"role": "user", "content": "I moved to Lisbon."}])
        print((await client.memory("ada").ask("Where does Ada live?")).answer)

Connections are kept and shared: one client may be used by many tasks of one event loop.
"""

from __future__ import annotations

from typing import Self, TypeVar

import httpx

from ...memory.results import MemoryStatus
from ...secret_values import Secrets, secrets_of_address
from ...validation import check_number
from .api_request import ApiRequest, Outcome
from .async_remote_memory import AsyncRemoteMemory
from .client import CONNECT_TIMEOUT, RETRIES, TIMEOUT, check_service_address, request_headers
from .user_requests import users_request

T = TypeVar("T")


class AsyncClient:
    """A service, for asyncio; arguments and errors are those of `Client`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
    ) -> None:
        check_service_address(url)
        check_number("timeout", timeout)
        self._retries = retries
        self._secrets = Secrets([token, *secrets_of_address(url)])
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=request_headers(token),
            timeout=httpx.Timeout(timeout, connect=CONNECT_TIMEOUT),
        )

    def memory(self, user: str) -> AsyncRemoteMemory:
        """Return the memory of a user, who need not be known to the service.

        Raises:
            UserError: The name cannot stand in an address.
        """
        return AsyncRemoteMemory(self.send, user)

    async def users(self) -> list[MemoryStatus]:
        """Return the users of the token's tenant, in order of their names."""
        users: list[MemoryStatus] = []
        after: str | None = ""
        while after is not None:
            page = await self.send(users_request(after))
            users.extend(page.users)
            after = page.next
        return users

    async def send(self, request: ApiRequest[T]) -> T:
        """Send a request as `Client.send` does."""
        # Programs that only use `Client` need not wait until asyncio is imported.
        import asyncio

        for attempt in range(self._retries):
            outcome = await self._send_once(request)
            pause = request.retry_pause(outcome, attempt)
            if pause is None:
                return request.result(outcome, self._secrets)
            await asyncio.sleep(pause)

        outcome = await self._send_once(request)
        return request.result(outcome, self._secrets)

    async def _send_once(self, request: ApiRequest[T]) -> Outcome:
        """Return the response to a request, or the error that took its place."""
        try:
            return await self._http.request(
                request.method, request.path, json=request.body, params=request.params
            )
        except httpx.HTTPError as error:
            return error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
