"""One request to a service: what is sent, how its answer is read, and when it may be sent again.

    Call ──> response ── 2xx ──> its value
                      ── 429, 503: nothing was done ──> again, as the service asks
                      ── else ──> an error of `mempiler.errors`, with the service's own words
         ──> no response ── it was not sent, or may be sent twice ──> again

A call is sent again where that cannot do a thing twice; a deletion is not, for the second receipt would say that there
was nothing to delete.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from ...errors import ConflictError, EndpointError, MempilerError, ServiceError, UserError
from ...memory.amending import storable
from ...memory.stored import ADDRESSABLE, name_of

T = TypeVar("T")

NOTHING_DONE = (429, 503)
"""Statuses of requests that were refused before anything was done for them."""
LONGEST_PAUSE = 30.0
"""Most seconds between two attempts, whatever the service asks for."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request."""

    method: str
    path: str
    read: Callable[[Any], T]
    """Makes the result of the JSON of an answer."""
    body: Any = None
    params: Mapping[str, str | int] | None = None
    """What stands behind the `?` of the address."""
    missing: Callable[[], T] | None = None
    """What the result is where the service knows no such user or session; None where that is an error."""
    repeatable: bool = True
    """Whether it may be sent again after it was sent once."""


@dataclass(frozen=True)
class Pause:
    """That a call is to be sent again."""

    seconds: float


def judged(call: Call[T], found: httpx.Response | httpx.HTTPError, attempt: int, retries: int) -> T | Pause:
    """What an attempt came to: the result, or a pause before the next one.

    Args:
        call: What was sent.
        found: The response, or why there is none.
        attempt: How many attempts there were before.
        retries: How many there may be after the first.

    Raises:
        MempilerError: The call failed.
    """
    if isinstance(found, httpx.HTTPError):
        if attempt < retries and (call.repeatable or isinstance(found, _NOT_SENT)):
            return Pause(min(LONGEST_PAUSE, 0.2 * 2**attempt))
        raise ServiceError(f"the service did not answer: {type(found).__name__} {found}") from found
    if found.status_code == 404 and call.missing is not None and _problem(found):
        return call.missing()
    if found.status_code in NOTHING_DONE and attempt < retries:
        return Pause(_asked(found.headers.get("Retry-After"), 0.2 * 2**attempt))
    if not found.is_success:
        raise error_of(found)
    try:
        return call.read(found.json())
    except (ValueError, LookupError, TypeError) as error:
        raise ServiceError(f"{call.method} {call.path}: what answers here is no service of Mempiler") from error


def error_of(response: httpx.Response) -> MempilerError:
    """The error of a response that is none of a success."""
    status, problem = response.status_code, _problem(response)
    message = problem or f"status {status}, in no form of a service of Mempiler; look at the address"
    if not problem or status in (408, *NOTHING_DONE) or (status >= 500 and status != 502):
        return ServiceError(message, status)
    kinds: Mapping[int, type[MempilerError]] = {409: ConflictError, 502: EndpointError}
    return kinds.get(status, UserError)(message)


def segment(what: str, name: str) -> str:
    """A name as a part of an address.

    Raises:
        UserError: It is no name, or could be taken for more than one part.
    """
    name = name_of(what, name)
    if not re.fullmatch(ADDRESSABLE, name):
        raise UserError(
            f"{what} {name!r}: over HTTP a name is letters, digits and _ . @ : + = ~ | -, without a dot first"
        )
    return quote(name, safe="")


def entry_segment(entry: str) -> str:
    """The id of an entry as a part of an address: any text but those that would be more than one part, or none.

    Raises:
        UserError: It cannot stand there.
    """
    # Callers without types pass anything.
    if not isinstance(entry, str) or entry in ("", ".", "..") or "/" in entry:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"entry {entry!a:.100}: over HTTP an id is a text without a slash, and more than dots")
    return quote(storable(entry), safe="")


def _problem(response: httpx.Response) -> str:
    """What the service says is wrong; "" if it is something else that answers."""
    try:
        found = response.json()["error"]["message"]
    except (ValueError, LookupError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


def _asked(header: str | None, otherwise: float) -> float:
    try:
        seconds = float(header or otherwise)
    except ValueError:
        return otherwise
    return min(LONGEST_PAUSE, max(0.0, seconds)) if math.isfinite(seconds) else otherwise
