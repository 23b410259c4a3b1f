"""The client of a service.

Example:
    with Client("http://127.0.0.1:8000", token) as client:
        client.memory("ada").add([{"role": "user", "content": "I moved to Lisbon."}])
        print(client.memory("ada").ask("Where does Ada live?").answer)

Connections are kept and shared: one client may be used from many threads at once.
"""

from __future__ import annotations

import time
from typing import Self, TypeVar

import httpx

from ... import __version__
from ...errors import UserError
from ...memory.results import MemoryStatus
from ...secret_values import Secrets, hide_password, secrets_of_address
from ...validation import check_address, check_number
from .api_request import ApiRequest, Outcome
from .remote_memory import RemoteMemory
from .user_requests import users_request

T = TypeVar("T")

TIMEOUT = 90.0
"""Seconds without a byte of a response; a service gives up after 60."""
CONNECT_TIMEOUT = 10.0
"""Seconds to connect."""
RETRIES = 3


class Client:
    """A service.

    Args:
        url: The address of the service, e.g. http://127.0.0.1:8000.
        token: A token of the service's token file; None for a service without tokens.
        timeout: Seconds without a byte of a response after which an attempt has failed.
        retries: How often a request is sent again if nothing can be done twice by that.

    Raises:
        UserError: `url` is no address, or `timeout` no number of seconds.
    """

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
        self._http = httpx.Client(
            base_url=url,
            headers=request_headers(token),
            timeout=httpx.Timeout(timeout, connect=CONNECT_TIMEOUT),
        )

    def memory(self, user: str) -> RemoteMemory:
        """Return the memory of a user, who need not be known to the service.

        Raises:
            UserError: The name cannot stand in an address.
        """
        return RemoteMemory(self.send, user)

    def users(self) -> list[MemoryStatus]:
        """Return the users of the token's tenant, in order of their names."""
        users: list[MemoryStatus] = []
        after: str | None = ""
        while after is not None:
            page = self.send(users_request(after))
            users.extend(page.users)
            after = page.next
        return users

    def send(self, request: ApiRequest[T]) -> T:
        """Send a request, again if that is safe and may help, and return its result.

        Raises:
            UserError: The service refuses the request.
            ConflictError: Other content is stored under the same name.
            EndpointError: The service's language model does not answer.
            ServiceError: The service does not answer, or cannot do it at the moment.
        """
        for attempt in range(self._retries):
            outcome = self._send_once(request)
            pause = request.retry_pause(outcome, attempt)
            if pause is None:
                return request.result(outcome, self._secrets)
            time.sleep(pause)

        outcome = self._send_once(request)
        return request.result(outcome, self._secrets)

    def _send_once(self, request: ApiRequest[T]) -> Outcome:
        """Return the response to a request, or the error that took its place."""
        try:
            return self._http.request(
                request.method, request.path, json=request.body, params=request.params
            )
        except httpx.HTTPError as error:
            return error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_service_address(url: str) -> None:
    """Refuse an address that is none, or that ends in /v1 as addresses for OpenAI's clients do.

    With /v1 twice in the path, the service would answer as for an unknown user.

    Raises:
        UserError: It is one of these.
    """
    check_address("url", url)
    if url.rstrip("/").endswith("/v1"):
        raise UserError(
            f"url {hide_password(url)!r:.100}: leave /v1 away, such as http://127.0.0.1:8000"
        )


def request_headers(token: str | None) -> dict[str, str]:
    """Return the headers of every request."""
    headers = {"User-Agent": f"mempiler/{__version__}"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return headers
