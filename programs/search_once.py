"""One search per question: what the task is shown and what evidence recall looks at are parts of one ranking.

    with searching_once(depth=20):
        reader.recall(memory, query)             searches 20 deep, takes 10
        reader.search(memory, [query.probe], 20)  has been searched

The best k of a deeper search are those of a search for k: hits come best first, and ties in a fixed order.
"""

from __future__ import annotations

import contextvars
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from ..memory.flight import Flight
from ..memory.indexes import Indexes
from ..records import Hit

_scope: contextvars.ContextVar[tuple[int, Flight] | None] = contextvars.ContextVar("search_scope", default=None)


@contextmanager
def searching_once(depth: int) -> Generator[None]:
    """Makes each single query of the block be searched once, at least so deep."""
    token = _scope.set((depth, Flight()))
    try:
        yield
    finally:
        _scope.reset(token)


def searched(indexes: Indexes, memory: Any, queries: Sequence[str], k: int, min_score: float) -> list[list[Hit]]:
    """What the index of a memory finds; a query of the running block that was searched is not searched again."""
    scope = _scope.get()
    if scope is None or len(queries) != 1 or not 0 < k <= scope[0]:
        return indexes.search(memory, queries, k, min_score)
    depth, known = scope
    # The memory is kept beside its hits, so that its id is not reused.
    key = (id(indexes), id(memory), queries[0], min_score)
    _, [hits] = known.once(key, lambda: (memory, indexes.search(memory, queries, depth, min_score)))
    return [hits[:k]]
