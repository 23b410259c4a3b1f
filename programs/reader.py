"""The contract of readers: what of a memory is shown for a query.

A reader that recalls the notes of the day that is asked about, or else the nearest notes:

    from mempiler import Context, EntryReader, Query

    class DayReader(EntryReader[Notebook]):
        def recall(self, memory: Notebook, query: Query) -> Context:
            day = query.moment and query.moment.date()
            notes = [note for note in memory.notes if note.time and note.time.date() == day]
            if notes:
                return Context(hits=tuple(note.hit() for note in notes))
            return Context(hits=tuple(self.nearest(memory, query, self.k)))

`EntryReader` already searches all entries of a memory; derive from `Reader` to search otherwise.

| attribute or hook                       | required? | returns, and the default                  |
|-----------------------------------------|-----------|-------------------------------------------|
| `search(memory, queries, k, min_score)` | yes       | hits per query, best first                |
| `recall(memory, query)`                 | no        | a context; the `k` nearest entries        |
| `entries(memory)`                       | no        | all that can be found; `memory.entries()` |
| `fallback(memory, query)`               | no        | hits if nothing is found; newest entries  |
| `with_edits(memory, edits)`             | no        | a memory; edits every tuple of entries    |
| `k`                                     | no        | how many entries are recalled; 10         |
| `hybrid`                                | no        | whether BM25 and cosine are added; False  |
| `is_search_free`                        | no        | whether a search costs nothing; True      |

What every reader promises (`mempiler.testing.check_method` checks it):

- `search` calls no language model; `recall` may.
- A search for a smaller `k` gives the head of a search for a larger one, and a batch of queries
  finds what the queries find one by one.
- Nothing changes the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic

from ..memory.edits import EntryEdits
from ..memory.entry import Entry
from ..memory.search.embedder import Embedder
from ..memory.search.index_cache import IndexCache
from ..memory.search.weights import DEFAULT_WEIGHTS, SignalWeights
from ..records import Context, Hit, Query
from ._component import Component
from ._context import current_program_context
from .call_recorder import RankedHits
from .settings import Settings
from .writer import MemoryT

ANY_COSINE = -1.0
"""The `min_score` of a search that leaves nothing out."""


class Reader(Component, Generic[MemoryT]):
    """Find in a memory what bears on a query; see the module's docstring for the contract."""

    hybrid: bool = False
    """Whether `search` adds the scores of BM25 and cosine; a `min_score` is a cosine even then."""
    k: int = 10
    """How many entries `recall` gives by default."""
    is_search_free: ClassVar[bool] = True
    """Whether a search costs nothing, so that evaluation may look at more hits than it recalls."""

    def search(
        self, memory: MemoryT, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """Return the entries nearest to each query, best first.

        Args:
            memory: The memory to search.
            queries: Any number of queries; they are searched in one batch.
            k: Most hits per query.
            min_score: Hits below it are left out; None takes the method's own default.
        """
        raise NotImplementedError

    def recall(self, memory: MemoryT, query: Query) -> Context:
        """Return the context that a task answers the query from."""
        return Context(hits=tuple(self.nearest(memory, query, self.k)))

    def nearest(self, memory: MemoryT, query: Query, k: int) -> list[Hit]:
        """Return the `k` best hits of `search` for a query.

        An evaluation records the program, and its recorder may ask for more hits than the program
        needs (`ranking_depth`). Then all of these are searched and recorded.
        """
        recorder = current_program_context().recorder
        # `is_search_free` is False for readers whose search costs money or time. They search for no
        # more hits than are needed.
        if recorder is None or not self.is_search_free:
            return self.search(memory, [query.search_text], k)[0]

        depth = max(k, recorder.ranking_depth)
        hits = self.search(memory, [query.search_text], depth)[0]
        recorder.ranked = RankedHits(self, hits)
        return hits[:k]

    def entries(self, memory: MemoryT) -> Sequence[Entry]:
        """Return what `search` can find or `recall` can show; every entry has its own id."""
        return memory.entries()

    def with_edits(self, memory: MemoryT, edits: EntryEdits) -> MemoryT:
        """Return a copy of a memory with its entries as the user has edited or deleted them.

        An override must edit all that `entries` returns and `recall` shows, and leave the rest
        equal. No writer goes on with the copy.

        Args:
            memory: A finalized memory. It stays as it is.
            edits: The user's edits.
        """
        # An entry is a text that can be recalled, made of one part of the memory, e.g. of a fact.
        # A field is edited if it is a tuple that holds nothing but entries and parts.
        part_types = {type(part) for part in memory.parts()}
        editable_types = (Entry, *part_types)
        edited_fields: dict[str, Sequence[Any]] = {}
        # A pydantic model yields the names and values of its fields.
        for name, value in memory:
            if isinstance(value, tuple) and all(isinstance(part, editable_types) for part in value):
                # Two methods of the memory are passed: `entry` makes an entry of a part, and
                # `with_text` gives a part the words of the user.
                edited_fields[name] = edits.amended_parts(value, memory.entry, memory.with_text)
        return memory.model_copy(update=edited_fields)

    def fallback(self, memory: MemoryT, query: Query) -> Iterable[Hit]:
        """Return what is shown if `recall` finds nothing that may answer: the newest entries.

        "Where do I live?" shares no word with "I moved to Lisbon". The caller reads only as many
        hits as it shows (`_fallback.MAX_FALLBACK_HITS`).
        """
        return (entry.hit() for entry in reversed(memory.entries()))


class EntryReaderSettings(Settings):
    """What can be set of an `EntryReader`."""

    k: int = 10
    min_score: float = 0.0
    hybrid: bool = False


class EntryReader(Reader[MemoryT]):
    """Recall the `k` entries nearest to the query: by cosine with an embedder, else by BM25.

    Args:
        k: Entries recalled per query.
        min_score: Lowest score of a hit; the lowest cosine where there is an embedder.
        embedder: Turns texts into vectors.
        indexes: Indexes to share with the writer; new ones if None.
        hybrid: Whether BM25 and cosine are added (`memory.search.fusion`) with an embedder.
        settings: The settings of a subclass that has others; `k`, `min_score` and `hybrid` if None.
        weights: How much each signal of a search counts; not used if there are `indexes`.
    """

    def __init__(
        self,
        k: int = 10,
        min_score: float = 0.0,
        embedder: Embedder | None = None,
        indexes: IndexCache | None = None,
        hybrid: bool = False,
        settings: Settings | None = None,
        weights: SignalWeights = DEFAULT_WEIGHTS,
    ) -> None:
        if settings is None:
            settings = EntryReaderSettings(k=k, min_score=min_score, hybrid=hybrid)
        super().__init__(settings)
        self.k = k
        self.min_score = min_score
        self.hybrid = hybrid
        self.indexes = indexes or IndexCache(embedder, hybrid, weights=weights)

    def search(
        self, memory: MemoryT, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        lowest = self.min_score if min_score is None else min_score
        return self.indexes.search(memory, queries, k, lowest)

    def entries(self, memory: MemoryT) -> Sequence[Entry]:
        # What is searched: a memory whose entries are made of parts lists none by itself.
        return self.indexes.entries(memory)
