"""Errors of the service as HTTP responses: one JSON form, that of OpenAI, so that its clients understand it.

What the caller can correct comes with its message. What is the operator's (store, endpoint, a program that does not
fit its memories) comes without addresses and reasons; those are in the log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from dspy.utils.exceptions import (
    AdapterParseError,
    ContextWindowExceededError,
    LMError,
    LMInvalidRequestError,
)
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from ...errors import AnswerChangedError, BudgetError, ConflictError, EndpointError, ProgramError, StoreError, UserError
from ...validation import validation_message

log = logging.getLogger("mempiler.serving")
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def body_of(error: HTTPException) -> dict[str, Any]:
    """The JSON form of an error."""
    kind = _KINDS.get(error.status_code, "server_error" if error.status_code >= 500 else "invalid_request_error")
    return {"error": {"message": error.detail, "type": kind, "code": error.status_code}}


def response_of(error: HTTPException) -> JSONResponse:
    """The response for a request that is not served."""
    return JSONResponse(body_of(error), error.status_code, error.headers)


# Made anew each time: an exception that is raised twice keeps the frames of both.
UNKNOWN_TOKEN = partial(
    HTTPException, 401, "give a valid token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
)
UNKNOWN_HOST = partial(HTTPException, 403, "without tokens this service answers to 127.0.0.1 and localhost only")
OTHER_ORIGIN = partial(HTTPException, 403, "without tokens this service answers to no page of another origin")
OTHER_PATH = partial(HTTPException, 403, "/metrics wants a token of the tenant `metrics`, which opens nothing else")
SLOW_BODY = partial(HTTPException, 408, "the body did not come in time")
TOO_LARGE = partial(HTTPException, 413, "the body is too large")
NO_JSON = partial(HTTPException, 400, "send a JSON object, with Content-Type: application/json")
TOO_MANY_VALUES = partial(HTTPException, 413, "the JSON of the body has too many parts; send fewer at a time")
_CLOSE = {"Connection": "close"}
TOO_MANY_CHUNKS = partial(HTTPException, 413, "the chunks of the body are too small; send larger ones", _CLOSE)
TOO_MANY_HEADERS = partial(HTTPException, 431, "the request has too many headers", _CLOSE)
MALFORMED = partial(HTTPException, 400, "this is no valid HTTP/1.1, or its headers are too long", _CLOSE)
NO_WEBSOCKET = partial(HTTPException, 400, "there is no WebSocket here; send a plain HTTP request", _CLOSE)
AMBIGUOUS = partial(
    HTTPException, 400, "send either Content-Length or Transfer-Encoding: chunked, without trailers", _CLOSE
)
BUG = partial(HTTPException, 500, "something went wrong here; the log has it under the request's id")
OVERLOADED = partial(HTTPException, 503, "too many requests wait; try again", {"Retry-After": "2"})
TENANT_OVERLOADED = partial(
    HTTPException, 429, "too many requests of this tenant wait; try again", {"Retry-After": "2"}
)
GONE = partial(HTTPException, 499, "the client went away")
LATE = partial(HTTPException, 504, "this took too long; what was said is stored, and the request can be repeated")

_DOWN = "the language model does not answer; what was said is stored, and the request can be repeated"
_REFUSALS: Sequence[tuple[type[Exception], int, str]] = (
    (ConflictError, 409, ""),
    (ProgramError, 409, "another program wrote this user's memory; the operator must run mempiler memories rebuild"),
    (UserError, 400, ""),
    (ContextWindowExceededError, 413, "this is more than the language model can read at once"),
    (LMInvalidRequestError, 422, "the language model refused this request"),
    (LMError, 502, _DOWN),
    (EndpointError, 502, _DOWN),
    (AdapterParseError, 502, "the language model's answer could not be read; the request can be repeated"),
    (AnswerChangedError, 502, "the answer became another one while it was sent; the request can be repeated"),
    (StoreError, 503, "the store does not answer; nothing was half stored, and the request can be repeated"),
    (BudgetError, 503, "the budget of the language model is spent"),
)
"""Errors with their status and message, the first that fits; "" means the error's own message."""

CAUGHT = (HTTPException, *(kind for kind, _, _ in _REFUSALS))


def refusal_of(error: BaseException) -> HTTPException:
    """The refusal for an error; `BUG` for any that is not foreseen."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, RequestValidationError):
        if error.errors()[0]["loc"] == ("body",):
            return NO_JSON()
        # What was sent need not be text that a response can hold; a message of ours is.
        error = UserError(validation_message(error, skipped_parts=1))
    for kind, status, message in _REFUSALS:
        if isinstance(error, kind):
            return HTTPException(status, message or str(error), {"Retry-After": "5"} if status == 503 else None)
    return BUG()


def cause_of(error: BaseException) -> str:
    """Why something failed, without what anybody said: full disk, server down, status of the model's endpoint."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, LMError):
        return f"status {error.status}" if error.status else f"{error.code}"
    below = error.__cause__
    if isinstance(error, StoreError) and isinstance(below, OperationalError):
        # Other errors of a database may quote the values of a row.
        return str(below.orig).partition("\n")[0]
    return type(error if below is None else below).__name__


def failure(error: BaseException) -> dict[str, str]:
    """The fields of a line that says that something failed."""
    return {"kind": type(error).__name__, "cause": cause_of(error)}
