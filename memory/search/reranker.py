"""Rerankers: order the first hits of a search again, by what takes too long for all entries.

Words and cosines are compared for every entry of a memory. A reranker reads the question beside the
text of an entry, so it is given only the first of those that are found. An index prepares this as a
`DeferredSearch`. Its method `hits` calls the reranker, when the index is no longer locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...records import Hit
from .neighbours import NeighbourSmoothing
from .passages import passages
from .ranking import Candidate, Ranking
from .scores import standard_scores
from .weights import SignalWeights


class Reranker(Protocol):
    """Scores how well a few texts fit a question; `engines.rerankers` implements it."""

    name: str

    def words(self, query: str) -> Sequence[str]:
        """Return the words of a question that should count more if they are rare in the memory."""
        ...

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        """Return how well each text fits a question, shape [texts]; higher is better.

        Args:
            query: The question, without the names of speakers.
            texts: The passages of each text.
            weights: How rare each word from `words` is in the memory.
        """
        ...


@dataclass(frozen=True)
class Reranking:
    """All that a reranker needs to put the first candidates of one search in a better order.

    Nothing in here changes with the index. So a reranker, which is slow, can be called later,
    without the lock of the index.
    """

    reranker: Reranker
    query: str
    """The question, without the names of speakers."""
    word_rarities: Mapping[str, float]
    """How rare each word of the question is in the memory; see `Reranker.words`."""
    texts: Sequence[Sequence[str]]
    """The passages of each candidate that the reranker reads; see `texts_to_read`."""
    rows: np.ndarray
    """The row of each of these candidates."""
    similarity: np.ndarray
    """The score of each of these candidates by words and cosines."""
    similarity_weight: float
    """`SignalWeights.similarity_beside_reranker`."""
    smoothing: NeighbourSmoothing
    """Shares scores between neighbours among the rows that were in the index."""

    def rerank(self, ranking: Ranking) -> Ranking:
        """Call the reranker, and return the candidates of the search in a better order.

        The candidates that the reranker reads come first. The others follow in their old order.
        """
        read_count = len(self.texts)
        read_candidates = ranking.best[:read_count]
        other_candidates = ranking.best[read_count:]

        # An old score is the similarity (by words and vectors) plus a bonus for the speaker and the
        # month. The bonus stays. The reranker's score takes the place of most of the similarity.
        old_scores = np.array([candidate.score for candidate in read_candidates])
        bonus = old_scores - self.similarity
        scores = self._reranker_scores() + bonus + self.similarity_weight * self.similarity

        # Put the candidates in the order of the new scores, equal ones in their old order.
        best: list[Candidate] = []
        order: list[int] = np.argsort(-scores, kind="stable").tolist()
        for index in order:
            best.append(read_candidates[index].with_score(float(scores[index])))

        # The others follow, so none of them may score more than the lowest new score. None of them
        # scored more than the last candidate that was read. So shift the old scores such that the
        # score of this one would become the lowest new score: from 5 to 2, all lose 3.
        shift = float(scores.min() - old_scores[-1])
        for candidate in other_candidates:
            best.append(candidate.with_score(candidate.score + shift))
        return Ranking(best, ranking.repeats)

    def _reranker_scores(self) -> np.ndarray:
        """Return the reranker's scores in standard deviations, with shares for neighbouring turns.

        Each turn of a dialogue gets a share of the scores of the turns around it.
        """
        raw_scores = self.reranker.scores(self.query, self.texts, self.word_rarities)

        # In deviations from the mean, only scores above the mean raise those of their neighbours.
        scores = self.smoothing.smoothed(standard_scores(raw_scores), self.rows)
        return standard_scores(scores)


@dataclass(frozen=True)
class DeferredSearch:
    """A search that has read the index already; the rest of it needs no lock of the index."""

    ranking: Ranking
    limit: int
    """The most hits."""
    reranking: Reranking | None = None
    """None if the hits stay in the order of the ranking."""

    @classmethod
    def without_hits(cls) -> DeferredSearch:
        """Return the search of a query that finds nothing."""
        return cls(Ranking((), ()), limit=0)

    def hits(self) -> list[Hit]:
        """Finish the search, and return its hits, best first.

        If there is a reranker, it is called here, which may take seconds.
        """
        ranking = self.ranking
        if self.reranking is not None:
            ranking = self.reranking.rerank(ranking)
        return ranking.hits(self.limit)


def texts_to_read(candidates: Sequence[Candidate], weights: SignalWeights) -> list[list[str]]:
    """Return the passages of the candidates that a reranker is to read, candidate by candidate.

    A reranker is slow. So it reads at most the first `reranked_hits` candidates, and at most
    `reranked_passages` passages, but always the whole first candidate.

    Args:
        candidates: The candidates of a search, best first.
        weights: The weights of the index, with these two limits.
    """
    texts: list[list[str]] = []
    passage_count = 0
    for candidate in candidates[: weights.reranked_hits]:
        text_passages = passages(candidate.entry.text, candidate.entry.speaker)
        passage_count += len(text_passages)
        if texts and passage_count > weights.reranked_passages:
            break
        texts.append(text_passages)
    return texts
