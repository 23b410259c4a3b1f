"""Rerankers: put the first hits of a search in a better order; see `memory.search.reranker`.

`TokenMatch` compares the tokens of texts, which an encoder knows already. `FastEmbedReranker` runs
a model of fastembed's list, which reads every text anew with each question.

Both take turns with the embedders of this process: they hold a slot of the call context, and stop
at its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from ..async_bridge import off_loop
from .endpoint.loop import check_deadline
from .fair_semaphore import compute_slot
from .fastembed_models import RERANKERS, FastEmbedModel

TOKENS = "tokens"
"""The name of `TokenMatch`."""

_SHORT_TEXT_TOKENS = 64
"""Up to so many tokens the length of a text does not count.

The longer a text is, the more tokens there are to be similar by chance."""


class QueryTokens(NamedTuple):
    """The tokens of a query."""

    tokens: np.ndarray
    """int8 [tokens, width], where 127 stands for 1."""
    words: Sequence[str]
    """The word that each token is a part of; "" if it is none of the query's."""


class TokenEmbedder(Protocol):
    """What `TokenMatch` needs to know of an embedder."""

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the tokens of each text, int8 [tokens, width]."""
        ...

    def query_tokens(self, query: str) -> QueryTokens:
        """Return the tokens of a query."""
        ...


class TokenMatch:
    """Late interaction without training: each token of a question looks for its nearest in a text.

    Cosines below 0 count as 0, and all are squared. Rare words weigh most, function words nothing.
    The best passage of a text counts, less what the length of a long text explains.

    Args:
        embedder: Knows the tokens of texts.
    """

    name = TOKENS

    def __init__(self, embedder: TokenEmbedder) -> None:
        self._embedder = embedder

    def words(self, query: str) -> Sequence[str]:
        """Return the words of a question; see `memory.search.reranker.Reranker`."""
        return self._embedder.query_tokens(query).words

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        """Return one score for each text; see `memory.search.reranker.Reranker`.

        Raises:
            AbandonedCallError: The deadline of the call context has passed.
        """
        # Under asyncio, `off_loop` makes the call in a thread, and only there it takes the compute
        # slot. If this code took the slot first and waited for a free thread then, every thread
        # could be busy with a call that waits for just this slot: a deadlock.
        return off_loop(partial(self._compute_scores, query, texts, weights))

    @compute_slot()
    def _compute_scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        """Return the score of each text's best passage, less what the length of the text explains.

        A longer text has more tokens that are similar to those of the query by chance.

        Args:
            query: The question.
            texts: The passages of each text.
            weights: What a token of each word weighs.
        """
        # The passages of all texts, one after the other.
        passages = list(chain.from_iterable(texts))
        passage_tokens = self._embedder.tokens(passages)
        passage_lengths = np.array([len(tokens) for tokens in passage_tokens])
        passage_scores = self._passage_scores(query, passage_tokens, passage_lengths, weights)

        # `reduceat` combines the passages of each text: from its first one to that of the next.
        first_passages = _indexes_of_first_passages(texts)
        best_scores = np.maximum.reduceat(passage_scores, first_passages)  # [texts]
        text_lengths = np.add.reduceat(passage_lengths, first_passages)  # [texts], in tokens
        return _subtract_effect_of_length(best_scores, text_lengths)

    def _passage_scores(
        self,
        query: str,
        passage_tokens: Sequence[np.ndarray],
        passage_lengths: np.ndarray,
        weights: Mapping[str, float],
    ) -> np.ndarray:
        """Return the score of each passage, float32 [passages].

        Each token of the query finds its nearest token in the passage. The score is the weighted
        sum of their squared cosines, where cosines below 0 count as 0.

        Args:
            query: The question.
            passage_tokens: The tokens of each passage.
            passage_lengths: Their numbers, [passages].
            weights: What a token of each word weighs.
        """
        query_tokens, words = self._embedder.query_tokens(query)
        token_weights = np.array([weights[word] for word in words], np.float32)
        has_weight = token_weights > 0

        # Both sides have directions times 127; divided here, once, the products are cosines.
        query_directions = query_tokens[has_weight].astype(np.float32) / 127**2

        scores = np.zeros(len(passage_tokens), np.float32)
        has_tokens = passage_lengths > 0
        if not len(query_directions) or not has_tokens.any():
            return scores

        # All tokens of all passages in one table: [tokens of passages, width].
        filled_passages = [tokens for tokens in passage_tokens if len(tokens)]
        table = np.concatenate(filled_passages).astype(np.float32)
        cosines = _cosines(query_directions, table)  # [tokens of query, tokens of passages]

        # The cosine with the nearest token of each passage, whose columns stand side by side:
        # [tokens of query, passages that have tokens].
        starts = _starts(passage_lengths[has_tokens])
        best_cosines = np.maximum.reduceat(cosines, starts, axis=1)
        scores[has_tokens] = token_weights[has_weight] @ np.maximum(best_cosines, 0) ** 2
        return scores


class FastEmbedReranker:
    """A cross-encoder or a late-interaction model of fastembed's list.

    Args:
        name: The name of the model.
    """

    def __init__(self, name: str) -> None:
        self.name = f"fastembed:{name}"
        self._model = FastEmbedModel(name, RERANKERS)

    def check(self) -> None:
        """Refuse a model that fastembed does not have; see `FastEmbedModel.check`."""
        self._model.check()

    def words(self, query: str) -> Sequence[str]:
        """Return no words: the model weighs them itself."""
        return ()

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        """Return one score for each text, that of its best passage.

        Args:
            query: The question.
            texts: The passages of each text.
            weights: Of words. Not used: the model itself decides what a word weighs.

        Raises:
            AbandonedCallError: The deadline of the call context has passed.
            EndpointError, UserError, MissingDependencyError: As for `FastEmbedModel.load`.
        """
        # Under asyncio a thread computes the scores, since the model would hold up the event loop.
        # The thread takes the compute slot itself: a slot must not be held while its holder waits
        # for a thread, because all threads may be waiting for that slot.
        return off_loop(partial(self._compute_scores, query, texts))

    def _compute_scores(self, query: str, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the score of each text's best passage, [texts]."""
        # Before a slot is held: the model may have to be downloaded.
        kind, model = self._model.load()

        # The passages of all texts, one after the other.
        passages = list(chain.from_iterable(texts))
        with compute_slot():
            if kind == "TextCrossEncoder":
                passage_scores = _cross_encoder_scores(model, query, passages)
            else:
                passage_scores = _late_interaction_scores(model, query, passages)

        # `reduceat` takes the best passage of each text: from its first one to that of the next.
        first_passages = _indexes_of_first_passages(texts)
        return np.maximum.reduceat(np.asarray(passage_scores, np.float64), first_passages)


def _cross_encoder_scores(model: Any, query: str, passages: Sequence[str]) -> list[float]:
    """Return the scores of a cross-encoder, which reads the query with each passage.

    Raises:
        AbandonedCallError: The deadline passed between two passages.
    """
    return list(_until_deadline(model.rerank(query, passages)))


def _late_interaction_scores(model: Any, query: str, passages: Sequence[str]) -> list[float]:
    """Return the scores of a late-interaction model: the sum of the best match of each query token.

    Raises:
        AbandonedCallError: The deadline passed between two passages.
    """
    (query_tokens,) = model.query_embed(query)  # [tokens of query, width]
    scores: list[float] = []
    for passage_tokens in _until_deadline(model.embed(passages)):  # [tokens of passage, width]
        similarities = query_tokens @ passage_tokens.T
        scores.append(float(similarities.max(axis=1).sum()))
    return scores


def _until_deadline(results: Iterable[Any]) -> Iterable[Any]:
    """Yield the results of a model, which computes them one by one.

    Raises:
        AbandonedCallError: The deadline of the call context has passed.
    """
    for result in results:
        check_deadline()
        yield result


def _cosines(vectors: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the inner product of each vector with each row of a table, on one thread.

    On several threads, the others would wait busily for a product as small as this.

    Args:
        vectors: float32 [vectors, width].
        table: float32 [rows, width].

    Returns:
        float32 [vectors, rows].
    """
    import faiss

    functions = cast("Any", faiss)
    products = np.empty((len(vectors), len(table)), np.float32)
    table_pointer = functions.swig_ptr(table)
    for vector, row in zip(vectors, products, strict=True):
        functions.fvec_inner_products_ny(
            functions.swig_ptr(row),
            functions.swig_ptr(vector),
            table_pointer,
            table.shape[1],
            len(table),
        )
    return products


def _indexes_of_first_passages(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Return where the passages of each text begin, if those of all texts stand in one list."""
    return _starts(np.array([len(passages) for passages in texts]))


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Return where each part starts, if parts of these lengths stand one after the other."""
    return np.cumsum(lengths) - lengths


def _subtract_effect_of_length(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return scores from which the part that grows with the length of a text is subtracted.

    A longer text has more words that may be like those of the query by chance. How much its score
    grows with the logarithm of its length is the slope of a straight line, fitted by least squares.
    A falling line has no such reason, and is not subtracted.

    Args:
        scores: One for each text.
        lengths: The tokens of each text.
    """
    log_lengths = np.log(np.maximum(lengths, _SHORT_TEXT_TOKENS))
    centred_lengths = log_lengths - log_lengths.mean()
    centred_scores = scores - scores.mean()
    variance = max(float(centred_lengths @ centred_lengths), 1e-9)  # not 0 for texts of one length
    slope = float(centred_lengths @ centred_scores) / variance
    return scores - max(slope, 0) * centred_lengths
