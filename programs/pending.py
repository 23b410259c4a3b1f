"""Searches items as raw turns until a model has written them into the memory.

What waits for one user is searched by one index, which is moved along as items come and are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..memory.entry import Entry
from ..memory.search.index_cache import Lineage
from ..memory.memory import turn_entries
from ..records import Context, Hit, Item, Query, Session

RAW_TURNS = 10
"""Most turns that a question finds among those that are not in the memory yet."""


@dataclass(frozen=True)
class PendingItems:
    """Items that are not in a memory, oldest first."""

    items: tuple[Item, ...] = ()
    lineage: Lineage = field(default_factory=Lineage, compare=False)
    """What it has in common with what waited before: items that are the same objects are not looked at again."""

    def without_turns(self, turns: Collection[str]) -> PendingItems:
        """The same without the turns of some ids."""
        if not turns:
            return self
        items: list[Item] = []
        for item in self.items:
            rest = tuple(turn for turn in item.turns if turn.id not in turns)
            items.append(item if len(rest) == len(item.turns) else item.model_copy(update={"turns": rest}))
        return replace(self, items=tuple(items))

    def entries(self) -> Iterator[Entry]:
        """The turns, oldest first."""
        return (entry for item in self.items for entry in turn_entries(item))

    def newest_first(self) -> Iterator[Hit]:
        """The turns, newest first."""
        return (entry.hit() for item in reversed(self.items) for entry in reversed(turn_entries(item)))


class Recalled(NamedTuple):
    """What was recalled for a query."""

    query: Query
    """The query, whose task also shows the raw turns."""
    context: Context
    """What the memory gave."""
    raw_turns: tuple[Hit, ...]
    """Turns that are not in the memory."""

    def full_context(self) -> Context:
        """Everything, raw turns last."""
        return (
            self.context.model_copy(update={"hits": (*self.context.hits, *self.raw_turns)})
            if self.raw_turns
            else self.context
        )


def with_failed_items(memory: Any, waiting: PendingItems | None) -> PendingItems:
    """Return the pending items, after those that could not be written into the memory."""
    if not memory.failed_items and waiting:
        return waiting
    items = (*(each.item for each in memory.failed_items), *(waiting.items if waiting else ()))
    return PendingItems(items, waiting.lineage if waiting else memory.lineage)


def with_raw(query: Query, waiting: PendingItems, raw: Sequence[Hit]) -> Query:
    """The query whose task also shows the turns that were found, except those that it shows anyway."""
    found = {hit.id for hit in raw} - query.shown_turn_ids
    if not found:
        return query
    cut = [(item, tuple(turn for turn in item.turns if turn.id in found)) for item in waiting.items]
    extra = tuple(Session(id=item.id, time=item.time, turns=turns) for item, turns in cut if turns)
    return query.model_copy(update={"shown_items": (*extra, *query.shown_items)})
