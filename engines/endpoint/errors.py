"""Errors of endpoints.

Clients and transport raise errors of `dspy.lm15`. DSPy turns them into its own errors, those of
`dspy.utils.exceptions`, for whoever asks a model. Five errors are ours:

* dspy.lm15.TransportError
  - UnreachableError: there is no connection to the endpoint
  - DisconnectedError: the connection is lost before the endpoint answers
  - BrokenReplyError: an answer breaks off, or cannot be read
* dspy.lm15.ProviderError
  - LargeReplyError: an answer is larger than allowed
* dspy.utils.exceptions.LMTimeoutError
  - AbandonedCallError: nobody waits for the answer any more
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

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
from dspy.utils.exceptions import (
    LMCollectionLimitError,
    LMError,
    LMStreamAssemblyError,
    LMTimeoutError,
    LMUnexpectedError,
)


class UnreachableError(TransportError):
    """No connection to an endpoint can be made: nothing listens there, or its name is unknown."""


class DisconnectedError(TransportError):
    """A connection to an endpoint was made, and is lost before the endpoint begins to answer.

    It may have read the request and done the work.
    """


class BrokenReplyError(TransportError):
    """An endpoint began to answer (status 200), but the answer breaks off or cannot be read."""


class LargeReplyError(ProviderError):
    """A reply of an endpoint is larger than allowed."""


class AbandonedCallError(LMTimeoutError):
    """The work that wants the answer of a call ended before the call did.

    It says nothing about the endpoint.
    """

    def __init__(self) -> None:
        super().__init__("nobody waits for the answer any more")


def may_be_charged(error: LMError) -> bool:
    """Return whether an endpoint may charge for a call that ended with this error.

    An endpoint that cannot be reached, or that answers with the status of an error, charges
    nothing. One that is silent or hangs up, or whose answer is not read to its end, may have done
    the work.
    """
    if isinstance(error, LMTimeoutError) and error.status is None:
        return True
    if isinstance(error, LMUnexpectedError | LMCollectionLimitError | LMStreamAssemblyError):
        return True

    # Among the causes are earlier attempts that may be charged, see `add_earlier_attempt`.
    cause = error.__cause__
    while cause is not None:
        if attempt_may_be_charged(cause):
            return True
        cause = cause.__cause__
    return False


def attempt_may_be_charged(error: BaseException) -> bool:
    """Return whether an endpoint may charge for an attempt that ended with this error."""
    if isinstance(error, EndpointTimeoutError):
        # Status 408 is an answer of the endpoint.
        return error.status is None
    return isinstance(error, DisconnectedError | BrokenReplyError | LargeReplyError)


def add_earlier_attempt(error: BaseException, earlier_error: BaseException) -> None:
    """Put the error of an earlier attempt behind the causes of the error of the last one.

    `may_be_charged` finds it there: the endpoint may charge for any attempt of a call.
    """
    first_cause = error
    while first_cause.__cause__ is not None:
        first_cause = first_cause.__cause__
    first_cause.__cause__ = earlier_error


def error_of_status(status: int, message: str, retry_after: float | None = None) -> ProviderError:
    """Return the error that an HTTP status above 299 stands for.

    Args:
        status: The HTTP status.
        message: What the endpoint says.
        retry_after: Seconds that the endpoint asks to wait; None if it asks for nothing.
    """
    return _class_of_status(status)(message, status=status, retry_after=retry_after)


def _class_of_status(status: int) -> type[ProviderError]:
    """Return the class of `dspy.lm15` for an error with an HTTP status."""
    if status in (401, 403):
        return AuthError
    if status == 404:
        return UnsupportedModelError
    if status == 408:
        return EndpointTimeoutError
    if status == 429:
        return RateLimitError
    if status >= 500:
        return ServerError
    if status >= 400:
        return InvalidRequestError
    return ProviderError


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a reply asks to wait before the next attempt; None if it does not.

    Args:
        headers: The headers of the reply, by their names in small letters.
    """
    milliseconds = headers.get("retry-after-ms")
    wait = headers.get("retry-after")
    try:
        if milliseconds is not None:
            return float(milliseconds) / 1000
        if wait is not None:
            return _parse_retry_after(wait.strip())
    except ValueError:
        # It says something that nobody understands.
        return None
    return None


def _parse_retry_after(wait: str) -> float:
    """Return the seconds that a `Retry-After` asks for: a number of seconds, or a date.

    Raises:
        ValueError: It is neither.
    """
    if wait.isdigit():
        return float(wait)
    return max(0.0, parsedate_to_datetime(wait).timestamp() - time.time())
