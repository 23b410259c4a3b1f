"""One user's memory at one moment, as questions see it.

A `MemoryView` holds the memory that questions are answered from and the raw items that are not in
it yet. Of both it shows what the user's amendments and a `MemoryFilter` leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ...memory.edits import Amendments
from ...memory.entry import Entry
from ...memory.memory import Memory, turn_entries
from ...memory.results import MAX_PAGE_SIZE
from ...memory.store.documents import Document
from ...memory.store.records import Snapshot
from ...programs.method import Method
from ...programs.pending import PendingItems, with_failed_items
from ...records import Hit, Item, Query, SearchResult, Session
from ...validation import check_number
from .memory_filter import MemoryFilter
from .user_cache import UserCache

_WIDENING = 4
"""Factor by which a search is widened when the filter hides most of its hits."""


@dataclass(frozen=True)
class CurrentEntry:
    """An entry as its user sees it now."""

    entry: Entry
    is_pending: bool
    """Whether it is a turn that is not in the memory yet."""


@dataclass(frozen=True)
class MemoryView:
    """A user's memory at one moment."""

    method: Method
    snapshot: Snapshot
    """What the store held at that moment."""
    document: Document | None
    """The stored memory, without its texts; None while there is none."""
    memory: Memory
    """What further items are written into."""
    finalized: Memory
    """What questions are answered from."""
    pending: PendingItems
    """The items that are not in `finalized`."""
    cache: UserCache = field(default_factory=UserCache, repr=False, compare=False)
    amendments: Amendments | None = None
    """What was applied to `finalized` and `pending`; None if the user changed no entry."""
    filter: MemoryFilter | None = None
    """What was hidden of `finalized` and `pending`; nothing if None."""

    def visible_items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Return raw items without what amendments and the filter hide."""
        if self.amendments is not None:
            items = self.amendments.amended_items(items)
        if self.filter is not None:
            items = self.filter.amended_items(items)
        return tuple(items)

    @property
    def raw_items(self) -> PendingItems:
        """The items whose turns are searched as they were said, since the memory lacks them.

        These are the pending items, and those that could not be written into the memory.
        """
        return with_failed_items(self.finalized, self.pending)

    @property
    def speakers(self) -> tuple[str, ...]:
        """Who said something, in order of first appearance."""
        speakers = list(self.document.speakers) if self.document else []
        for item in self.pending.items:
            speakers.extend(turn.speaker for turn in item.turns)
        return tuple(dict.fromkeys(speakers))

    def with_open_session(self, session: Session) -> MemoryView:
        """Return the view with an open session as it is by now, after the other open ones.

        Open sessions are pending like stored items that are not in the memory yet.
        """
        other_sessions = [other for other in self.snapshot.open_sessions if other.id != session.id]
        open_sessions = (*other_sessions, session)
        stored_items = [stored.item for stored in self.snapshot.pending_items]

        pending_items = self.visible_items([*stored_items, *open_sessions])
        return replace(
            self,
            snapshot=replace(self.snapshot, open_sessions=open_sessions),
            pending=replace(self.pending, items=pending_items),
        )

    def search(self, query: str, k: int, within: MemoryFilter) -> SearchResult:
        """Return the entries and the raw turns nearest to a query, at most `k` of each.

        Scores of entries and of raw turns cannot be compared, so they are two lists.
        """
        check_number("k", k, 1, MAX_PAGE_SIZE)
        raw_items = self.raw_items

        def search_entries(limit: int) -> list[Hit]:
            (hits,) = self.method.reader.search(self.finalized, [query], limit)
            return hits

        def search_turns(limit: int) -> list[Hit]:
            (hits,) = self.method.raw.search(raw_items, [query], limit)
            return hits

        entries = _search_within(search_entries, k, within)
        turns: tuple[Hit, ...] = ()
        if raw_items.items:
            turns = _search_within(search_turns, k, within)
        return SearchResult(entries, turns)

    def with_fallback(self, query: str, result: SearchResult) -> SearchResult:
        """Return what `ask` would show the model after a search with this result.

        That is the result itself, unless the method decides that none of its hits may answer the
        query. Then it is the fallback: the newest entries and raw turns.
        """
        fallback = self.method.fallback(
            self.finalized,
            Query(text=query, speakers=self.speakers),
            self.raw_items,
            (*result.entries, *result.pending),
        )
        if fallback is None:
            return result
        # Replies to an earlier asking of the query are no answer, but stay beside the newest.
        entries = fallback.entries_instead_of(result.entries)
        raw_turns = fallback.raw_turns_instead_of(result.pending)
        return SearchResult(entries, raw_turns)

    def entries(self) -> dict[str, CurrentEntry]:
        """Return every entry of the memory and every turn that is not in it yet, by id."""
        entries: dict[str, CurrentEntry] = {}
        for item in self.raw_items.items:
            for entry in turn_entries(item):
                entries[entry.id] = CurrentEntry(entry, is_pending=True)
        for entry in self.method.reader.entries(self.finalized):
            entries[entry.id] = CurrentEntry(entry, is_pending=False)
        return entries


def _search_within(
    search: Callable[[int], list[Hit]], k: int, memory_filter: MemoryFilter
) -> tuple[Hit, ...]:
    """Search with growing limits until `k` hits are visible, or nothing more is found."""
    limit = k if memory_filter.is_empty else _WIDENING * k
    while True:
        hits = search(limit)
        visible_hits = [hit for hit in hits if memory_filter.holds(hit.time, hit.sources, hit.kind)]
        if len(visible_hits) >= k or len(hits) < limit:
            return tuple(visible_hits[:k])
        limit *= _WIDENING
