"""The index of a memory: searches entries by words, by vectors, or by both, and returns ranked hits.

Hits are found by words (`BM25Index`), by exact cosines, or by both, each counted in its own deviations from the mean,
with what else a question asks for (`signals`). Beside words the nearest passage of an entry counts: a vector of a
session of a hundred turns is near to nothing. Scores are compared within one search only.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple, cast

import numpy as np

from ...errors import ProgramError, UserError
from ...records import Hit
from ..entry import DIALOGUE, Entry, EntryFilter, SpeakerIs
from ..text_slots import in_parts, text_slot
from .bm25 import BM25Index
from .embedder import Embedder, query_vectors
from .months import month_nearness, month_number
from .neighbours import Neighbours
from .passages import passages
from .repeats import RepeatFilter
from .scores import best_rows, standard_scores
from .signals import (
    BESIDE,
    COSINES,
    FIRST,
    NEIGHBOUR_WEIGHT,
    NEXT_MONTH,
    PASSAGES,
    WHEN,
    WHO,
    YEAR,
    Reranker,
)
from .speakers import Speakers
from .tokens import MAX_QUERY_CHARS
from .vectors import VectorTable

STEPS = 2048
"""Steps from 0 to 1 of a number of a vector beside words: products of two add up exactly in any order."""
SPARE = 1000
"""Empty rows that are kept beyond those in use before rows are numbered anew."""
_LEAST, _LOWEST = 5e-324, float(np.finfo(np.float32).min)
"""The lowest score above 0, and one lower than any: what is no hit is lower still."""

class Index:
    """Entries that can be searched; not locked. Many threads search those of a memory by its `IndexCache`.

    Args:
        embedder: Turns texts into vectors; None searches by words alone.
        hybrid: Whether words count beside the vectors, and with them all else that a question asks for (`signals`).
        lent: What the turns of one dialogue lend one another; see `signals.NEIGHBOUR_WEIGHT`.

    Example:
        >>> from mempiler.memory.entry import Entry
        >>> from mempiler.memory.search.index import Index
        >>> index = Index()
        >>> index.add([Entry(id="f1", text="Ann moved to Lisbon"), Entry(id="f2", text="Ann likes jazz")])
        >>> index.search(["Does she like music?"], k=1)[0][0].id
        'f2'
    """

    def __init__(
        self, embedder: Embedder | None = None, hybrid: bool = False, lent: Mapping[int, float] = NEIGHBOUR_WEIGHT
    ) -> None:
        self.embedder, self.hybrid = embedder, hybrid
        self._worded, self._summed = hybrid or embedder is None, hybrid and embedder is not None
        self._lent, self._words, self._neighbours, self._vectors = lent, BM25Index(), Neighbours(lent), VectorTable()
        self._rows: dict[str, int] = {}
        """The row of each id, in their order; that of an entry that is gone stays empty."""
        self._entries: list[Entry | None] = []
        self._speakers: array[int] = array("q")
        """The number of the speaker of each row."""
        self._months: array[int] = array("q")
        self._speaking = Speakers()

    def add(self, entries: Iterable[Entry], removed_ids: Iterable[str] = ()) -> None:
        """Takes entries out and adds others, with one call of the embedder; a known id gets its new entry.

        Args:
            entries: What is added; nothing is, and nothing taken out, if the embedder fails.
            removed_ids: Ids of what is taken out before; unknown ones are passed over.

        Raises:
            ProgramError: The embedder's vectors have another length than those in the index.
        """
        new = list({entry.id: entry for entry in entries}.values())
        texts = [passages(entry.text, entry.speaker) if self._summed else [entry.text] for entry in new]
        lines = list(chain.from_iterable(texts)) if self.embedder else []
        made = self._checked(self.embedder.embed(lines)) if self.embedder and lines else None
        for row in [self._rows.pop(id) for id in removed_ids if id in self._rows]:
            old, self._entries[row] = self._entries[row], None
            self._vectors.remove(row)
            if self._worded:
                self._words.set_text(row, None, old and old.text)
                self._neighbours.set_dialogue(row, "")
        self._put(new, list(map(len, texts)), made)
        # Most rows, or most vectors, are nobody's: it begins anew with what is there.
        if max(len(self._entries) - len(self._rows), self._vectors.removed_count) > len(self._rows) + SPARE:
            rows, fresh = list(self._rows.values()), Index(self.embedder, self.hybrid, self._lent)
            fresh._put([entry for row in rows if (entry := self._entries[row])], *self._vectors.vectors_of(rows))
            vars(self).update(vars(fresh))

    def search(
        self,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: EntryFilter | None = None,
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
            One list of hits per query, best first, equal scores in the order of first addition.

        Raises:
            UserError: `queries` is a string instead of a list of them.
            EndpointError: The embedder cannot be reached.
        """
        return [hits() for hits in self.search_deferred(queries, k, min_score, where, vectors)]

    def search_deferred(
        self, queries: Sequence[str], k: int, min_score: float, where: EntryFilter | None, vectors: np.ndarray | None
    ) -> list[Callable[[], list[Hit]]]:
        """What `search` returns, for each query by a call that may come when the index has changed meanwhile."""
        if isinstance(queries, str):
            raise UserError(f"search takes a list of queries, got the string {queries!r:.80}; put it in a list")
        if not self._rows or not queries or k <= 0:
            return [list for _ in queries]
        passed: np.ndarray | None = None
        if isinstance(where, SpeakerIs):
            said = np.frombuffer(self._speakers, np.int64) == self._speaking.numbers.get(where.speaker, -1)
            passed, where = said == where.same, None
        reranker = cast("Reranker | None", getattr(self.embedder, "reranker", None)) if self._summed else None
        most = k if reranker is None else max(k, FIRST)
        found: list[Callable[[], list[Hit]]] = []
        for query, (scores, least, alike) in zip(queries, self._scored(queries, min_score, vectors), strict=True):
            if passed is not None:
                scores = np.where(passed, scores, -math.inf)
            ranking = self._ranking(query, scores, least, where, most)
            if reranker is None or alike is None or not ranking.best:
                found.append(partial(_hits, ranking, k))
            else:
                found.append(self._reranked(reranker, query, ranking, alike, k))
        return found

    def semantic_queries(self, queries: Sequence[str]) -> list[str]:
        """What of queries is compared by meaning: where words count as well, names of speakers do not."""
        begun = [query[:MAX_QUERY_CHARS] for query in queries]
        return [self._speaking.without_names(query) for query in begun] if self._summed else begun

    def __len__(self) -> int:
        return len(self._rows)

    def _ranking(self, query: str, scores: np.ndarray, least: float, where: EntryFilter | None, most: int) -> _Ranking:
        """The `most` best rows that score `least` or more; turns that repeat the query or a better one come apart."""
        ranking, said = _Ranking(), RepeatFilter(query)
        for row, score in _rows_in_order(scores, least, most if where is None else len(scores)):
            entry = self._entries[row]
            if entry is None or not (where is None or where(entry)):
                continue
            is_new = not self.hybrid or said.register(entry)
            (ranking.best if is_new else ranking.repeats).append(_Candidate(row, entry, score))
            if len(ranking.best) == most:
                break
        return ranking

    def _put(self, new: Sequence[Entry], counts: Sequence[int], vectors: np.ndarray | None) -> None:
        for part in in_parts(new, _length):
            with text_slot(sum(map(_length, part))):
                self._put_entries(part)
        if vectors is not None and len(vectors):
            self._vectors.set_vectors([self._rows[entry.id] for entry in new], counts, vectors)

    def _put_entries(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            row = self._rows.setdefault(entry.id, len(self._entries))
            if row == len(self._entries):
                self._entries.append(None)
                self._speakers.append(0)
                self._months.append(0)
            old, self._entries[row] = self._entries[row], entry
            self._speakers[row], self._months[row] = self._speaking.register(entry.speaker), month_number(entry.time)
            if self._worded:
                self._words.set_text(row, entry.text, old and old.text)
                self._neighbours.set_dialogue(row, entry.tags.get(DIALOGUE, ""))

    def _checked(self, vectors: np.ndarray) -> np.ndarray:
        if self._vectors.dimension not in (0, vectors.shape[1]):
            raise ProgramError(
                f"embedder {self.embedder and self.embedder.name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {self._vectors.dimension}; rebuild the index"
            )
        return np.round(vectors * STEPS).astype(np.float32) / np.float32(STEPS) if self._summed else vectors

    def _scored(
        self, queries: Sequence[str], min_score: float, vectors: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, float, np.ndarray | None]]:
        """What each row scores for each query, what a hit scores at least, and of that by words and cosines."""
        if self.embedder is None:
            for query in queries:
                words = self._word_scores(query)
                found = words > max(min_score, 0)
                if self.hybrid and (bonus := self._bonus(query)) is not None:
                    # In deviations as beside cosines; what shares no word with a query is no hit for its bonus.
                    words = np.where(found, words + bonus * words.std(), 0)
                yield words, max(min_score, _LEAST), None
            return
        asked = self._checked(
            query_vectors(self.embedder, self.semantic_queries(queries)) if vectors is None else vectors
        )
        cosines = self._vectors.cosines(asked, len(self._entries))
        for query, vector, near in zip(queries, asked, cosines, strict=True):
            if not self._summed:
                yield near, max(min_score, _LOWEST) if vector.any() else math.inf, None
                continue
            words, there = self._word_scores(query), near >= _LOWEST
            lent = np.where(there, near, 0)
            self._neighbours.smoothing().add_shares(lent, factor=COSINES)
            live = slice(None) if there.all() else there
            alike = np.full(len(near), -math.inf)
            alike[live] = standard_scores(words[live]) + standard_scores(lent[live])
            alike[near < min_score] = -math.inf
            bonus = self._bonus(query)
            scores = alike if bonus is None else alike + bonus
            yield scores, _LOWEST if vector.any() or words.any() else math.inf, alike

    def _word_scores(self, query: str) -> np.ndarray:
        """BM25 of every row with what neighbours lend, shape [rows]; 0 for no hit."""
        scores = self._words.scores(query)
        self._neighbours.smoothing().add_shares(scores)
        return scores

    def _bonus(self, query: str) -> np.ndarray | None:
        """What rows gain by who speaks and when, in deviations; None where a query asks for nobody and no time."""
        bonus: np.ndarray | None = None
        if speakers := self._speaking.target_speakers(query):
            bonus = WHO * np.isin(np.frombuffer(self._speakers, np.int64), speakers)
        months = np.frombuffer(self._months, np.int64)
        near = month_nearness(query, months, next_month=NEXT_MONTH, year=YEAR)
        return bonus if near is None else WHEN * near + (0 if bonus is None else bonus)

    def _reranked(
        self, reranker: Reranker, query: str, ranking: _Ranking, alike: np.ndarray, k: int
    ) -> Callable[[], list[Hit]]:
        """The first hits in the order of a reranker, which words, cosines and all else count beside; then the rest."""
        best = ranking.best
        texts = [passages(candidate.entry.text, candidate.entry.speaker) for candidate in best[:FIRST]]
        # Of long texts fewer are read again.
        most = max(int(np.searchsorted(np.cumsum(list(map(len, texts))), PASSAGES, "right")), 1)
        rows = np.array([candidate.row for candidate in best[:most]])
        fused = np.array([candidate.score for candidate in best[:most]])
        near, smoothing, asked = alike[rows], self._neighbours.smoothing(), self.semantic_queries([query])[0]
        weights = {word: self._words.rarity(word) for word in reranker.words(asked)}

        def ranked() -> list[Hit]:
            lent = standard_scores(reranker.scores(asked, texts[:most], weights))
            smoothing.add_shares(lent, rows)
            scores = standard_scores(lent) + (fused - near) + BESIDE * near
            below = float(scores.min() - fused[-1])
            order: list[int] = np.argsort(-scores, kind="stable").tolist()
            first = [best[n]._replace(score=float(scores[n])) for n in order]
            rest = [candidate._replace(score=candidate.score + below) for candidate in best[most:]]
            return _hits(_Ranking([*first, *rest], ranking.repeats), k)

        return ranked


def _length(entry: Entry) -> int:
    return len(entry.text)


class _Candidate(NamedTuple):
    """A row that was found."""

    row: int
    entry: Entry
    score: float


@dataclass(frozen=True)
class _Ranking:
    """What was found, best first."""

    best: list[_Candidate] = field(default_factory=list[_Candidate])
    repeats: list[_Candidate] = field(default_factory=list[_Candidate])
    """Turns that say nothing that the query or a better turn does not say."""


def _rows_in_order(scores: np.ndarray, least: float, first: int) -> Iterator[tuple[int, float]]:
    """All rows that score so much at least, best first; whoever takes no more than `first` does not sort the others."""
    head = best_rows(scores, least, first)
    yield from zip(head.tolist(), scores[head].tolist(), strict=True)
    if len(head) == first:
        rest = best_rows(scores, least, len(scores))[first:]
        yield from zip(rest.tolist(), scores[rest].tolist(), strict=True)


def _hits(ranking: _Ranking, k: int) -> list[Hit]:
    """The first `k`: repeats stand behind all others, and score no more than the last of these."""
    lowest = min((candidate.score for candidate in ranking.best), default=math.inf)
    behind = [candidate._replace(score=min(candidate.score, lowest)) for candidate in ranking.repeats]
    return [candidate.entry.hit(candidate.score) for candidate in [*ranking.best, *behind][:k]]
