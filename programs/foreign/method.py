"""A memory system of somebody else's as a method: its store is written once per history, our task answers.

    history ── kept ──> settle: the store is written (`stores`) ── search(query, k) ──> hits ──> task

The memory is the history itself, so memories stay values. A system that answers by itself, with `ask`, is
`own.Asked` instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...records import Context, Hit, Query
from ..method import Method, Reader
from .kept import Keeper, Kept
from .stores import Limits, Stores


class SystemWriter(Keeper):
    """Gives the system every session of a history, once, when the history is settled.

    Args:
        system: What it is called, which is part of what a memory depends on.
        stores: Where its stores are.
    """

    def __init__(self, system: str, stores: Stores) -> None:
        super().__init__()
        self.stores = stores

    def settle(self, memory: Kept) -> Kept:
        self.stores.write(memory.history)
        return memory

    @property
    def asks(self) -> bool:
        return True


class SystemReader(Reader):
    """Recalls what the system finds.

    Args:
        stores: The system's.
        k: Entries recalled per query.
    """

    free = False

    def __init__(self, stores: Stores, k: int) -> None:
        super().__init__()
        self.stores, self.k = stores, k

    def search(
        self, memory: Kept, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return [list(self.stores.search(memory.history, query, k)) for query in queries]

    def recall(self, memory: Kept, query: Query) -> Context:
        return Context(hits=self.stores.search(memory.history, query.probe, self.k))

    def otherwise(self, memory: Kept, query: Query) -> Sequence[Hit]:
        return ()

    def size(self, memory: Kept) -> tuple[int | None, int | None]:
        return self.stores.size(memory.history)


class System(Method):
    """A system that is written and searched.

    Args:
        stores: Where its stores are.
        k: Entries recalled per query.
        timeout: Seconds that one call may take.
        max_mb: Megabytes that the store of one history may take.
    """

    def __init__(
        self, stores: Stores, k: int = 10, timeout: float = Limits.timeout, max_mb: float = Limits.max_mb
    ) -> None:
        super().__init__(SystemWriter(stores.name, stores), SystemReader(stores, k))
        self.stores = stores

    def close(self) -> None:
        self.stores.close()
