"""What a memory system of somebody else's is asked to be: an object that takes sessions and finds something in them.

    class Store:
        def add(self, session): ...                    one more session of one history
        def search(self, query, k): ...                texts or entries, best first
        def ask(self, question): ...                   optional: it answers by itself, and our reader is not asked
        def snapshot(self, folder): ...                optional: keeps itself in an empty folder
        def restore(self, folder): ...                 optional: takes such a folder up, when freshly made
        def __len__(self): ...                         optional: how many entries it stores
        keeps = False                                  optional: snapshot and restore are not to be used after all
        forks = False                                  optional: two stores cannot both go on from one snapshot
        def close(self): ...                           optional
        def kill(self): ...                            optional: ends at once, called from another thread

Each may be a coroutine. All but `kill` are called from one thread, which is the store's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...memory.index import Entry
from ...records import Item

Recalled = str | Entry | Mapping[str, Any]
"""What a search finds: a text; an entry; a mapping, or any object, with `text` (or `memory`, `content`), and where they
are known `id`, `sources` (ids of turns) and `score`."""


class Searchable(Protocol):
    """The least that a system must have; see above for what it may have."""

    def add(self, session: Item) -> Any:
        """Takes one more session; what it raises is counted, and the next session is given."""
        ...

    def search(self, query: str, k: int) -> Sequence[Recalled] | Any:
        """Finds at most `k` things that bear on a query, best first."""
        ...


Factory = Callable[..., Any]
"""Makes the system of one history, `make(folder)`, or `make(folder, embedder=...)` where it has such a parameter."""


class ForeignError(Exception):
    """Raised if a system failed to do what it was asked: the failure of the questions that hang on it."""
