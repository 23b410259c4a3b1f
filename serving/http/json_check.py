"""Refuse large bodies with too many JSON values, before anything validates them.

A megabyte of `{}` is 300,000 values; to say what is wrong with each of them took seconds of the
thread that serves everybody. Bodies are looked into in threads, those of one tenant one after the
other.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

import anyio.to_thread
from anyio import CapacityLimiter

from .errors import NO_JSON, TOO_MANY_VALUES

SMALL = 16_384
"""Most bytes of a body that is validated at once: that takes no time, whatever is in it."""
MAX_FIELDS = 1000
"""Most fields of one object of a large body."""
PARTS_PER_VALUE = 3
"""Most parts that one value has, see `_PART`: its key, itself, and the comma behind it."""

_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,\[{]', re.DOTALL)
"""A string, closed or not, or a sign between values. It never reads anything twice."""


class JsonCheck:
    """Refuses large bodies that are not JSON, or hold too many values.

    Args:
        max_values: Most values of a body: objects, lists, texts and numbers, however deep.
    """

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._turns: dict[str, CapacityLimiter] = {}
        """Lets one body of each tenant be parsed at a time."""

    async def check(self, tenant: str, body: bytes) -> None:
        """Refuse a large body that is not JSON or holds too many values.

        A small body is not parsed here: the route refuses it if it is no JSON.

        Args:
            tenant: Whose request it is. The bodies of one tenant are parsed one after the other.
            body: The whole body.

        Raises:
            HTTPException: It is large, and not JSON (400), or holds too many values (413).
        """
        if len(body) <= SMALL:
            return
        turn = self._turns.setdefault(tenant, CapacityLimiter(1))
        await anyio.to_thread.run_sync(check_json, body, self._max_values, limiter=turn)


def check_json(body: bytes, max_values: int) -> None:
    """Refuse a body that is not JSON in UTF-8, or holds too many values.

    Raises:
        HTTPException: It is not JSON in UTF-8 (400), or holds too many values, or an object with
            too many fields (413).
    """
    # First a cheap estimate, without parsing. A parser makes all objects before anything can count
    # them, and no other thread runs while it makes hundreds of thousands. The estimate counts
    # strings, commas and opening brackets. A value has at most `PARTS_PER_VALUE` of these, so no
    # body is refused here that has few enough values.
    if _has_too_many_parts(body, PARTS_PER_VALUE * max_values):
        raise TOO_MANY_VALUES()
    try:
        # `json.loads` would also accept bytes in UTF-16 or UTF-32, for which the estimate is wrong.
        value = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise NO_JSON() from None
    # Then the exact count. Many values have fewer than `PARTS_PER_VALUE` parts, so a body may pass
    # the estimate although it has too many values.
    if not _is_bounded(value, max_values):
        raise TOO_MANY_VALUES()


def _has_too_many_parts(body: bytes, limit: int) -> bool:
    """Return whether a body has `limit` parts or more: strings, commas, container beginnings."""
    return any(number >= limit for number, _ in enumerate(_PART.finditer(body), 1))


def _is_bounded(value: Any, max_values: int) -> bool:
    """Return whether a value consists of at most so many values, and no object is too large."""
    unseen = [value]
    values = 1
    while unseen:
        container = unseen.pop()
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
        unseen.extend(members)
    return True
