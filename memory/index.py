"""What a searchable memory is: entries go in, ranked hits with their provenance come out.

    entries ── add / remove ──> Index ── search(queries, k, min_score, where) ──> hits per query
                                  ├── SparseIndex   BM25 over stems        (memory/sparse.py)
                                  ├── DenseIndex    cosine of embeddings   (memory/dense.py)
                                  └── HybridIndex   the sum of both        (memory/hybrid.py)

Every index keeps its entries in the order in which their ids were first added; replacing an entry keeps its place.
Hits come best first and equal scores keep that order, so that the same calls always give the same hits.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from ..errors import UserError
from ..records import Hit, Record

DIALOGUE = "dialogue"
"""The tag of an entry that is a turn: entries with an equal one are the turns of one dialogue, in their order."""
LABEL = "label"
"""The tag that is shown before an entry's text and not searched, e.g. the type of a fact."""

Where = Callable[["Entry"], bool]
"""A filter: only entries for which it is true are searched."""


class Entry(Record):
    """One thing to search for."""

    id: str
    """Unique within its index."""
    text: str
    kind: str = "entry"
    """What it is; see `records.Hit.kind`."""
    sources: tuple[str, ...] = ()
    """Ids of the turns the entry rests on."""
    time: datetime | None = None
    speaker: str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    """Free labels that filters look at, e.g. {"layer": "concept"}; `DIALOGUE` names the dialogue of a turn."""

    @property
    def dialogue(self) -> str:
        """The dialogue it is a turn of; "" for anything else. Sparse search lets the turns of one lend their scores."""
        return self.tags.get(DIALOGUE, "")

    def hit(self, score: float = 0.0) -> Hit:
        """The entry as a search result."""
        return Hit(
            id=self.id,
            text=self.text,
            kind=self.kind,
            score=score,
            sources=self.sources,
            time=self.time,
            speaker=self.speaker,
            label=self.tags.get(LABEL, ""),
        )


def entry_of(hit: Hit) -> Entry:
    """What a hit is, as a thing to search for."""
    tags = {LABEL: hit.label} if hit.label else {}
    about = {"kind": hit.kind, "sources": hit.sources, "time": hit.time, "speaker": hit.speaker}
    return Entry.model_validate({"id": hit.id, "text": hit.text, "tags": tags, **about})


@runtime_checkable
class Embedder(Protocol):
    """What a dense index needs to know of an embedder; `engines.embedders` has implementations."""

    @property
    def name(self) -> str:
        """Names the vectors: two embedders of one name give the same ones."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector; 0 until the endpoint has returned one."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts as float32 of shape [len(texts), dimension]; rows have length 1, or 0 for a text without words.

        Raises:
            EndpointError: The model cannot be reached.
        """
        ...


@runtime_checkable
class QueryEmbedder(Embedder, Protocol):
    """An embedder that tells what is searched for from what is searched; an `Embedder` embeds both alike."""

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds queries; shape and errors as of `embed`."""
        ...


def query_vectors(embedder: Embedder, queries: Sequence[str]) -> np.ndarray:
    """The vectors of queries, by an embedder that tells them from what is searched or by one that does not."""
    name, known = _at_hand.get()
    if queries and name == embedder.name and all(query in known for query in queries):
        return np.stack([known[query] for query in queries])
    return embedder.embed_queries(queries) if isinstance(embedder, QueryEmbedder) else embedder.embed(queries)


_at_hand: contextvars.ContextVar[tuple[str, Mapping[str, np.ndarray]]] = contextvars.ContextVar(
    "mempiler_queries", default=("", {})
)
"""The name of an embedder, and its vectors of queries."""


@contextmanager
def searching_for(embedder: Embedder, queries: Sequence[str]) -> Generator[None]:
    """Embeds queries with one call; searches for them in the block ask the embedder no more."""
    distinct = list(dict.fromkeys(queries))
    vectors = query_vectors(embedder, distinct) if distinct else ()
    token = _at_hand.set((embedder.name, dict(zip(distinct, vectors, strict=True))))
    try:
        yield
    finally:
        _at_hand.reset(token)


class Searchable(Protocol):
    """What can be searched by text."""

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query; see `Index.search`."""
        ...


@runtime_checkable
class Index(Protocol):
    """Entries that can be searched by text. Every method may be called from many threads at once."""

    @property
    def kind(self) -> str:
        """Which of the three: "sparse", "dense" or "hybrid"."""
        ...

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries; one whose id is known replaces the old one."""
        ...

    def remove(self, ids: Iterable[str]) -> None:
        """Takes entries out; unknown ids are passed over."""
        ...

    def search(
        self, queries: Sequence[str], k: int, min_score: float = -math.inf, where: Where | None = None
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query.

        Args:
            queries: What to look for; a query without words finds nothing.
            k: The most hits per query.
            min_score: Hits that score lower are left out; of a `HybridIndex`, whose scores are no cosines, those with a
                lower cosine.
            where: A pure filter of entries; the k best *of those* are found.

        Returns:
            One list of hits per query, best first, equal scores in the order of `ids`.

        Raises:
            UserError: k is negative, or `queries` is a string instead of a list of them.
        """
        ...

    def __len__(self) -> int:
        """The number of entries."""
        ...

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        ...


def check_search(queries: Sequence[str], k: int) -> None:
    """Refuses the arguments of `Index.search` that can only be slips.

    Raises:
        UserError: k is negative, or `queries` is one string.
    """
    if isinstance(queries, str):
        raise UserError(f"search takes a list of queries, got the string {queries!r:.80}; put it in a list")
    if k < 0:
        raise UserError(f"search for k={k} hits; k must be 0 or more")
