"""What a user's memory holds that bears on a query: entries with their scores, no answer and no language model.

    memory ── Reader.search ──> entries ──┐
    waiting items ── raw ──> turns ───────┴── those of a time window, the best of each

Entries and waiting turns stay apart: scores of two indexes cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import UserError
from ..records import Found, Hit
from ..records.moment import comparable
from .method import Method
from .recalling import with_unwritten
from .waiting import Waiting

MOST = 1000
"""Most entries of one search."""
_WIDER = 4
"""By how much a search is widened whose entries were mostly outside the window."""


@dataclass(frozen=True)
class Window:
    """A span of time; an entry without a time is in none but the one without ends.

    Args:
        since: The first moment that is in it; moments without a zone are in UTC.
        until: The first moment after it.
    """

    since: datetime | None = None
    until: datetime | None = None

    def __contains__(self, hit: Hit) -> bool:
        if not (self.since or self.until):
            return True
        if hit.time is None or (self.since and comparable(hit.time) < comparable(self.since)):
            return False
        return not self.until or comparable(hit.time) < comparable(self.until)


def search(method: Method, memory: Any, waiting: Waiting, query: str, k: int, window: Window) -> Found:
    """Finds what is nearest to a query.

    Args:
        method: Whose memory it is.
        memory: A settled memory.
        waiting: Items that are not in it.
        query: What is looked for.
        k: Most entries, and most waiting turns.
        window: When they are of.

    Raises:
        UserError: `k` is not a number from 1 to 1000.
        EndpointError: The embedder cannot be reached.
    """
    if not 1 <= k <= MOST:
        raise UserError(f"k is {k}; ask for 1 to {MOST} entries")
    items = with_unwritten(memory, waiting)
    raw = method.raw.of(items)
    entries = _best(lambda most: method.reader.search(memory, [query], most)[0], k, window)
    return Found(entries, _best(lambda most: raw.search([query], most)[0], k, window) if items.items else ())


def _best(found: Callable[[int], list[Hit]], k: int, window: Window) -> tuple[Hit, ...]:
    most = k if window == Window() else _WIDER * k
    while True:
        hits = found(most)
        inside = [hit for hit in hits if hit in window]
        if len(inside) >= k or len(hits) < most:
            return tuple(inside[:k])
        most *= _WIDER
