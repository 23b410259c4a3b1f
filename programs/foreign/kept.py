"""A memory that is the history itself: what stands in it is known, what somebody else's system makes of it is not."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ...memory.index import Entry
from ...memory.memory import Memory
from ...memory.turns import turn_entries
from ...records import AnyItem, History, Item
from ..method import Writer


class Kept(Memory):
    """The items, in time order."""

    items: tuple[AnyItem, ...] = ()

    @cached_property
    def history(self) -> History:
        """The items as a history, named by what is in it."""
        found = History(id="", items=self.items)
        return found.model_copy(update={"id": found.digest[:12]})

    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for item in self.items for entry in turn_entries(item))


class Keeper(Writer):
    """Keeps every item."""

    Memory = Kept

    def write(self, memory: Kept, item: Item, prepared: Any = None) -> Kept:
        return memory.model_copy(update={"items": (*memory.items, item)})
