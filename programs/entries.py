"""The entries of a user's memory, one by one: what each says, when, and from which sessions and turns.

    memory ── Reader.entries ──┐
    waiting items ── turns ────┴── by id, numbers in it as numbers ──> pages

Ids never change and order the entries, so that a page goes on behind the last id of the page before, whatever was
added or deleted between the two.

Example:
    >>> from mempiler.programs.entries import in_order
    >>> sorted(["D2:1", "D1:10", "D1:9"], key=in_order)
    ['D1:9', 'D1:10', 'D2:1']
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UserError
from ..memory.index import Entry
from ..memory.listed import Listed, Origin
from ..memory.turns import turn_entries
from .method import Method
from .recalling import with_unwritten
from .waiting import Waiting

MOST = 1000
"""Most entries of a page."""
_NUMBER = re.compile(r"([0-9]{1,18})")


def in_order(id: str) -> tuple[Any, ...]:
    """By what entries are ordered: `D1:9` comes before `D1:10`."""
    parts = [int(part) if n % 2 else part for n, part in enumerate(_NUMBER.split(id))]
    return (*parts, -1, id)


def entries_of(method: Method, memory: Any, waiting: Waiting) -> dict[str, tuple[Entry, bool]]:
    """Every entry of a memory and every turn that is not in it, by id, each with whether it waits.

    Args:
        method: Whose memory it is.
        memory: A settled memory.
        waiting: Items that are not in it.
    """
    items = with_unwritten(memory, waiting).items
    found = {entry.id: (entry, True) for item in items for entry in turn_entries(item)}
    return found | {entry.id: (entry, False) for entry in method.reader.entries(memory)}


def entry_of(method: Method, memory: Any, waiting: Waiting, id: str) -> tuple[Entry, bool] | None:
    """One of these by its id; None if there is none."""
    found = next((entry for entry in method.reader.entries(memory) if entry.id == id), None)
    if found is not None:
        return found, False
    items = with_unwritten(memory, waiting).items
    return next(((entry, True) for item in items for entry in turn_entries(item) if entry.id == id), None)


def page(entries: Mapping[str, Any], cursor: str | None, limit: int) -> tuple[list[str], str | None]:
    """The ids of a page, and where the next one begins.

    Args:
        entries: By id.
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
    behind = [id for id in entries if after is None or in_order(id) > after]
    ids = heapq.nsmallest(limit, behind, key=in_order)
    return ids, ids[-1] if len(behind) > limit else None


def listed(entry: Entry, waiting: bool, sessions: Sequence[Origin]) -> Listed:
    """An entry with the sessions that it comes from."""
    about = entry.id, entry.text, entry.kind, entry.time, entry.speaker, entry.sources
    return Listed(*about, sessions=tuple(sessions), waiting=waiting)
