"""The filter that leaves a part of a memory: of a span of time, or of chosen sessions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...records import ABSTRACT_KINDS, Item
from ...records.timestamps import comparable


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
