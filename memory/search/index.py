"""The index of a memory: searches entries by words, by vectors, or by both.

Example:
    >>> from mempiler.memory.entry import Entry
    >>> from mempiler.memory.search.index import Index
    >>> index = Index()
    >>> index.add([Entry(id="f1", text="Ann moved to Rome"), Entry(id="f2", text="Ann likes jazz")])
    >>> [hits] = index.search(["Does she like music?"], k=1)
    >>> hits[0].id
    'f2'

A search has four steps, each in a file of its own:

1. `rows.py` knows what each signal says of every row: words, cosines, speaker and month.
2. `fusion.py` adds these to one score for each row.
3. `ranking.py` puts the best rows in order, and sets turns apart that only repeat something.
4. `reranker.py` lets a reranker, if there is one, order the first of them again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ...errors import ProgramError, UserError
from ...records import Hit
from ..entry import Entry, EntryFilter, SpeakerIs
from .embedder import Embedder, query_vectors, reranker_of
from .fusion import (
    QueryScores,
    question_bonus,
    score_by_cosines,
    score_by_words,
    score_by_words_and_cosines,
)
from .passages import passages
from .ranking import Ranking, rank_rows
from .repeats import RepeatFilter
from .reranker import DeferredSearch, Reranker, Reranking, texts_to_read
from .rows import EntryRows
from .tokens import MAX_QUERY_CHARS
from .weights import DEFAULT_WEIGHTS, SignalWeights

VECTOR_STEPS = 2048
"""Where words count beside vectors, the numbers of a vector are multiples of 1 / VECTOR_STEPS.

A float32 holds sums of products of such numbers exactly. So equal vectors get equal cosines, in
whatever order a processor adds the products.
"""


class Index:
    """Entries that can be searched. Not safe under threads without a lock; see `IndexCache`.

    Args:
        embedder: Turns texts into vectors; None searches by words alone.
        hybrid: Whether words count beside the vectors. Speakers and months in a question count only
            then, turns that repeat something stand behind all others, and a reranker is asked.
        weights: How much each signal counts.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        hybrid: bool = False,
        weights: SignalWeights = DEFAULT_WEIGHTS,
    ) -> None:
        self.embedder = embedder
        self.hybrid = hybrid
        self.weights = weights
        self._combines_words_and_vectors = hybrid and embedder is not None
        """Whether a score is the sum of words and cosines; if not, only one of the two counts."""
        self._rows = EntryRows(weights, has_words=hybrid or embedder is None)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._rows)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries, in place of those of the same ids; errors as of `update`."""
        self.update(entries)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove the entries of these ids. Unknown ids are ignored."""
        self.update((), removed_ids=ids)

    def update(self, entries: Iterable[Entry], removed_ids: Iterable[str] = ()) -> None:
        """Remove entries and add others, with one call of the embedder.

        Args:
            entries: The entries to add, in place of those of the same ids.
            removed_ids: Ids of entries to remove before. Unknown ids are ignored.

        Raises:
            ProgramError: The embedder's vectors have another length than those in the index.
            EndpointError: The embedder cannot be reached.
        """
        latest_entries = {entry.id: entry for entry in entries}
        new_entries = list(latest_entries.values())
        texts_by_entry = [self._embedded_texts(entry) for entry in new_entries]

        # Embed before anything is changed: if that fails, the index stays as it was.
        vectors = self._embed(texts_by_entry)

        self._rows.remove(removed_ids)
        self._rows.put(new_entries, [len(texts) for texts in texts_by_entry], vectors)
        if self._rows.is_mostly_empty():
            self._rows = self._rows.compacted()

    def search(
        self,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: EntryFilter | None = None,
        vectors: np.ndarray | None = None,
    ) -> list[list[Hit]]:
        """Find the best entries for each query.

        Args:
            queries: What to look for; a query without words finds nothing.
            k: The most hits for each query.
            min_score: Hits that score lower are left out. Where words count beside vectors, it is
                compared with the cosine.
            where: Only entries for which it returns True are found, with the same scores as without
                it. It must be a pure function.
            vectors: The vectors of the queries, if they are known.

        Returns:
            The hits of each query, best first; of equal scores the entry that was added first.

        Raises:
            UserError: `queries` is a string instead of a list.
            EndpointError: The embedder cannot be reached.
        """
        searches = self.search_deferred(queries, k, min_score, where, vectors)
        return [search.hits() for search in searches]

    def search_deferred(
        self,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: EntryFilter | None = None,
        vectors: np.ndarray | None = None,
    ) -> list[DeferredSearch]:
        """Do the part of `search` that reads the index; arguments and errors are those of `search`.

        Returns:
            The rest of the search of each query. It may be done when the index has changed.
        """
        check_queries(queries)
        if len(self) == 0 or not queries or k <= 0:
            return [DeferredSearch.without_hits() for _ in queries]

        # A filter by speaker compares numbers, for all rows at once, instead of calling `where`.
        speaker_filter: np.ndarray | None = None
        if isinstance(where, SpeakerIs):
            speaker_filter = self._rows.speaker_filter(where)
            where = None

        # After reranking the first hits may be any of those that the reranker reads.
        reranker = self._reranker()
        limit = k if reranker is None else max(k, self.weights.reranked_hits)

        searches: list[DeferredSearch] = []
        all_scores = self._score_queries(queries, min_score, vectors)
        for query, query_scores in zip(queries, all_scores, strict=True):
            visible_scores = query_scores.masked(speaker_filter)
            repeat_filter = RepeatFilter(query) if self.hybrid else None
            ranking = rank_rows(self._rows.entries, visible_scores, limit, where, repeat_filter)
            reranking = self._reranking(reranker, query, ranking, query_scores.similarity)
            searches.append(DeferredSearch(ranking, k, reranking))
        return searches

    def semantic_queries(self, queries: Sequence[str]) -> list[str]:
        """Return the text of each query that is embedded: its first `MAX_QUERY_CHARS` characters.

        Where words count as well, names of speakers are left out: the vector of a name is similar
        to those of all turns by its speaker, whatever they are about.
        """
        searched_texts = [query[:MAX_QUERY_CHARS] for query in queries]
        if not self._combines_words_and_vectors:
            return searched_texts
        return [self._rows.speakers.without_names(text) for text in searched_texts]

    def _embedded_texts(self, entry: Entry) -> list[str]:
        """Return the texts of an entry that are embedded, each into a vector of its own."""
        if self.embedder is None:
            return []
        if not self._combines_words_and_vectors:
            return [entry.text]

        # One vector of a long text mixes all its topics, and so is similar to no query. So each
        # passage gets a vector, and the one that is most similar to a query counts.
        return passages(entry.text, entry.speaker)

    def _embed(self, texts_by_entry: Sequence[Sequence[str]]) -> np.ndarray | None:
        """Return the vectors of all texts, one entry after the other; None if there are none."""
        texts = [text for entry_texts in texts_by_entry for text in entry_texts]
        if self.embedder is None or not texts:
            return None
        return self._comparable_vectors(self.embedder.embed(texts))

    def _comparable_vectors(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors in the form in which they are compared, rounded where words count as well.

        Raises:
            ProgramError: They have another length than those in the index.
        """
        dimension = self._rows.vectors.dimension
        if dimension not in (0, vectors.shape[1]):
            name = self.embedder.name if self.embedder else None
            raise ProgramError(
                f"embedder {name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {dimension}; rebuild the index"
            )
        if not self._combines_words_and_vectors:
            return vectors

        # Equal vectors must get equal cosines; see `VECTOR_STEPS`.
        return np.round(vectors * VECTOR_STEPS).astype(np.float32) / np.float32(VECTOR_STEPS)

    def _score_queries(
        self, queries: Sequence[str], min_score: float, vectors: np.ndarray | None
    ) -> Iterator[QueryScores]:
        """Yield the scores of all rows, for one query after the other; arguments as of `search`."""
        if self.embedder is None:
            for query in queries:
                bonus = self._question_bonus(query) if self.hybrid else None
                yield score_by_words(self._rows.word_scores(query), bonus, min_score)
            return

        if vectors is None:
            vectors = query_vectors(self.embedder, self.semantic_queries(queries))
        vectors = self._comparable_vectors(vectors)
        cosines = self._rows.vectors.cosines(vectors, len(self._rows.entries))

        for query, vector, row_cosines in zip(queries, vectors, cosines, strict=True):
            # The vector of a text without words is all 0.
            has_vector = bool(vector.any())
            if not self._combines_words_and_vectors:
                yield score_by_cosines(row_cosines, has_vector, min_score)
                continue

            yield score_by_words_and_cosines(
                word_scores=self._rows.word_scores(query),
                cosines=row_cosines,
                has_vector=has_vector,
                bonus=self._question_bonus(query),
                smoothing=self._rows.smoothing(),
                min_score=min_score,
                weights=self.weights,
            )

    def _question_bonus(self, query: str) -> np.ndarray | None:
        """Return what each row gains by its speaker and its month; None if nothing does."""
        is_speaker = self._rows.is_wanted_speaker(query)
        month_nearness = self._rows.month_nearness(query)
        return question_bonus(is_speaker, month_nearness, self.weights)

    def _reranker(self) -> Reranker | None:
        """Return the reranker that orders the first hits again; None if they stay as they are."""
        if not self._combines_words_and_vectors or self.weights.reranked_hits == 0:
            return None
        return reranker_of(self.embedder)

    def _reranking(
        self,
        reranker: Reranker | None,
        query: str,
        ranking: Ranking,
        similarity: np.ndarray | None,
    ) -> Reranking | None:
        """Return how a reranker will order the first hits again; None if they stay as they are.

        The reranker is not called yet, but all that it needs is read from the index.

        Args:
            reranker: The reranker, if there is one.
            query: The query.
            ranking: The ranking of the query.
            similarity: What words and cosines add to the score of each row; see `QueryScores`.
        """
        if reranker is None or similarity is None or not ranking.best:
            return None

        [semantic_query] = self.semantic_queries([query])
        words = reranker.words(semantic_query)
        texts = texts_to_read(ranking.best, self.weights)
        rows = np.array([candidate.row for candidate in ranking.best[: len(texts)]])
        return Reranking(
            reranker=reranker,
            query=semantic_query,
            word_rarities={word: self._rows.word_rarity(word) for word in words},
            texts=texts,
            rows=rows,
            similarity=similarity[rows],
            similarity_weight=self.weights.similarity_beside_reranker,
            smoothing=self._rows.smoothing(),
        )


def check_queries(queries: Sequence[str]) -> None:
    """Refuse a single string, which would be searched for letter by letter.

    Raises:
        UserError: `queries` is a string.
    """
    if isinstance(queries, str):
        raise UserError(
            f"search takes a list of queries, got the string {queries!r:.80}; put it in a list"
        )
