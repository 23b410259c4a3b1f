"""What a user's memory holds that bears on a query: entries with their scores, no answer and no language model.

    memory ── Reader.search ──> entries ──┐
    waiting items ── raw ──> turns ───────┴── those of some times and sessions, the best of each

Entries and waiting turns stay apart: scores of two indexes cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import UserError
from ..memory.amending import Amend
from ..memory.index import Entry
from ..records import ABSTRACT, Found, Hit, Item
from ..records.moment import comparable
from .method import Method
from .recalling import with_unwritten
from .waiting import Waiting

MOST = 1000
"""Most entries of one search."""
_WIDER = 4
"""By how much a search is widened whose entries were mostly not to be looked at."""


@dataclass(frozen=True)
class Within(Amend):
    """What is looked at: a span of time, and some of the sessions; by default everything.

    Args:
        since: The first moment that is in it; moments without a zone are in UTC.
        until: The first moment after it. What has no time is in no span.
        turns: Those of the sessions. An entry belongs to them that rests on one of these; an abstract, if it rests on
            nothing else. All if None.
    """

    since: datetime | None = None
    until: datetime | None = None
    turns: frozenset[str] | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return not (self.since or self.until) and self.turns is None

    def holds(self, time: datetime | None, sources: Collection[str], kind: str = "") -> bool:
        """Whether what is of a time and a kind, and rests on some turns, is looked at."""
        if self.turns is not None and (
            self.turns.isdisjoint(sources) or (kind in ABSTRACT and not self.turns.issuperset(sources))
        ):
            return False
        if not (self.since or self.until):
            return True
        if time is None or (self.since and comparable(time) < comparable(self.since)):
            return False
        return not self.until or comparable(time) < comparable(self.until)

    def own(self, entry: Entry) -> Entry | None:
        return entry if self.holds(entry.time, entry.sources, entry.kind) else None

    def item(self, item: Item) -> Item:
        kept = {turn.id for turn in item.turns if self.holds(turn.time or item.time, (turn.id,))}
        return item if len(kept) == len(item.turns) else item.only(kept)


def search(method: Method, memory: Any, waiting: Waiting, query: str, k: int, within: Within) -> Found:
    """Finds what is nearest to a query.

    Args:
        method: Whose memory it is.
        memory: A settled memory.
        waiting: Items that are not in it.
        query: What is looked for.
        k: Most entries, and most waiting turns.
        within: Of which times and sessions they are.

    Raises:
        UserError: `k` is not a number from 1 to 1000.
        EndpointError: The embedder cannot be reached.
    """
    if not 1 <= k <= MOST:
        raise UserError(f"k is {k}; ask for 1 to {MOST} entries")
    items = with_unwritten(memory, waiting)
    raw = method.raw.of(items)
    entries = _best(lambda most: method.reader.search(memory, [query], most)[0], k, within)
    return Found(entries, _best(lambda most: raw.search([query], most)[0], k, within) if items.items else ())


def _best(found: Callable[[int], list[Hit]], k: int, within: Within) -> tuple[Hit, ...]:
    most = k if within.everything else _WIDER * k
    while True:
        hits = found(most)
        inside = [hit for hit in hits if within.holds(hit.time, hit.sources, hit.kind)]
        if len(inside) >= k or len(hits) < most:
            return tuple(inside[:k])
        most *= _WIDER
