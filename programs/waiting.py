"""Items that are not in a memory yet are searched as raw turns, before a model has written them.

waiting items ── as turn RAG searches ──> turns that bear on the query ── shown as they are, beside the recalled context
"""

from __future__ import annotations

from collections.abc import Sequence

from ..memory.index import Embedder, Entry
from ..memory.indexes import empty_index, filled
from ..memory.turns import turn_entries
from ..records import Hit, Item, Query, Session
from .method import FEW, of_meaning

RAW_TURNS = 10
"""Most turns that a question finds among those that are not in the memory yet."""


def found_raw(waiting: Sequence[Item], probe: str, embedder: Embedder | None = None) -> tuple[Hit, ...]:
    """The turns that bear on a query, best first, among items that are not in the memory.

    Args:
        waiting: The items, oldest first.
        probe: What to look for.
        embedder: Adds search by meaning.
    """
    turns = _turns(waiting)
    index = filled(empty_index(of_meaning(embedder), hybrid=True), turns)
    return tuple(index.search([probe], RAW_TURNS)[0]) if turns else ()


def newest_raw(waiting: Sequence[Item]) -> tuple[Hit, ...]:
    """The newest turns, newest first, for a query that found nothing."""
    return tuple(entry.hit() for entry in _turns(waiting)[: -FEW - 1 : -1])


def with_raw(query: Query, waiting: Sequence[Item], raw: Sequence[Hit]) -> Query:
    """The query whose task also shows the turns that were found, except those that it shows anyway."""
    found = {hit.id for hit in raw} - query.shown_ids
    if not found:
        return query
    cut = [(item, tuple(turn for turn in item.turns if turn.id in found)) for item in waiting]
    extra = tuple(Session(id=item.id, time=item.time, turns=turns) for item, turns in cut if turns)
    return query.model_copy(update={"shown": (*extra, *query.shown)})


def _turns(waiting: Sequence[Item]) -> list[Entry]:
    return [entry for item in waiting for entry in turn_entries(item)]
