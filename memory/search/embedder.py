"""What a search needs to know of an embedder; `engines.embedders` has implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from .reranker import Reranker


class Embedder(Protocol):
    """Turns texts into vectors.

    An embedder may also be a `QueryEmbedder`, or have a reranker as an `EmbedderWithReranker`.
    """

    @property
    def name(self) -> str:
        """The name of the embedder; two with the same name return the same vectors."""
        ...

    @property
    def dimension(self) -> int:
        """The number of numbers in a vector; 0 until the endpoint has returned one."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return one vector for each text, float32 of shape [texts, dimension].

        A vector has length 1, or length 0 if its text has no words.
        """
        ...


@runtime_checkable
class QueryEmbedder(Protocol):
    """An embedder that makes different vectors of queries than of the texts to be searched."""

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Return one vector for each query, in the form of `Embedder.embed`."""
        ...


@runtime_checkable
class EmbedderWithReranker(Protocol):
    """An embedder that comes with a reranker, which may read the tokens of its texts."""

    reranker: Reranker | None
    """Orders the best hits of a search again; None leaves them as they are."""


def query_vectors(embedder: Embedder, queries: Sequence[str]) -> np.ndarray:
    """Turn queries into vectors, one for each, float32 of shape [queries, dimension].

    Some embedders make different vectors of queries than of the texts to be searched.
    """
    if isinstance(embedder, QueryEmbedder):
        return embedder.embed_queries(queries)
    return embedder.embed(queries)


def reranker_of(embedder: Embedder | None) -> Reranker | None:
    """Return the reranker that comes with an embedder; None if there is none.

    A reranker is a model that puts the best hits of a search in a better order.
    """
    if isinstance(embedder, EmbedderWithReranker):
        return embedder.reranker
    return None
