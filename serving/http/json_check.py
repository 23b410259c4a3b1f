"""Looks into large bodies before anything validates them: they hold a bounded number of JSON values, or are refused.

A megabyte of `{}` is 300,000 values, and to say what is wrong with each took seconds of the thread that serves
everybody. Bodies are looked into in threads, those of one tenant one after the other.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

import anyio.to_thread
from anyio import CapacityLimiter

from .errors import NO_JSON, TOO_MANY_VALUES

SMALL = 16_384
"""Bytes of a body that can be parsed and validated in no time, whatever is in it."""
MAX_FIELDS = 1000
"""Most fields of one object of a large body."""
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
"""A string, closed or not, or a sign between values; it never goes back over what it has read."""


class JsonCheck:
    """Refuses large bodies that are no JSON, or hold too many values.

    Args:
        max_values: Most values of a body: objects, lists and what is in them.
    """

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._turns: dict[str, CapacityLimiter] = {}
        """Lets one body of each tenant be parsed at a time."""

    async def check(self, tenant: str, body: bytes) -> None:
        """Look into a body of a tenant.

        Raises:
            HTTPException: It is no JSON (400), or holds too many values (413).
        """
        if len(body) <= SMALL:
            return
        turn = self._turns.setdefault(tenant, CapacityLimiter(1))
        await anyio.to_thread.run_sync(check_json, body, self._max_values, limiter=turn)


def check_json(body: bytes, max_values: int) -> None:
    """Refuse a body that is no JSON in UTF-8, or holds too many values.

    Raises:
        HTTPException: It is no JSON in UTF-8 (400), or holds too many values or an object of too many fields (413).
    """
    # A parser would make hundreds of thousands of objects before they could be counted, and let nobody else run.
    if _has_too_many_parts(body, 3 * max_values):
        raise TOO_MANY_VALUES()
    try:
        # Bytes would be read as UTF-16 or UTF-32, too, in which the quotes and signs above are counted wrong.
        value = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise NO_JSON() from None
    if not _is_bounded(value, max_values):
        raise TOO_MANY_VALUES()


def _has_too_many_parts(body: bytes, limit: int) -> bool:
    """Count strings, commas and beginnings of containers, no further than a limit: a value has three at most."""
    return any(number >= limit for number, _ in enumerate(_PART.finditer(body), 1))


def _is_bounded(value: Any, max_values: int) -> bool:
    """Count the values within a value, no further than the limit."""
    waiting = [value]
    values = 1
    while waiting:
        container = waiting.pop()
        if isinstance(container, dict):
            members = list(cast(dict[str, Any], container).values())
            if len(members) > MAX_FIELDS:
                return False
        elif isinstance(container, list):
            members = cast(list[Any], container)
        else:
            continue

        values += len(members)
        if values > max_values:
            return False
        waiting.extend(members)
    return True
