"""What a search needs to know of an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Embedder(Protocol):
    """What an index needs to know of an embedder; `engines.embedders` has implementations.

    One that tells what is searched for from what is searched has `embed_queries` too, of the form of `embed`, and one
    whose first hits are ranked again has a `reranker`.
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
        """Texts as float32 [len(texts), dimension]; rows have length 1, or 0 for a text without words."""
        ...


def query_vectors(embedder: Embedder, queries: Sequence[str]) -> np.ndarray:
    """The vectors of queries, by `embed_queries` of an embedder that tells them from what is searched."""
    return getattr(embedder, "embed_queries", embedder.embed)(queries)
