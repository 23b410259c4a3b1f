"""Lexical search: BM25 over stems, kept up to date.

Scores are those of rank_bm25's Okapi (k1 = 1.5, b = .75) over `memory.tokens`; turns of a dialogue lend one another
shares of theirs (`memory.neighbours`). An entry is a hit when it shares a term with the query, or is lent something.
Okapi gives a term that is in half of the entries no weight, or in a memory of two or three entries a
negative one; such terms get a small positive weight here, so that the first facts of a memory can be found.

`memory.bm25` scores memories of any size: rank-bm25, which gives the same hits and scores (to 1e-9), rebuilds its
statistics after each change (10 ms per thousand entries) and reads every entry for every term of a query. It is what
the tests compare with. `python perf/bench.py --only search` measures both in one run, and bm25s.

Measured on two LoCoMo conversations, conv-26 and conv-30 (231 questions of categories 1-4, one entry per turn):
evidence recall .605 in the first 5 and .789 in the first 20; .546 and .705 where no turn lends anything
(`python perf/retrieval.py`).

Example:
    >>> from mempiler.memory.index import Entry
    >>> from mempiler.memory.sparse import SparseIndex
    >>> index = SparseIndex()
    >>> index.add([Entry(id="f1", text="Ann moved to Lisbon"), Entry(id="f2", text="Ann likes jazz")])
    >>> index.search(["Which music does she like?"], k=1)[0][0].id
    'f2'

Limits: scores depend on the other entries, compare them within one search only. Searches of an index take turns, and a
filter is called with it locked, with the best entries first until k have passed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..records import Hit
from .bm25 import Bm25
from .index import Entry, Where, check_search
from .neighbours import Shares
from .tokens import tokens

MANY = 50
"""New entries from which on they are put into the postings together."""


class SparseIndex:
    """An `Index` by BM25; see there for the methods.

    Args:
        shares: What the turns of one dialogue lend one another.
    """

    kind = "sparse"

    def __init__(self, shares: Shares | None = None) -> None:
        self.shares = Shares() if shares is None else shares
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._scorer = Bm25(self.shares)

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries; one whose id is known replaces the old one."""
        cut = {entry.id: (entry, tokens(entry.text)) for entry in entries}
        with self._lock:
            new = {id: one for id, one in cut.items() if id not in self._entries}
            for id, (entry, terms) in cut.items():
                if id not in new:
                    self._scorer.replace(id, tokens(self._entries[id].text), terms, entry.dialogue)
                elif len(new) < MANY:
                    self._scorer.put(id, terms, entry.dialogue)
            if len(new) >= MANY:
                dialogues = [entry.dialogue for entry, _ in new.values()]
                self._scorer.put_all(list(new), [terms for _, terms in new.values()], dialogues)
            self._entries.update((id, entry) for id, (entry, _) in cut.items())

    def remove(self, ids: Iterable[str]) -> None:
        """Takes entries out; unknown ids are passed over."""
        with self._lock:
            for id in ids:
                entry = self._entries.pop(id, None)
                if entry is not None:
                    self._scorer.remove(id, tokens(entry.text))

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k entries with the highest BM25 for each query; see `Index.search`."""
        check_search(queries, k)
        cut = [tokens(query) for query in queries]
        passes: Callable[[str], bool] | None = None if where is None else lambda id: where(self._entries[id])
        with self._lock:
            found = self._scorer.search(cut, k, min_score, passes)
            return [[self._entries[id].hit(score) for id, score in best] for best in found]

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """The score of every entry for each query, shape [queries, entries], in the order of `ids`; 0 for no hit."""
        with self._lock:
            found = [self._scorer.scores(tokens(query)) for query in queries]
            return np.stack(found) if found else np.zeros((0, len(self._entries)))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        with self._lock:
            return tuple(self._entries)
