"""Items that are not in a memory yet are searched as raw turns, before a model has written them.

waiting items ── BM25 ──> turns that share words with the query ── shown as they are, beside the recalled context
"""

from __future__ import annotations

from collections.abc import Sequence

from ..memory.indexes import filled
from ..memory.sparse import SparseIndex
from ..memory.turns import TurnMemory
from ..records import Hit, Item, Query, Session

RAW_TURNS = 10
"""Most turns that a question finds among those that are not in the memory yet."""


def found_raw(waiting: Sequence[Item], probe: str) -> tuple[Hit, ...]:
    """The turns that share words with a query, best first, among items that are not in the memory."""
    raw = TurnMemory()
    for item in waiting:
        raw = raw.with_session(item)
    if not raw.turns:
        return ()
    return tuple(filled(SparseIndex(), raw.turns).search([probe], RAW_TURNS)[0])


def with_raw(query: Query, waiting: Sequence[Item], raw: Sequence[Hit]) -> Query:
    """The query whose task also shows the turns that were found, except those that it shows anyway."""
    found = {hit.id for hit in raw} - query.shown_ids
    if not found:
        return query
    cut = [(item, tuple(turn for turn in item.turns if turn.id in found)) for item in waiting]
    extra = tuple(Session(id=item.id, time=item.time, turns=turns) for item, turns in cut if turns)
    return query.model_copy(update={"shown": (*extra, *query.shown)})
