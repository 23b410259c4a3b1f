"""Items that are not in a memory yet are searched as raw turns, before a model has written them.

waiting items ── as turn RAG searches ──> turns that bear on the query ── shown as they are, beside the recalled context

What waits for one user is searched by one index, which is moved along as items come and are taken in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..memory.index import Embedder
from ..memory.indexes import Indexes, Line
from ..memory.turns import turn_entries
from ..records import Hit, Item, Query, Session

RAW_TURNS = 10
"""Most turns that a question finds among those that are not in the memory yet."""


@dataclass(frozen=True)
class Waiting:
    """Items that are not in a memory, oldest first."""

    items: tuple[Item, ...] = ()
    line: Line = field(default_factory=Line, compare=False)
    """What it has in common with what waited before: items that are the same objects are not looked at again."""

    def but(self, turns: Collection[str]) -> Waiting:
        """The same without the turns of some ids."""
        if not turns:
            return self
        return replace(self, items=tuple(_without(item, turns) for item in self.items))

    def newest(self, most: int) -> tuple[Hit, ...]:
        """The newest turns, newest first."""
        found: list[Hit] = []
        for item in reversed(self.items):
            found += [entry.hit() for entry in reversed(turn_entries(item))]
            if len(found) >= most:
                break
        return tuple(found[:most])


def raw_indexes(embedder: Embedder | None = None) -> Indexes:
    """Indexes over the turns of waiting items.

    Args:
        embedder: Adds search by meaning.
    """

    def items(waiting: Waiting) -> Sequence[Item]:
        return waiting.items

    def made(waiting: Any, item: Item) -> Any:
        return turn_entries(item)

    return Indexes(embedder, hybrid=True, parts=items, made=made)


def with_raw(query: Query, waiting: Waiting, raw: Sequence[Hit]) -> Query:
    """The query whose task also shows the turns that were found, except those that it shows anyway."""
    found = {hit.id for hit in raw} - query.shown_ids
    if not found:
        return query
    cut = [(item, tuple(turn for turn in item.turns if turn.id in found)) for item in waiting.items]
    extra = tuple(Session(id=item.id, time=item.time, turns=turns) for item, turns in cut if turns)
    return query.model_copy(update={"shown": (*extra, *query.shown)})


def _without(item: Item, turns: Collection[str]) -> Item:
    rest = tuple(turn for turn in item.turns if turn.id not in turns)
    return item if len(rest) == len(item.turns) else item.model_copy(update={"turns": rest})
