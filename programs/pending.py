"""Pending items: what is not in a memory yet, and is searched as raw turns meanwhile.

The pending items of one user share a search index, which is moved along as items come and are
written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..memory.entry import Entry
from ..memory.memory import Memory, turn_entries
from ..memory.search.index_cache import Lineage
from ..records import Hit, Item, Query, Session

RAW_TURNS = 10
"""Most turns that a question finds among the pending items."""


@dataclass(frozen=True)
class PendingItems:
    """Items that are not in a memory, oldest first."""

    items: tuple[Item, ...] = ()
    lineage: Lineage = field(default_factory=Lineage, compare=False)
    """The search indexes that these items share with what was pending before.

    Items that are the same objects are not indexed again.
    """

    def without_turns(self, turn_ids: Collection[str]) -> PendingItems:
        """Return these items without the turns of some ids.

        An item that has none of these turns stays the same object, so that it is not indexed again.
        """
        if not turn_ids:
            return self

        items: list[Item] = []
        for item in self.items:
            turns = tuple(turn for turn in item.turns if turn.id not in turn_ids)
            if len(turns) == len(item.turns):
                items.append(item)
            else:
                items.append(item.model_copy(update={"turns": turns}))
        return replace(self, items=tuple(items))

    def entries(self) -> Iterator[Entry]:
        """Yield the turns, oldest first."""
        for item in self.items:
            yield from turn_entries(item)

    def newest_first(self) -> Iterator[Hit]:
        """Yield the turns as hits, newest first."""
        for item in reversed(self.items):
            for entry in reversed(turn_entries(item)):
                yield entry.hit()


def with_failed_items(memory: Memory, pending: PendingItems | None) -> PendingItems:
    """Return all items that are not in a memory: first its failed items, then the pending ones.

    Questions search both as raw turns, so they are returned as one `PendingItems`.

    Args:
        memory: The memory. Its `failed_items` are those that a writer could not write into it.
        pending: Items that wait to be written; None if there are none.
    """
    if pending is None:
        # The lineage keeps the search index of the items. A new lineage would be lost after this
        # question, and the failed items would be indexed anew for every question. The lineage of
        # the memory lasts as long as the memory.
        pending = PendingItems(lineage=memory.lineage)
    if not memory.failed_items:
        return pending

    failed_items = [failed.item for failed in memory.failed_items]
    return replace(pending, items=(*failed_items, *pending.items))


def show_raw_turns(query: Query, pending: PendingItems, raw_turns: Iterable[Hit]) -> Query:
    """Return a query with some turns added to `shown_items`, which prompts show with the question.

    The turns wait to be written into the memory, so they are shown as they were said.

    Args:
        query: The query.
        pending: The items that wait to be written.
        raw_turns: Turns of these items, e.g. those that are nearest to the query.
    """
    # Turns that are shown already are not added again.
    new_ids = {turn.id for turn in raw_turns} - query.shown_turn_ids
    if not new_ids:
        return query

    # `shown_items` holds whole items, so the turns of an item are put into a session. It has the id
    # and the time of the item, but only the turns to show.
    sessions: list[Session] = []
    for item in pending.items:
        turns = tuple(turn for turn in item.turns if turn.id in new_ids)
        if turns:
            sessions.append(Session(id=item.id, time=item.time, turns=turns))
    return query.model_copy(update={"shown_items": (*sessions, *query.shown_items)})
