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
    """Scores a few texts for a question; `engines.rerankers` implements it."""

    name: str

    def words(self, query: str) -> Sequence[str]:
        """Return the words of a question that count the more, the rarer they are in the memory."""
        ...

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        """Return one score for each text, shape [texts]; higher is nearer to the question.

        Args:
            query: The question, without the names of speakers.
            texts: Each text as its passages.
            weights: For each of `words` how rare it is in the memory.
        """
        ...


@dataclass(frozen=True)
class Reranking:
    """How a reranker will order the first candidates of one search again.

    All that this needs from the index stands here. Nothing of it changes with the index, so it may
    be done later, without the lock of the index.
    """

    reranker: Reranker
    query: str
    """The question, without the names of speakers."""
    word_rarities: Mapping[str, float]
    """For each of the reranker's words of the question how rare it is in the memory."""
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
        """Return the ranking of the search in its new order.

        The candidates that the reranker reads come first. The others follow in their old order.
        """
        read_count = len(self.texts)
        read_candidates = ranking.best[:read_count]
        other_candidates = ranking.best[read_count:]

        # The reranker takes the place of words and cosines, which still count a little. What a
        # candidate gained by its speaker and its month, the rest of its score, stays.
        old_scores = np.array([candidate.score for candidate in read_candidates])
        bonus = old_scores - self.similarity
        scores = self._reranker_scores() + bonus + self.similarity_weight * self.similarity

        best: list[Candidate] = []
        order: list[int] = np.argsort(-scores, kind="stable").tolist()
        for index in order:
            best.append(read_candidates[index].with_score(float(scores[index])))

        # No other candidate scored more than the last one that was read. Add to all others what
        # makes the score of that one the lowest new score: so none of them scores more than that.
        shift = float(scores.min() - old_scores[-1])
        for candidate in other_candidates:
            best.append(candidate.with_score(candidate.score + shift))
        return Ranking(best, ranking.repeats)

    def _reranker_scores(self) -> np.ndarray:
        """Return the reranker's scores, smoothed over neighbours, in standard deviations."""
        raw_scores = self.reranker.scores(self.query, self.texts, self.word_rarities)

        # In deviations, only scores above the mean raise those of their neighbours.
        scores = self.smoothing.smoothed(standard_scores(raw_scores), self.rows)
        return standard_scores(scores)


@dataclass(frozen=True)
class DeferredSearch:
    """The search of one query as far as it reads the index. What is left needs no lock."""

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
        """Finish the search, and return its hits, best first. A reranker may take seconds."""
        ranking = self.ranking
        if self.reranking is not None:
            ranking = self.reranking.rerank(ranking)
        return ranking.hits(self.limit)


def texts_to_read(candidates: Sequence[Candidate], weights: SignalWeights) -> list[list[str]]:
    """Return the passages of the first candidates, as far as a reranker reads them.

    They are the first `SignalWeights.reranked_hits`, or fewer if these have more than
    `reranked_passages` passages together. The first candidate is always read.
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
