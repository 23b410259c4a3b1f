"""What can be searched: entries go in, ranked hits with their provenance come out.

    entries ── add / remove ──> Index ── search(queries, k, min_score, where) ──> hits per query
                                  ├── Words     BM25 over stems, turns lend one another theirs    (memory/words.py)
                                  ├── Vectors   cosine of embeddings                              (memory/vectors.py)
                                  └── both      each counted in its own deviations from the mean

Entries are kept in the order in which their ids were first added; replacing one keeps its place. Hits come best first
and equal scores keep that order, so that the same calls always give the same hits, one by one and in a batch.

Where words count too, each line of an entry has a vector of its own and the nearest one counts: a vector of a session
of a hundred turns is near to nothing. Vectors are kept in steps of 1/2048 there: products of two have 22 bits, which
single precision adds up exactly in any order. A cosine is off by about .0002 for it.

Example:
    >>> from mempiler.engines.embedders import embedder
    >>> from mempiler.memory.index import Entry, Index
    >>> facts = [Entry(id="f1", text="Ann moved to Lisbon"), Entry(id="f2", text="Ann likes jazz")]
    >>> words, both = Index(), Index(embedder("offline"), hybrid=True)
    >>> words.add(facts), both.add(facts)
    (None, None)
    >>> words.search(["Does she like music?"], k=1)[0][0].id, both.search(["When was Ann moving?"], k=1)[0][0].id
    ('f2', 'f1')

Limits: scores of words hang on the other entries, and those of both on the query too: compare them within one search.
Those of both are of every entry, however bad. Rows of entries that were taken out are skipped, until most are empty.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Protocol

import numpy as np
from pydantic import Field

from ..errors import ProgramError, UserError
from ..records import Hit, Record
from .vectors import Vectors
from .words import Shares, Words

DIALOGUE = "dialogue"
"""The tag of an entry that is a turn: entries with an equal one are the turns of one dialogue, in their order."""
LABEL = "label"
"""The tag that is shown before an entry's text and not searched, e.g. the type of a fact."""

STEPS = 2048
"""Steps from 0 to 1 of a number of a vector beside words."""
NOISE = 1e-9
"""Scores that deviate less are all the same."""
SPARE = 1000
"""Empty rows that are kept beyond those in use before rows are numbered anew."""
BLOCK = 64
"""Scores of which only the highest is looked at, to find where the best begin."""
WIDER = 8
"""How many times as many entries are looked at where a filter leaves too few."""
LEAST = 5e-324
"""The lowest score above 0."""
GONE = -1

Where = Callable[["Entry"], bool]
"""A filter: only entries for which it is true are searched. `Spoken` costs the same in a memory of any size."""
Scored = tuple[np.ndarray, np.ndarray]
"""Rows that may be hits of a query, ascending, and their scores."""


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


@dataclass(frozen=True)
class Spoken:
    """A filter: entries of one speaker, or of everybody else."""

    speaker: str
    same: bool = True

    def __call__(self, entry: Entry) -> bool:
        return (entry.speaker == self.speaker) is self.same


def entry_of(hit: Hit) -> Entry:
    """What a hit is, as a thing to search for."""
    tags = {LABEL: hit.label} if hit.label else {}
    about = {"kind": hit.kind, "sources": hit.sources, "time": hit.time, "speaker": hit.speaker}
    return Entry.model_validate({"id": hit.id, "text": hit.text, "tags": tags, **about})


class Embedder(Protocol):
    """What an index needs to know of an embedder; `engines.embedders` has implementations.

    One that tells what is searched for from what is searched has `embed_queries` too, of the form of `embed`.
    """

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


def query_vectors(embedder: Embedder, queries: Sequence[str]) -> np.ndarray:
    """The vectors of queries, by `embed_queries` of an embedder that tells them from what is searched."""
    return getattr(embedder, "embed_queries", embedder.embed)(queries)


class Index:
    """Entries that can be searched; not locked. Many threads search those of a memory by its `Indexes`.

    Args:
        embedder: Turns texts into vectors; None searches by words alone.
        hybrid: Whether words count beside the vectors.
        shares: What the turns of one dialogue lend one another by their words.
    """

    def __init__(self, embedder: Embedder | None = None, hybrid: bool = False, shares: Shares | None = None) -> None:
        self.embedder = embedder
        self._worded, self._summed = hybrid or embedder is None, hybrid and embedder is not None
        self._shares = shares or Shares()
        self._clear()

    def _clear(self) -> None:
        self._words, self._vectors = Words(self._shares), Vectors()
        self._rows: dict[str, int] = {}
        """The row of each id, in their order; that of an entry that is gone stays empty."""
        self._held: dict[int, Entry] = {}
        self._speakers: array[int] = array("q")
        """The number of the speaker of each row, `GONE` where it is empty."""
        self._numbers: dict[str | None, int] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries with one call of the embedder; one whose id is known replaces the old one.

        Raises:
            EndpointError: The embedder cannot be reached; nothing was added.
            ProgramError: The embedder's vectors have another length than those in the index.
        """
        new = {entry.id: entry for entry in entries}
        texts = [entry.text.splitlines() or [""] if self._summed else [entry.text] for entry in new.values()]
        if new and self.embedder is not None:
            self._put(new, list(map(len, texts)), self._checked(self.embedder.embed(list(chain.from_iterable(texts)))))
        else:
            self._put(new)
        self._tidy()

    def remove(self, ids: Iterable[str]) -> None:
        """Takes entries out; unknown ids are passed over."""
        for id in ids:
            row = self._rows.pop(id, None)
            if row is not None:
                self._speakers[row], old = GONE, self._held.pop(row)
                self._vectors.drop(row)
                if self._worded:
                    self._words.put(row, old.text, None)
        self._tidy()

    def search(
        self,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: Where | None = None,
        vectors: np.ndarray | None = None,
    ) -> list[list[Hit]]:
        """Finds the k best entries for each query.

        Args:
            queries: What to look for; a query without words finds nothing.
            k: The most hits per query.
            min_score: Hits that score lower are left out; where words count beside vectors, those with a lower cosine.
            where: A pure filter of entries; the k best *of those* are found, with the same scores.
            vectors: Those of the queries, where they are known.

        Returns:
            One list of hits per query, best first, equal scores in the order of `ids`.

        Raises:
            UserError: k is negative, or `queries` is a string instead of a list of them.
            EndpointError: The embedder cannot be reached.
            ProgramError: The embedder's vectors have another length than those in the index.
        """
        if isinstance(queries, str):
            raise UserError(f"search takes a list of queries, got the string {queries!r:.80}; put it in a list")
        if k < 0:
            raise UserError(f"search for k={k} hits; k must be 0 or more")
        if not self._rows or not queries or k == 0:
            return [[] for _ in queries]
        if self.embedder is None:
            scored = self._by_words(queries, k, min_score, where)
        else:
            asked = self._checked(query_vectors(self.embedder, queries) if vectors is None else vectors)
            both = self._by_both(queries, asked, min_score, where)
            scored = both if self._summed else self._by_vectors(asked, k, min_score, where)
        return [self._hits(rows, scores, k, where) for rows, scores in scored]

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._rows)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all entries, in order of first addition."""
        return tuple(self._rows)

    def _put(self, new: Mapping[str, Entry], counts: Sequence[int] = (), vectors: np.ndarray | None = None) -> None:
        """Gives ids other entries, with so many lines each and the vectors of all of these."""
        for id, entry in new.items():
            row = self._rows.setdefault(id, len(self._speakers))
            if row == len(self._speakers):
                self._speakers.append(GONE)
            self._speakers[row] = self._numbers.setdefault(entry.speaker, len(self._numbers))
            if self._worded:
                old = self._held.get(row)
                self._words.put(row, old and old.text, entry.text, entry.dialogue)
            self._held[row] = entry
        if vectors is not None and len(vectors):
            self._vectors.put([self._rows[id] for id in new], counts, vectors)

    def _tidy(self) -> None:
        """Begins anew with what is there when most rows, or most vectors, are nobody's."""
        if max(len(self._speakers) - len(self._rows), self._vectors.unused) > len(self._rows) + SPARE:
            kept = {id: self._held[row] for id, row in self._rows.items()}
            counts, vectors = self._vectors.of(list(self._rows.values()))
            self._clear()
            self._put(kept, counts, vectors)

    def _checked(self, vectors: np.ndarray) -> np.ndarray:
        if self._vectors.dimension not in (0, vectors.shape[1]):
            raise ProgramError(
                f"embedder {self.embedder and self.embedder.name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {self._vectors.dimension}; rebuild the index"
            )
        return np.round(vectors * STEPS).astype(np.float32) / np.float32(STEPS) if self._summed else vectors

    def _by_words(self, queries: Sequence[str], k: int, min_score: float, where: Where | None) -> Iterator[Scored]:
        for query in queries:
            scores = self._words.scores(query)
            low = max(min_score, LEAST if where else _reached(scores, k))
            rows = self._spoken(where, np.flatnonzero(scores >= low))
            yield rows, scores[rows]

    def _by_vectors(self, vectors: np.ndarray, k: int, min_score: float, where: Where | None) -> Iterator[Scored]:
        allowed = None if where is None else self._spoken(where, self._live())
        if allowed is not None and not isinstance(where, Spoken):
            allowed = np.array([row for row in allowed.tolist() if where and where(self._held[row])], np.int64)
        for rows, cosines in self._vectors.nearest(vectors, k, allowed):
            near = cosines >= min_score
            yield rows[near], cosines[near]

    def _by_both(
        self, queries: Sequence[str], vectors: np.ndarray, min_score: float, where: Where | None
    ) -> Iterator[Scored]:
        live, passes = self._live(), np.zeros(len(self._speakers), bool)
        passes[self._spoken(where, live)] = True
        cosines = self._vectors.cosines(vectors)
        words = np.stack([self._words.scores(query)[live] for query in queries])
        scores = _deviations(words) + _deviations(cosines)
        for n, vector in enumerate(vectors):
            asks = bool(vector.any() or words[n].any())
            places = np.flatnonzero(passes[live] & (cosines[n] >= min_score) & asks)
            yield live[places], scores[n, places]

    def _live(self) -> np.ndarray:
        """The rows that are not empty, ascending."""
        return np.flatnonzero(np.frombuffer(self._speakers, np.int64) != GONE)

    def _spoken(self, where: Where | None, rows: np.ndarray) -> np.ndarray:
        """Those of some rows that a filter of speakers lets pass; all of them for any other filter."""
        if not isinstance(where, Spoken):
            return rows
        speakers = np.frombuffer(self._speakers, np.int64)[rows]
        return rows[(speakers == self._numbers.get(where.speaker, GONE)) == where.same]

    def _hits(self, rows: np.ndarray, scores: np.ndarray, k: int, where: Where | None) -> list[Hit]:
        """The k rows of highest score that a filter lets pass, best first, equal ones in their order."""
        most = k
        while True:
            best = _highest(scores, most)
            ranked = zip(map(self._held.__getitem__, rows[best].tolist()), scores[best].tolist(), strict=True)
            found = list(islice((one for one in ranked if where is None or where(one[0])), k))
            if len(found) == k or most >= len(rows):
                return [entry.hit(score) for entry, score in found]
            most *= WIDER


def _highest(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the k highest scores, best first, equal ones in their order."""
    places = np.arange(len(scores))
    if len(scores) > k:
        places = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
    return places[np.argsort(-scores[places], kind="stable")[:k]]


def _reached(scores: np.ndarray, k: int) -> float:
    """A score above 0 that k rows reach, if so many have one, and not many more do."""
    blocks = len(scores) // BLOCK
    if blocks <= k:
        return LEAST
    # The highest of a block is a score as well, so that k of them are k rows.
    tops = scores[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
    return max(float(np.partition(tops, blocks - k)[blocks - k]), LEAST)


def _deviations(scores: np.ndarray) -> np.ndarray:
    """How many deviations of its row each score is from the mean of it; 0 where all are the same."""
    wide = scores.astype(np.float64)
    wide -= wide.mean(axis=1, keepdims=True)
    spread = wide.std(axis=1, keepdims=True)
    return np.divide(wide, spread, out=np.zeros_like(wide), where=spread > NOISE)
