"""One user's memory at one moment, as questions see it.

A `MemoryView` holds the memory that questions are answered from and the raw items that are not in
it yet. Of both it shows what the user's amendments and a `MemoryFilter` leave.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar, cast

from ...memory.edits import Amendments, EntryEdits
from ...memory.entry import Entry
from ...memory.memory import Memory, turn_entries
from ...memory.results import MAX_PAGE_SIZE
from ...memory.search.index_cache import Lineage
from ...memory.store.documents import Document
from ...memory.store.records import ParsedRows, Snapshot, StoredItem, UserDump
from ...programs.method import Method
from ...programs.pending import PendingItems, with_failed_items
from ...records import ABSTRACT_KINDS, Hit, Item, Query, SearchResult, Session, Turn
from ...records.timestamps import comparable
from ...validation import check_number

ItemT = TypeVar("ItemT", bound=Item)

GONE = "(deleted)"
"""Shown in place of words that were deleted, or that an entry said before it was reworded."""

_WIDENING = 4
"""Factor by which a search is widened when the filter hides most of its hits."""


@dataclass(frozen=True)
class MemoryFilter(EntryEdits):
    """Hides what is outside of a span of time, or of other sessions; by default nothing.

    Args:
        since: The first moment inside; moments without a zone are in UTC.
        until: The first moment after it. What has no time is in no span.
        turns: Ids of the turns of the chosen sessions; all if None. An entry belongs to them if it
            rests on one of these; an abstract, if it rests on these alone.
    """

    since: datetime | None = None
    until: datetime | None = None
    turns: frozenset[str] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is hidden."""
        return not (self.since or self.until) and self.turns is None

    def holds(self, time: datetime | None, sources: Collection[str], kind: str = "") -> bool:
        """Return whether something is visible, by its time, its turns and its kind."""
        return self._is_of_turns(sources, kind) and self._is_in_span(time)

    def edited_entry(self, entry: Entry) -> Entry | None:
        return entry if self.holds(entry.time, entry.sources, entry.kind) else None

    def amended_item(self, item: Item) -> Item:
        visible_ids = {
            turn.id for turn in item.turns if self.holds(turn.time or item.time, (turn.id,))
        }
        if len(visible_ids) == len(item.turns):
            return item
        return item.select_turns(visible_ids)

    def _is_of_turns(self, sources: Collection[str], kind: str) -> bool:
        if self.turns is None:
            return True
        if self.turns.isdisjoint(sources):
            return False
        return kind not in ABSTRACT_KINDS or self.turns.issuperset(sources)

    def _is_in_span(self, time: datetime | None) -> bool:
        if not (self.since or self.until):
            return True
        if time is None:
            return False
        if self.since and comparable(time) < comparable(self.since):
            return False
        return not self.until or comparable(time) < comparable(self.until)


@dataclass(frozen=True)
class ParsedMemory:
    """A memory that this process has read from the store."""

    version: str
    """Of the user, as `Snapshot.version`."""
    document: Document
    """As it was stored, but without its texts."""
    memory: Memory
    """What further items are written into."""
    finalized: Memory
    """What questions are answered from."""


@dataclass(frozen=True)
class EditedMemory:
    """What edits left of a memory."""

    source: Memory
    edits: EntryEdits
    result: Memory


@dataclass(frozen=True)
class ActiveAmendments:
    """The amendments of a user that were in force when one of them was the last."""

    last_number: int
    edits: Amendments


class UserCache:
    """What a process keeps of one user from one request to the next.

    Threads share it without a lock. So what belongs together is one object, replaced at once.
    """

    def __init__(self) -> None:
        self.parsed_memory: ParsedMemory | None = None
        """The memory, while the user's version is the same."""
        self.amendments = ActiveAmendments(0, Amendments(()))
        """The amendments that were read last."""
        self.edited_memories: dict[int, EditedMemory] = {}
        """What the amendments (0) and recent filters (other places) left of the memory."""
        self.vectors: dict[bytes, int] = {}
        """The lengths of the vectors that the store has, by key."""
        self.parsed_items = ParsedRows()
        """What was parsed of the last snapshot; see `Snapshot.parsed`."""
        self.pending_lineage = Lineage()
        """The index of the items that are not in the memory."""

    def apply_edits(self, place: int, method: Method, memory: Memory, edits: EntryEdits) -> Memory:
        """Return what edits leave of a memory; the last result is kept at each place."""
        known = self.edited_memories.get(place)
        if known is not None and known.source is memory and known.edits == edits:
            return known.result

        result = method.apply_edits(memory, edits)
        self.edited_memories[place] = EditedMemory(memory, edits, result)
        return result


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
    def speakers(self) -> tuple[str, ...]:
        """Who said something, in order of first appearance."""
        speakers = list(self.document.speakers) if self.document else []
        for item in self.pending.items:
            speakers.extend(turn.speaker for turn in item.turns)
        return tuple(dict.fromkeys(speakers))

    def with_open_session(self, session: Session) -> MemoryView:
        """Return the view with an open session as it is by now, after the other open ones."""
        other_sessions = [other for other in self.snapshot.open_sessions if other.id != session.id]
        open_sessions = (*other_sessions, session)
        pending_items = [stored.item for stored in self.snapshot.pending_items]

        visible_items = self.visible_items([*pending_items, *open_sessions])
        return replace(
            self,
            snapshot=replace(self.snapshot, open_sessions=open_sessions),
            pending=replace(self.pending, items=visible_items),
        )

    def search(self, query: str, k: int, within: MemoryFilter) -> SearchResult:
        """Return the entries and the pending turns nearest to a query, at most `k` of each.

        Scores of entries and of pending turns cannot be compared.
        """
        check_number("k", k, 1, MAX_PAGE_SIZE)
        reader, raw_reader = self.method.reader, self.method.raw
        raw_items = with_failed_items(self.finalized, self.pending)

        def search_entries(limit: int) -> list[Hit]:
            return reader.search(self.finalized, [query], limit)[0]

        def search_turns(limit: int) -> list[Hit]:
            return raw_reader.search(raw_items, [query], limit)[0]

        entries = _search_within(search_entries, k, within)
        turns = _search_within(search_turns, k, within) if raw_items.items else ()
        return SearchResult(entries, turns)

    def with_fallback(self, query: str, found: SearchResult) -> SearchResult:
        """Return what `search` found, or what `ask` shows if none of it may answer the query."""
        raw_items = with_failed_items(self.finalized, self.pending)
        fallback = self.method.fallback(
            self.finalized,
            Query(text=query, speakers=self.speakers),
            raw_items,
            (*found.entries, *found.pending),
        )
        if fallback is None:
            return found
        return SearchResult(
            fallback.entries_instead_of(found.entries),
            fallback.raw_turns_instead_of(found.pending),
        )

    def entries(self) -> dict[str, CurrentEntry]:
        """Return every entry of the memory and every turn that is not in it yet, by id."""
        entries: dict[str, CurrentEntry] = {}
        for item in with_failed_items(self.finalized, self.pending).items:
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


def redacted_memory(view: MemoryView) -> dict[str, Any]:
    """Return the finalized memory as JSON without any text that was deleted or reworded.

    Methods keep more than their entries: names, labels, what an entry said before. A text there
    that says what is gone (`Amendments.is_deleted_text`) becomes `GONE`, unless an entry says it
    now. The store keeps all of it, so that the change can be undone.
    """
    memory = view.finalized.model_dump(mode="json")
    if not view.amendments:
        return memory
    current_texts = [entry.text for entry in view.method.reader.entries(view.finalized)]
    return _redacted(memory, view.amendments, current_texts)


def redacted_dump(view: MemoryView, dump: UserDump) -> UserDump:
    """Return all that the store holds of a user without what amendments hide."""
    amendments = view.amendments
    if not amendments:
        return dump

    document = dump.document
    if document:
        document = replace(document, memory=json.dumps(redacted_memory(view)), finalized=None)

    items: list[StoredItem] = []
    for stored in dump.items:
        item = _redacted_item(stored.item, amendments)
        error = _redacted(stored.error, amendments)
        items.append(replace(stored, item=item, error=error))

    open_sessions = tuple(_redacted_item(session, amendments) for session in dump.open)
    return replace(dump, items=tuple(items), open=open_sessions, document=document)


def _redacted(value: Any, amendments: Amendments, current_texts: Collection[str] = ()) -> Any:
    """Return a JSON value whose deleted texts are `GONE`, but for those that entries say now."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _redacted(part, amendments, current_texts) for name, part in fields.items()}
    if isinstance(value, list):
        parts = cast("list[Any]", value)
        return [_redacted(part, amendments, current_texts) for part in parts]
    if not isinstance(value, str) or not amendments.is_deleted_text(value):
        return value
    is_current = any(value in text for text in current_texts)
    return value if is_current else GONE


def _redacted_item(item: ItemT, amendments: Amendments) -> ItemT:
    """Return a raw item with `GONE` in place of the words of its hidden turns."""
    hidden_turn_ids = amendments.hidden_turn_ids
    if not any(turn.id in hidden_turn_ids for turn in item.turns):
        return item
    turns = tuple(_redacted_turn(turn, amendments) for turn in item.turns)
    return item.model_copy(update={"turns": turns})


def _redacted_turn(turn: Turn, amendments: Amendments) -> Turn:
    """Return a turn as it is now: as it was said, with another text, or `GONE`."""
    amended_turn = amendments.amended_turn(turn)
    if turn.id not in amendments.hidden_turn_ids:
        return amended_turn or turn

    is_reworded = amended_turn is not None and amended_turn is not turn
    if amended_turn is None or not is_reworded or amendments.is_deleted_text(amended_turn.content):
        return turn.model_copy(update={"text": GONE, "caption": None})
    return amended_turn
