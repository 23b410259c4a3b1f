"""Rerankers: order the first hits of a search again; see `memory.search.reranker.Reranker`.

`TokenMatch` compares tokens, which an encoder has of every text already. `FastEmbed` runs the cross-encoders and late
interaction models of fastembed's list, which read every text anew with each question.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np

from ..errors import EndpointError, UserError
from ..optional_import import require_package
from ..text import one_line
from .endpoint.loop import check_deadline
from .fair_semaphore import compute_slot

TOKENS = "tokens"
"""The name of `TokenMatch`."""
_SHORT = 64
"""Tokens from which the length of a text counts: the longer it is, the more there is to be near to by chance."""


class TokenMatch:
    """Late interaction without training: each token of a question looks for the nearest one of a text.

    Cosines below 0 count as 0, and are squared; rare words weigh most, function words nothing. The best passage of a
    text counts, less what the logarithm of the length of long texts explains.
    """

    name = TOKENS

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder

    def words(self, query: str) -> Sequence[str]:
        """The words that tokens of a question are parts of; see `memory.search.reranker.Reranker`."""
        return self._embedder.query_tokens(query)[1]

    @compute_slot()
    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
        """One score a text; see `memory.search.reranker.Reranker`."""
        tokens, words = self._embedder.query_tokens(query)
        rare = np.array([weights[word] for word in words], np.float32)
        asked = tokens[rare > 0].astype(np.float32) / 127**2
        rows = self._embedder.tokens(list(chain.from_iterable(texts)))
        lengths = np.array([len(each) for each in rows])
        scores = np.zeros(len(rows), np.float32)
        if len(asked) and lengths.any():
            table = np.concatenate([each for each in rows if len(each)]).astype(np.float32)
            starts = _starts(lengths[lengths > 0])
            nearest = np.maximum.reduceat(_cosines(asked, table), starts, axis=1)
            scores[lengths > 0] = rare[rare > 0] @ np.maximum(nearest, 0) ** 2
        begins = _starts(np.array([len(each) for each in texts]))
        return _without_length(np.maximum.reduceat(scores, begins), np.add.reduceat(lengths, begins))


class FastEmbed:
    """A cross-encoder or a late interaction model of fastembed's list; loaded with the first question."""

    def __init__(self, name: str) -> None:
        self.name = f"fastembed:{name}"
        self._model_name = name
        self._load = functools.cache(functools.partial(_reranker, name))

    def check(self) -> None:
        """Refuse a model that fastembed does not have; errors as of `_supported`. Nothing is loaded."""
        _supported(self._model_name, _RERANKER_KINDS)

    def words(self, query: str) -> Sequence[str]:
        """None; see `memory.search.reranker.Reranker`."""
        return ()

    @compute_slot()
    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
        """One score a text, that of its best passage; see `memory.search.reranker.Reranker`."""
        found = np.asarray(self._load()(query, list(chain.from_iterable(texts))), np.float64)
        return np.maximum.reduceat(found, _starts(np.array([len(each) for each in texts])))


class FastEmbedVectors:
    """Embeds texts with a model of fastembed's list, each by itself; loaded with the first one."""

    def __init__(self, name: str) -> None:
        self._model_name = name
        self._load = functools.cache(functools.partial(_model, name, _VECTOR_KINDS))

    def check(self) -> None:
        """Refuse a model that fastembed does not have; errors as of `_supported`. Nothing is loaded."""
        _supported(self._model_name, _VECTOR_KINDS)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self._vector(text) for text in texts])

    @compute_slot()
    def _vector(self, text: str) -> np.ndarray:
        _, model = self._load()
        return next(iter(model.embed([text], batch_size=1)))


_VECTOR_KINDS = ("TextEmbedding",)
_RERANKER_KINDS = ("LateInteractionTextEmbedding", "TextCrossEncoder")
"""What fastembed calls the kinds of models that embed texts, and of those that rank them."""


def _reranker(name: str) -> Callable[[str, list[str]], list[float]]:
    """Load a reranker of fastembed's list; what it returns scores texts for a query, until the deadline passes."""
    kind, model = _model(name, _RERANKER_KINDS)

    def rank_pairs(query: str, texts: list[str]) -> list[float]:
        scores: list[float] = []
        for score in model.rerank(query, texts):
            check_deadline()
            scores.append(score)
        return scores

    def rank_tokens(query: str, texts: list[str]) -> list[float]:
        query_rows = next(iter(model.query_embed(query)))
        scores: list[float] = []
        for text_rows in model.embed(texts):
            check_deadline()
            scores.append(float((query_rows @ text_rows.T).max(axis=1).sum()))
        return scores

    return rank_pairs if kind == "TextCrossEncoder" else rank_tokens


def _model(name: str, kinds: Sequence[str]) -> tuple[str, Any]:
    """Load the model of this name of fastembed's list; return of which kind it is, too.

    Raises:
        EndpointError: It cannot be loaded, which may download it first.
        UserError, MissingDependencyError: As `_supported`.
    """
    kind, model_class = _supported(name, kinds)
    try:
        return kind, model_class(name)
    except Exception as error:  # Its errors have no class of their own.
        raise EndpointError(f"fastembed cannot load {name}: {one_line(error, 200)}") from error


def _supported(name: str, kinds: Sequence[str]) -> tuple[str, Any]:
    """Return the kind of a model in fastembed's lists, and the class of it.

    Raises:
        UserError: There is none of these kinds.
        MissingDependencyError: fastembed is not installed.
    """
    with require_package("fastembed", "rerank"):
        import fastembed  # pyright: ignore[reportMissingImports]
        from fastembed.rerank.cross_encoder import TextCrossEncoder  # pyright: ignore[reportMissingImports]
    for kind in kinds:
        model_class = getattr(fastembed, kind, TextCrossEncoder)
        if any(name == model["model"] for model in model_class.list_supported_models()):
            return kind, model_class
    raise UserError(f"fastembed has no {kinds[-1]} {name!r}; see {kinds[-1]}.list_supported_models()")


def _cosines(asked: np.ndarray, table: np.ndarray) -> np.ndarray:
    """All cosines, on one thread: others would wait busily for a product as small as this."""
    import faiss

    api, found = cast("Any", faiss), np.empty((len(asked), len(table)), np.float32)
    for vector, to in zip(asked, found, strict=True):
        api.fvec_inner_products_ny(*map(api.swig_ptr, (to, vector, table)), table.shape[1], len(table))
    return found


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Where each of some parts begins that stand one after the other."""
    return np.cumsum(lengths) - lengths


def _without_length(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    size = np.log(np.maximum(lengths, _SHORT))
    size -= size.mean()
    slope = float(size @ (scores - scores.mean())) / max(float(size @ size), 1e-9)
    return scores - max(slope, 0) * size
