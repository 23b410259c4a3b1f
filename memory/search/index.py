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
        weights: How much each signal counts in a search that is given no other weights.
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
        self._rows = EntryRows(weights.neighbour_shares, has_words=hybrid or embedder is None)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._rows)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries; an entry replaces the one with the same id. Errors are those of `update`."""
        self.update(entries)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove the entries of these ids. Unknown ids are ignored."""
        self.update((), removed_ids=ids)

    def update(self, entries: Iterable[Entry], removed_ids: Iterable[str] = ()) -> None:
        """Remove entries and add others, with one call of the embedder.

        Args:
            entries: The entries to add; an entry replaces the one with the same id.
            removed_ids: Ids of entries to remove first. Unknown ids are ignored.

        Raises:
            ProgramError: The embedder's vectors have another length than those in the index.
            EndpointError: The embedder cannot be reached.
        """
        # If an id comes twice, the last entry counts.
        latest_entries = {entry.id: entry for entry in entries}
        new_entries = list(latest_entries.values())
        texts_by_entry = [self._embedded_texts(entry) for entry in new_entries]

        # Embed before anything is changed: if that fails, the index stays as it was.
        vectors = self._embed(texts_by_entry)

        self._rows.remove(removed_ids)
        self._rows.put(new_entries, [len(texts) for texts in texts_by_entry], vectors)

        # Removed entries leave empty rows behind. Get rid of these when they are many.
        if self._rows.is_mostly_empty():
            self._rows = self._rows.compacted()

    def search(
        self,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: EntryFilter | None = None,
        vectors: np.ndarray | None = None,
        weights: SignalWeights | None = None,
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
            weights: How much each signal counts; the weights of the index if None. Their
                `neighbour_shares` must be those of the index.

        Returns:
            The hits of each query, best first; of equal scores the entry that was added first.

        Raises:
            UserError: `queries` is a string instead of a list.
            EndpointError: The embedder cannot be reached.
        """
        searches = self.search_deferred(queries, k, min_score, where, vectors, weights)
        return [search.hits() for search in searches]

    def search_deferred(
        self,
        queries: Sequence[str],
        k: int,
        min_score: float = -math.inf,
        where: EntryFilter | None = None,
        vectors: np.ndarray | None = None,
        weights: SignalWeights | None = None,
    ) -> list[DeferredSearch]:
        """Do the part of `search` that reads the index, and leave slow work for later.

        The slow work is that of a reranker, a model that puts the first hits in a better order. It
        can then be done without the lock of the index. Arguments and errors are those of `search`.

        Returns:
            One object for each query. Its method `hits` does the rest of the search, and stays
            valid when the index changes.
        """
        check_queries(queries)
        weights = weights or self.weights
        if len(self) == 0 or not queries or k <= 0:
            return [DeferredSearch.without_hits() for _ in queries]

        # A filter by speaker compares numbers, for all rows at once, instead of calling `where`.
        speaker_filter: np.ndarray | None = None
        if isinstance(where, SpeakerIs):
            speaker_filter = self._rows.speaker_filter(where)
            where = None

        # A reranker may put any of the hits that it reads first, so find all of these.
        reranker = self._reranker(weights)
        limit = k if reranker is None else max(k, weights.reranked_hits)

        searches: list[DeferredSearch] = []
        all_scores = self._score_queries(queries, min_score, vectors, weights)
        for query, query_scores in zip(queries, all_scores, strict=True):
            visible_scores = query_scores.masked(speaker_filter)
            # Turns that only repeat the query or another hit stand behind all other hits.
            repeat_filter = RepeatFilter(query) if self.hybrid else None
            ranking = rank_rows(self._rows.entries, visible_scores, limit, where, repeat_filter)
            reranking = None
            if reranker is not None and query_scores.similarity is not None and ranking.best:
                reranking = self._prepare_reranking(
                    reranker, query, ranking, query_scores.similarity, weights
                )
            searches.append(DeferredSearch(ranking, k, reranking))
        return searches

    def semantic_queries(self, queries: Sequence[str]) -> list[str]:
        """Return the texts of queries that are turned into vectors: the first `MAX_QUERY_CHARS`.

        Where words count as well, names of speakers are left out: the vector of a name is similar
        to all turns by this speaker, whatever they are about.
        """
        searched_texts = [query[:MAX_QUERY_CHARS] for query in queries]
        if not self._combines_words_and_vectors:
            return searched_texts
        return [self._rows.speakers.without_names(text) for text in searched_texts]

    def _embedded_texts(self, entry: Entry) -> list[str]:
        """Return the parts of an entry's text that each get a vector; none without an embedder."""
        if self.embedder is None:
            return []
        if not self._combines_words_and_vectors:
            return [entry.text]

        # One vector of a long text mixes all its topics, and so is similar to no query. So each
        # passage gets a vector, and the one that is most similar to a query counts.
        return passages(entry.text, entry.speaker)

    def _embed(self, texts_by_entry: Sequence[Sequence[str]]) -> np.ndarray | None:
        """Return the vectors of the texts of entries, shape [texts, dimension].

        The vectors of the first entry come first, then those of the second, and so on. None if
        there is no embedder or no text.
        """
        texts = [text for entry_texts in texts_by_entry for text in entry_texts]
        if self.embedder is None or not texts:
            return None
        return self._comparable_vectors(self.embedder.embed(texts))

    def _comparable_vectors(self, vectors: np.ndarray) -> np.ndarray:
        """Check the length of vectors, and round them where words count as well.

        Raises:
            ProgramError: The vectors have another length than those in the index.
        """
        # The index has the dimension 0 until it gets the first vector.
        dimension = self._rows.vectors.dimension
        if dimension not in (0, vectors.shape[1]):
            name = self.embedder.name if self.embedder else None
            raise ProgramError(
                f"embedder {name!r} gives {vectors.shape[1]} numbers a text, "
                f"the index holds {dimension}; rebuild the index"
            )
        if not self._combines_words_and_vectors:
            return vectors

        # Equal vectors must get exactly equal cosines. With numbers that are multiples of
        # 1 / VECTOR_STEPS, products add up without rounding.
        return np.round(vectors * VECTOR_STEPS).astype(np.float32) / np.float32(VECTOR_STEPS)

    def _score_queries(
        self,
        queries: Sequence[str],
        min_score: float,
        vectors: np.ndarray | None,
        weights: SignalWeights,
    ) -> Iterator[QueryScores]:
        """Yield how well all entries fit a query, for one query after the other.

        What counts depends on the index: words, vectors or both. Arguments are those of `search`.
        """
        if self.embedder is None:
            for query in queries:
                bonus = self._question_bonus(query, weights) if self.hybrid else None
                word_scores = self._rows.word_scores(query, weights.neighbour_words)
                is_filled = self._rows.is_filled()
                yield score_by_words(word_scores, bonus, min_score, is_filled)
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
                word_scores=self._rows.word_scores(query, weights.neighbour_words),
                cosines=row_cosines,
                has_vector=has_vector,
                bonus=self._question_bonus(query, weights),
                smoothing=self._rows.smoothing(),
                min_score=min_score,
                weights=weights,
            )

    def _question_bonus(self, query: str, weights: SignalWeights) -> np.ndarray | None:
        """Return what each row gains by its speaker and its month, if the question asks for these.

        None if it asks for neither.
        """
        is_speaker = self._rows.is_wanted_speaker(query)
        month_nearness = self._rows.month_nearness(query, weights)
        return question_bonus(is_speaker, month_nearness, weights)

    def _reranker(self, weights: SignalWeights) -> Reranker | None:
        """Return the model that puts the first hits in a better order; None if none is used."""
        if not self._combines_words_and_vectors or weights.reranked_hits == 0:
            return None
        return reranker_of(self.embedder)

    def _prepare_reranking(
        self,
        reranker: Reranker,
        query: str,
        ranking: Ranking,
        similarity: np.ndarray,
        weights: SignalWeights,
    ) -> Reranking:
        """Collect all that a reranker needs of the index, so that it can be called later.

        A reranker is a slow model that puts the first hits in a better order. It is called when the
        index is no longer locked, and may have changed.

        Args:
            reranker: The reranker.
            query: The query.
            ranking: The hits of the query, at least one.
            similarity: What words and cosines add to the score of each row.
            weights: The weights of the search.
        """
        # The reranker chooses the words that count more if they are rare. Only the index knows how
        # rare they are.
        [semantic_query] = self.semantic_queries([query])
        words = reranker.words(semantic_query)
        word_rarities = {word: self._rows.word_rarity(word) for word in words}

        # It reads the first hits only.
        texts = texts_to_read(ranking.best, weights)
        rows = np.array([candidate.row for candidate in ranking.best[: len(texts)]])
        return Reranking(
            reranker=reranker,
            query=semantic_query,
            word_rarities=word_rarities,
            texts=texts,
            rows=rows,
            similarity=similarity[rows],
            similarity_weight=weights.similarity_beside_reranker,
            # Gives each turn of a dialogue a share of the scores of the turns around it.
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
