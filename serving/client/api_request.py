"""One HTTP request of a client: whether it may be sent again, and what its response means.

A request is sent again only if nothing can be done twice by that. After the statuses 429 and 503,
nothing was done for it. If the connection broke, the service may have done it all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, NoReturn, TypeVar

import httpx

from ...errors import ConflictError, EndpointError, ServiceError, UserError
from ...secret_values import Secrets

T = TypeVar("T")

MAX_PAUSE = 60.0
"""The most seconds between two attempts. A request that may be sent again only after a longer time,
e.g. because the tenant's budget of the day is spent, fails at once."""

_FIRST_PAUSE = 0.2
"""Seconds before the second attempt; every further pause is twice as long."""
_OVERLOAD_STATUSES = (429, 503)
"""Statuses of requests that were refused before anything was done for them."""
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors of requests that did not reach the service."""
_UNREADABLE = (ValueError, LookupError, TypeError, RecursionError)
"""What reading a response may raise if the server is not a service of Mempiler."""


class _Missing(Enum):
    IS_ERROR = "is an error"


Outcome = httpx.Response | httpx.HTTPError
"""What one attempt came to."""


@dataclass(frozen=True)
class ApiRequest(Generic[T]):
    """A request whose result is of the type `T`."""

    method: str
    path: str
    parse: Callable[[Any], T]
    """Turns the JSON of a response into the result."""
    body: Mapping[str, Any] | None = None
    params: Mapping[str, str | int] | None = None
    result_if_missing: T | Literal[_Missing.IS_ERROR] = _Missing.IS_ERROR
    """The result for a user, session or entry that the service does not know; else an error."""
    is_repeatable: bool = True
    """Whether doing it twice is the same as doing it once.

    Deletions and changes are not repeatable: a second receipt would say that there was nothing to
    delete.
    """

    def retry_pause(self, outcome: Outcome, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt; None if the outcome is final.

        Args:
            outcome: What the attempt came to.
            attempt: The number of the attempt, from 0.
        """
        pause = min(MAX_PAUSE, _FIRST_PAUSE * 2**attempt)

        if isinstance(outcome, httpx.HTTPError):
            # Whether the service did it is not known, unless the request never reached it.
            may_repeat = self.is_repeatable or isinstance(outcome, _NEVER_SENT)
            return pause if may_repeat else None

        # Any request may be sent again after these: nothing was done for it.
        if outcome.status_code not in _OVERLOAD_STATUSES:
            return None
        retry_after = outcome.headers.get("Retry-After", "")
        if retry_after.isdecimal():
            pause = float(retry_after)
        # Who would have to wait for minutes or hours is told so, instead of waiting.
        return pause if pause <= MAX_PAUSE else None

    def result(self, outcome: Outcome, secrets: Secrets) -> T:
        """Return the result of the last attempt.

        Args:
            outcome: What the attempt came to.
            secrets: What was sent to the service and may not be shown in an error.

        Raises:
            UserError: The service refuses the request.
            ConflictError: Other content is stored under the same name.
            EndpointError: The service's language model does not answer.
            ServiceError: The service does not answer, or cannot do it at the moment.
        """
        if isinstance(outcome, httpx.HTTPError):
            secrets.hide_in_error(outcome)
            raise ServiceError(
                f"the service did not answer: {type(outcome).__name__} {outcome}"
            ) from outcome

        if not outcome.is_success:
            message = _error_message(outcome, secrets)
            # Without such a message, a 404 may just as well come from a wrong address.
            if outcome.status_code == 404 and self.result_if_missing is not _Missing.IS_ERROR:
                return self.result_if_missing
            _raise_error(outcome.status_code, message)

        try:
            return self.parse(outcome.json())
        except _UNREADABLE as error:
            raise ServiceError(
                f"{self.method} {self.path}: what answers here is no service of Mempiler"
            ) from error


def _error_message(response: httpx.Response, secrets: Secrets) -> str:
    """Return the message of an error of the service, without secrets.

    Raises:
        ServiceError: The response does not have the form of a service's error.
    """
    try:
        return secrets.hide(str(response.json()["error"]["message"]))
    except _UNREADABLE:
        status = response.status_code
        raise ServiceError(
            f"status {status}: what answers here is no service of Mempiler; look at the address",
            status,
        ) from None


def _raise_error(status: int, message: str) -> NoReturn:
    """Raise the error that a status stands for."""
    if status == 409:
        raise ConflictError(message)
    if status == 502:
        raise EndpointError(message)
    if status == 408 or status in _OVERLOAD_STATUSES or status >= 500:
        raise ServiceError(message, status)
    raise UserError(message)
