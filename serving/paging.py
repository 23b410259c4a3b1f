"""Pages of entries: ids never change and order the entries, numbers in them as numbers.

A page goes on behind the last id of the page before, whatever was added or deleted between the two.

Example:
    >>> from mempiler.serving.paging import in_order
    >>> sorted(["D2:1", "D1:10", "D1:9"], key=in_order)
    ['D1:9', 'D1:10', 'D2:1']
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from typing import Any

from ..errors import UserError
from .view import MOST

_NUMBER = re.compile(r"([0-9]{1,18})")


def in_order(id: str) -> tuple[Any, ...]:
    """By what entries are ordered: `D1:9` comes before `D1:10`."""
    parts = [int(part) if n % 2 else part for n, part in enumerate(_NUMBER.split(id))]
    return (*parts, -1, id)


def page(ids: Iterable[str], cursor: str | None, limit: int) -> tuple[list[str], str | None]:
    """The ids of a page, and where the next one begins.

    Args:
        ids: Of all entries.
        cursor: What the page before said; None for the first.
        limit: Most entries.

    Raises:
        UserError: The limit is not a number from 1 to 1000, or the cursor is none.
    """
    if not 1 <= limit <= MOST:
        raise UserError(f"limit is {limit}; ask for 1 to {MOST} entries")
    if cursor is not None and not cursor:
        raise UserError("the cursor is empty; give `next` of the page before, or none for the first page")
    after = None if cursor is None else in_order(cursor)
    behind = [id for id in ids if after is None or in_order(id) > after]
    found = heapq.nsmallest(limit, behind, key=in_order)
    return found, found[-1] if len(behind) > limit else None
