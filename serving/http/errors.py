"""Errors as HTTP responses, in the JSON form of OpenAI, so that its clients understand them.

    {"error": {"message": "give a valid token: ...", "type": "authentication_error", "code": 401}}

What the client can correct comes with its message. What only the operator can correct (the store,
the model's endpoint, a program that does not fit its memories) comes without addresses and reasons;
those are in the log.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

from dspy.utils.exceptions import (
    AdapterParseError,
    ContextWindowExceededError,
    LMError,
    LMInvalidRequestError,
)
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ...errors import (
    AnswerChangedError,
    BudgetError,
    ConflictError,
    EndpointError,
    ProgramError,
    StoreError,
    TenantBudgetError,
    UnknownAnswerError,
    UserError,
)
from ...validation import validation_message

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
"""OpenAI's types of errors, by status."""


def body_of(error: HTTPException) -> dict[str, Any]:
    """Return the JSON form of an error."""
    fallback = "server_error" if error.status_code >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": error.detail,
            "type": _TYPES.get(error.status_code, fallback),
            "code": error.status_code,
        }
    }


def response_of(error: HTTPException) -> JSONResponse:
    """Return the response to a request that is refused or failed."""
    return JSONResponse(body_of(error), error.status_code, error.headers)


# Refusals. Each of these names makes a new exception when it is called, e.g. `raise TOO_LARGE()`.
# A single exception that is raised twice would keep the frames of both.

_SOON = {"Retry-After": "2"}
_CLOSE = {"Connection": "close"}

UNKNOWN_TOKEN = partial(
    HTTPException,
    401,
    "give a valid token: Authorization: Bearer TOKEN",
    {"WWW-Authenticate": "Bearer"},
)
UNKNOWN_HOST = partial(
    HTTPException, 403, "without tokens this service answers to 127.0.0.1 and localhost only"
)
OTHER_ORIGIN = partial(
    HTTPException, 403, "without tokens this service answers to no page of another origin"
)
OTHER_PATH = partial(
    HTTPException,
    403,
    "/metrics wants a token of the tenant `metrics`, which opens nothing else",
)
SLOW_BODY = partial(HTTPException, 408, "the body did not come in time")
TOO_LARGE = partial(HTTPException, 413, "the body is too large")
NO_JSON = partial(HTTPException, 400, "send a JSON object, with Content-Type: application/json")
TOO_MANY_VALUES = partial(
    HTTPException, 413, "the JSON of the body has too many parts; send fewer at a time"
)
TOO_MANY_CHUNKS = partial(
    HTTPException, 413, "the chunks of the body are too small; send larger ones", _CLOSE
)
TOO_MANY_HEADERS = partial(HTTPException, 431, "the request has too many headers", _CLOSE)
MALFORMED = partial(
    HTTPException, 400, "this is no valid HTTP/1.1, or its headers are too long", _CLOSE
)
NO_WEBSOCKET = partial(
    HTTPException, 400, "there is no WebSocket here; send a plain HTTP request", _CLOSE
)
AMBIGUOUS = partial(
    HTTPException,
    400,
    "send either Content-Length or Transfer-Encoding: chunked, without trailers",
    _CLOSE,
)
BUG = partial(
    HTTPException, 500, "something went wrong here; the log has it under the request's id"
)
OVERLOADED = partial(HTTPException, 503, "too many requests wait; try again", _SOON)
TENANT_OVERLOADED = partial(
    HTTPException, 429, "too many requests of this tenant wait; try again", _SOON
)
GONE = partial(HTTPException, 499, "the client went away")
STOPPED = partial(
    HTTPException,
    503,
    "this service ends; what was said is stored, and the request can be repeated",
)
LATE = partial(
    HTTPException,
    504,
    "this took too long; what was said is stored, and the request can be repeated",
)


def has_client_left(error: BaseException) -> bool:
    """Return whether an error is that the client went away (`GONE`)."""
    return isinstance(error, HTTPException) and error.status_code == 499


def too_many_requests(limit: int, seconds: float) -> HTTPException:
    """Return the refusal of a request of a tenant that has sent too many in this minute.

    Args:
        limit: Requests that the tenant may send in a minute.
        seconds: Seconds until the next minute.
    """
    message = f"this tenant may send {limit} requests in a minute; try again in the next one"
    return HTTPException(429, message, _retry_after(seconds))


def _retry_after(seconds: float) -> dict[str, str]:
    """Return the header that asks to wait; it holds whole seconds, at least one."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


# Errors that routes raise.


class UnknownPriceError(BudgetError):
    """A tenant has a budget that cannot be kept, because the price of a model is not known."""


class _Refusal(NamedTuple):
    """How errors of a class are answered."""

    error_class: type[Exception]
    status: int
    message: str | None
    """What the client is told; None for the message of the error itself."""


_NO_MODEL = (
    "the language model does not answer; what was said is stored, and the request can be repeated"
)
_REFUSALS = (
    _Refusal(ConflictError, 409, None),
    _Refusal(
        ProgramError,
        409,
        "another program wrote this user's memory; the operator must run mempiler memories rebuild",
    ),
    _Refusal(UnknownAnswerError, 404, None),
    _Refusal(UserError, 400, None),
    _Refusal(
        ContextWindowExceededError, 413, "this is more than the language model can read at once"
    ),
    _Refusal(LMInvalidRequestError, 422, "the language model refused this request"),
    _Refusal(LMError, 502, _NO_MODEL),
    _Refusal(EndpointError, 502, _NO_MODEL),
    _Refusal(
        AdapterParseError,
        502,
        "the language model's answer could not be read; the request can be repeated",
    ),
    _Refusal(
        AnswerChangedError,
        502,
        "the answer became another one while it was sent; the request can be repeated",
    ),
    _Refusal(
        StoreError,
        503,
        "the store does not answer; nothing was half stored, and the request can be repeated",
    ),
    _Refusal(
        UnknownPriceError,
        503,
        "the budget of this tenant cannot be kept, since the price of a model is not known; the"
        " operator finds the model in the log",
    ),
    _Refusal(BudgetError, 503, "the budget of the language model is spent"),
)
"""The first entry whose class an error has says how it is answered."""

CAUGHT = (HTTPException, *(refusal.error_class for refusal in _REFUSALS))
"""Classes of errors that routes may raise."""


def refusal_of(error: BaseException) -> HTTPException:
    """Return how an error is answered: as `_REFUSALS` says, or as a `BUG`."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, TenantBudgetError):
        return HTTPException(429, str(error), _retry_after(error.retry_after))
    if isinstance(error, RequestValidationError):
        return _refusal_of_invalid_request(error)

    for refusal in _REFUSALS:
        if isinstance(error, refusal.error_class):
            headers = {"Retry-After": "5"} if refusal.status == 503 else None
            return HTTPException(refusal.status, refusal.message or str(error), headers)
    return BUG()


def _refusal_of_invalid_request(error: RequestValidationError) -> HTTPException:
    """Return the refusal of a request that does not have the form of its route."""
    is_whole_body_wrong = error.errors()[0]["loc"] == ("body",)
    if is_whole_body_wrong:
        return NO_JSON()
    message = validation_message(error, skipped_parts=1)
    # The message quotes what was sent, which may hold what no response can. The message of a
    # UserError holds only what every response can.
    return HTTPException(400, str(UserError(message)))
