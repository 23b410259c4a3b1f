"""One user's memory at one moment: settled, pending, and what a filter leaves of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar, cast

from ..memory.amending import Amendments, EntryEdits
from ..memory.entries import MOST
from ..memory.index import Entry
from ..memory.indexes import Lineage
from ..memory.memory import Memory, turn_entries
from ..memory.stored import Contents, Document, Snapshot
from ..programs.method import Method
from ..programs.pending import PendingItems, with_failed_items
from ..records import ABSTRACT_KINDS, Hit, Item, Query, SearchResult, Session, Turn
from ..records.timestamps import comparable
from ..validation import check_number

I = TypeVar("I", bound=Item)  # noqa: E741
GONE = "(deleted)"
"""What stands in the place of words that were deleted, or said before they were reworded."""
_WIDER = 4
"""By how much a search is widened whose entries were mostly not to be looked at."""


@dataclass(frozen=True)
class MemoryFilter(EntryEdits):
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
    def is_empty(self) -> bool:
        """Whether nothing is left out."""
        return not (self.since or self.until) and self.turns is None

    def holds(self, time: datetime | None, sources: Collection[str], kind: str = "") -> bool:
        """Whether what is of a time and a kind, and rests on some turns, is looked at."""
        if self.turns is not None and (
            self.turns.isdisjoint(sources) or (kind in ABSTRACT_KINDS and not self.turns.issuperset(sources))
        ):
            return False
        if not (self.since or self.until):
            return True
        if time is None or (self.since and comparable(time) < comparable(self.since)):
            return False
        return not self.until or comparable(time) < comparable(self.until)

    def edited(self, entry: Entry) -> Entry | None:
        return entry if self.holds(entry.time, entry.sources, entry.kind) else None

    def amended_item(self, item: Item) -> Item:
        kept = {turn.id for turn in item.turns if self.holds(turn.time or item.time, (turn.id,))}
        return item if len(kept) == len(item.turns) else item.select_turns(kept)


class UserCache:
    """What a process keeps of one user from one reading to the next; versions say whether it still holds."""

    def __init__(self) -> None:
        self.written: tuple[str, Document, Memory, Memory] | None = None
        """The version, its document without the texts, the memory, and the settled memory."""
        self.amendments: tuple[int, Amendments] = 0, Amendments(())
        """The number of the last amendment, and those in force."""
        self.left: dict[int, tuple[Memory, EntryEdits, Memory]] = {}
        """A memory, and what an amendment, or a part that is looked at, leaves of it."""
        self.vectors: dict[bytes, int] = {}
        """The lengths of the vectors that the store has."""
        self.parsed: Mapping[Hashable, Any] = {}
        """What waited last, by its JSON."""
        self.line = Lineage()
        """Its index."""

    def apply_amendment(self, place: int, method: Method, memory: Memory, amend: EntryEdits) -> Memory:
        """A settled memory as an amendment leaves it; the last one of a place is kept."""
        kept = self.left.get(place)
        if kept is None or kept[0] is not memory or kept[1] != amend:
            kept = self.left[place] = memory, amend, method.apply_edits(memory, amend)
        return kept[2]


@dataclass(frozen=True)
class MemoryView:
    """A user's memory at one moment."""

    method: Method
    snapshot: Snapshot
    document: Document | None
    memory: Memory
    """What further items are written into."""
    finalized: Memory
    """What questions are answered from."""
    pending: PendingItems
    """What is not in the settled memory."""
    cache: UserCache = field(default_factory=UserCache, repr=False, compare=False)
    amendments: Amendments | None = None
    """What was applied to the settled memory and to what waits; None where they are as they were written."""
    filter: MemoryFilter | None = None
    """What is looked at, of the settled memory and of what waits; everything if None."""

    def visible_items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """What is looked at of raw items, as amendments leave them."""
        for amend in (self.amendments, self.filter):
            items = amend.amended_items(items) if amend else items
        return tuple(items)

    @property
    def speakers(self) -> tuple[str, ...]:
        """Who said something, in order of first appearance."""
        said = (turn.speaker for item in self.pending.items for turn in item.turns)
        return tuple(dict.fromkeys((*(self.document.speakers if self.document else ()), *said)))

    def with_open_session(self, session: Session) -> MemoryView:
        """The same with an open session as it is by now."""
        opened = (*(other for other in self.snapshot.open if other.id != session.id), session)
        items = (*(stored.item for stored in self.snapshot.waiting), *opened)
        waiting = replace(self.pending, items=self.visible_items(items))
        return replace(self, snapshot=replace(self.snapshot, open=opened), pending=waiting)

    def search(self, query: str, k: int, within: MemoryFilter) -> SearchResult:
        """The entries nearest to a query, and the waiting turns; at most `k` of each. Scores cannot be compared."""
        check_number("k", k, 1, MOST)
        items = with_failed_items(self.finalized, self.pending)
        entries = _best(lambda most: self.method.reader.search(self.finalized, [query], most)[0], k, within)
        raw = _best(lambda most: self.method.raw.search(items, [query], most)[0], k, within) if items.items else ()
        return SearchResult(entries, raw)

    def with_fallback(self, query: str, found: SearchResult) -> SearchResult:
        """What `search` found; or what `ask` shows in its place, if nothing of it may answer the query."""
        hits = (*found.entries, *found.pending)
        asked = Query(text=query, speakers=self.speakers)
        items = with_failed_items(self.finalized, self.pending)
        fallback = self.method.fallback(self.finalized, asked, items, hits)
        if fallback is None:
            return found
        return SearchResult(fallback.entries_after(found.entries), fallback.extra_raw_turns(found.pending))

    def entries(self) -> dict[str, tuple[Entry, bool]]:
        """Every entry of the memory and every turn that is not in it, by id, each with whether it waits."""
        items = with_failed_items(self.finalized, self.pending).items
        found = {entry.id: (entry, True) for item in items for entry in turn_entries(item)}
        return found | {entry.id: (entry, False) for entry in self.method.reader.entries(self.finalized)}


def _best(found: Callable[[int], list[Hit]], k: int, within: MemoryFilter) -> tuple[Hit, ...]:
    most = k if within.is_empty else _WIDER * k
    while True:
        hits = found(most)
        inside = [hit for hit in hits if within.holds(hit.time, hit.sources, hit.kind)]
        if len(inside) >= k or len(hits) < most:
            return tuple(inside[:k])
        most *= _WIDER


def redacted_memory(seen: MemoryView) -> dict[str, Any]:
    """The settled memory as JSON: what was deleted, or said before it was reworded, stands nowhere in it.

    Methods keep more than their entries: names, labels, what an entry said before. There a text is left out that says
    what is gone (`Amendments.is_deleted_text`), unless an entry says it now. The store keeps all of it, for whoever takes the
    change back.
    """
    memory = seen.finalized.model_dump(mode="json")
    if not seen.amendments:
        return memory
    says = [entry.text for entry in seen.method.reader.entries(seen.finalized)]
    return _left(memory, seen.amendments, says)


def contents_shown(seen: MemoryView, found: Contents) -> Contents:
    """Everything that the store holds of a user, as it may be shown: without turns that a deleted entry rests on."""
    amend, document = seen.amendments, found.document
    if not amend:
        return found
    if document:
        document = replace(document, memory=json.dumps(redacted_memory(seen)), settled=None)
    items = tuple(replace(one, item=_item(one.item, amend), error=_left(one.error, amend)) for one in found.items)
    opened = tuple(_item(session, amend) for session in found.open)
    return replace(found, items=items, open=opened, document=document)


def _left(value: Any, amend: Amendments, says: Collection[str] = ()) -> Any:
    """What is left of a JSON value, where entries say these texts."""
    if isinstance(value, dict):
        return {name: _left(part, amend, says) for name, part in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_left(part, amend, says) for part in cast(list[Any], value)]
    gone = isinstance(value, str) and amend.is_deleted_text(value) and not any(value in said for said in says)
    return GONE if gone else value


def _item(item: I, amend: Amendments) -> I:
    if not any(turn.id in amend.hidden_turn_ids for turn in item.turns):
        return item
    return item.model_copy(update={"turns": tuple(_turn(turn, amend) for turn in item.turns)})


def _turn(turn: Turn, amend: Amendments) -> Turn:
    after = amend.amended_turn(turn)
    if turn.id in amend.hidden_turn_ids and (after is None or after is turn or amend.is_deleted_text(after.content)):
        return turn.model_copy(update={"text": GONE, "caption": None})
    return after or turn
