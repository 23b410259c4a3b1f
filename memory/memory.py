"""What a method keeps for one user: a frozen value whose JSON is its stored form; the simplest are turns verbatim.

Writing never changes a memory but returns a new one, so earlier memories stay usable: caches, rollouts and snapshots
rest on that. Questions are asked of settled memories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import BaseModel, JsonValue

from ..records import AnyItem, Frozen, Item, Session
from ..text import one_line
from .index import DIALOGUE, Entry
from .indexes import Lineage

_KINDS = {"logs": "log", "behavior": "record", "profile": "profile"}
"""What a turn of an item is called as a hit, by the kind of the item; else "turn"."""


class Stored(Frozen):
    """Base of memories and of what they are made of: frozen."""

    def replace(self, **fields: Any) -> Self:
        """A copy with other fields."""
        return self.model_copy(update=fields)


class FailedItem(Stored):
    """What could not be taken into a memory: its turns are searched as they were said, and tried again."""

    item: AnyItem
    """The item, with those of its turns that are not in the memory."""
    attempts: int = 1

    def halves(self) -> Iterator[Item]:
        """The item in halves: what was too much for one prompt may fit into two."""
        turns = self.item.turns
        middle = (len(turns) + 1) // 2
        yield from (
            self.item.select_turns([turn.id for turn in part]) for part in (turns[:middle], turns[middle:]) if part
        )


class Memory(Stored):
    """Base of all memories; without arguments it is the empty memory."""

    names_sources: ClassVar[bool] = True
    """Whether its JSON names the turns its entries rest on, so that `stored_sources` tells what was stored."""
    failed_items: tuple[FailedItem, ...] = ()
    """What could not be taken in. Writers add to it with `left`; everything else is `Writer.take`'s business."""

    def mark_failed(self, item: Any, turns: Collection[str] | None = None) -> Self:
        """The memory that knows that an item, or those of its turns with these ids, could not be taken in."""
        lost = [turn.id for turn in item.spoken if turns is None or turn.id in turns]
        if not lost:
            return self
        return self.replace(failed_items=(*self.failed_items, FailedItem(item=item.select_turns(lost))))

    @cached_property
    def lineage(self) -> Lineage:
        """What this memory has in common with those that are written from it: they are searched by one index."""
        return Lineage()

    @property
    def operations(self) -> Mapping[str, int]:
        """Operations that wrote it, by outcome: {"inserted": 3, "refused": 1}; {} of a method that counts none."""
        return {}

    def entries(self) -> Sequence[Entry]:
        """What can be searched in it, in order. Default: an entry of each of its parts."""
        return () if type(self).parts is Memory.parts else tuple(map(self.entry, self.parts()))

    def parts(self) -> Sequence[Any]:
        """What its entries are made of, one each, in their order. Default: the entries themselves.

        A memory and the one written from it share the objects that did not change: an index goes from one to the other
        by those that did. A memory that makes its entries when it is asked for them returns here what it makes them of.
        """
        return self.entries()

    def entry(self, part: Any) -> Entry:
        """The entry of one of its parts."""
        return part

    def with_text(self, part: Any, text: str) -> Any:
        """One of its parts with another text, which its user gave it."""
        return part.model_copy(update={"text": text})

    def __copy__(self) -> Self:
        copied = super().__copy__()
        # The one thing beside its fields that a copy has in common with the memory: one index serves both.
        vars(copied)["lineage"] = self.lineage
        return copied

    def continue_from(self, finalized: Any) -> Any:
        """The memory that further items are written into after `finalize` made `finalized` of it.

        By default this memory: how often it was settled meanwhile then changes nothing, and a stored memory equals the
        one that is written at once. A memory whose settling must not be repeated returns `finalized`.
        """
        return self


class TurnMemory(Memory):
    """Turns in time order."""

    turns: tuple[Entry, ...] = ()
    """One entry per turn: its id is the turn's, its text is `speaker: words [image caption]`."""

    def with_session(self, item: Item) -> TurnMemory:
        """The memory with one more item; empty turns are left out."""
        return self.model_copy(update={"turns": self.turns + turn_entries(item)})

    def entries(self) -> tuple[Entry, ...]:
        return self.turns


def turn_entries(item: Item) -> tuple[Entry, ...]:
    """Every turn with words as an entry; those of a session are a dialogue, named by its first turn."""
    kind = _KINDS.get(getattr(item, "kind", ""), "turn")
    # Turn ids are unique, while two items may have one id; a session that is still open begins with the same turn.
    tags = {DIALOGUE: item.turns[0].id} if isinstance(item, Session) and item.turns else {}
    return tuple(
        Entry(
            id=turn.id,
            text=one_line(f"{turn.speaker}: {turn.content}"),
            kind=kind,
            sources=(turn.id,),
            time=turn.time or item.time,
            speaker=turn.speaker,
            tags=tags,
        )
        for turn in item.spoken
    )


def stored_sources(memory: BaseModel) -> frozenset[str]:
    """Ids of all turns that something in the JSON of a memory names in its `sources`; removed entries do not count."""
    found, left = set[str](), list[JsonValue]([memory.model_dump(mode="json")])
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            sources = value.get("sources")
            found.update(map(str, sources) if isinstance(sources, list) else ())
            left += (part for name, part in value.items() if name != "removed")
    return frozenset(found)
