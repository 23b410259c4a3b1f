"""Events of a service as they come: the lines of a stream as records, and where to go on when it broke off."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import httpx

from ..errors import ServiceError
from .call import NOTHING_DONE, error_of

SILENCE = 60.0
"""Seconds without a line after which a stream is taken for broken; a service says every 15 that it is alive."""
PAUSE = 0.5
"""Seconds between two attempts to hear a service."""


@dataclass(frozen=True)
class Event:
    """What became of a session."""

    number: int
    """Where to go on: `events(after=number)`."""
    user: str
    session: str
    state: str
    """`remembered`, `partial`, `failed`; or `missed`: events before this one are not kept any more."""
    time: str
    """When, in ISO's form."""


class Hearing:
    """One listener, over any number of connections.

    Args:
        after: The number of the last event that is known; None hears what comes from now on.
        patience: Seconds without a service after which to give up.
    """

    def __init__(self, after: int | None, patience: float) -> None:
        self._after, self._patience, self._heard = after, patience, time.monotonic()
        self._fields: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        """What says where to go on."""
        return {} if self._after is None else {"Last-Event-ID": str(self._after)}

    def line(self, line: str) -> Event | None:
        """Takes a line; returns the event that ends with it."""
        self._heard = time.monotonic()
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        try:
            if "id" in fields:
                self._after = int(fields["id"])
            if "data" not in fields:
                return None
            told = json.loads(fields["data"])
            if fields.get("event") == "missed":
                return Event(self._after or 0, "", "", "missed", "")
            return Event(self._after or 0, told["user"], told["session"], told["state"], told["time"])
        except (ValueError, LookupError, TypeError) as error:
            raise ServiceError("what answers here is no service of Mempiler") from error

    def broken(self, why: httpx.HTTPError | httpx.Response | None) -> float:
        """Seconds to wait before the next connection.

        Args:
            why: What ended the one before: an error, a refusal that was read, or None for its orderly end.

        Raises:
            MempilerError: The service refuses, or was not there for too long.
        """
        self._fields = {}
        refused = isinstance(why, httpx.Response)
        if refused and why.status_code not in NOTHING_DONE:
            raise error_of(why)
        if why is None:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > self._patience:
            raise error_of(why) if refused else ServiceError(f"the service does not answer: {type(why).__name__} {why}")
        return PAUSE
