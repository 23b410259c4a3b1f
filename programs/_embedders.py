"""The embedder that methods fall back to, and which embedders compare meaning."""

from __future__ import annotations

from ..engines.embedders import embedder as make_embedder
from ..memory.search.embedder import Embedder


def offline_embedder() -> Embedder:
    """Return the embedder of methods that cannot do without one and were given none."""
    return make_embedder()


def semantic_embedder(embedder: Embedder | None) -> Embedder | None:
    """Return the embedder if it adds to a search by words, else None.

    The offline embedder compares spelling, and finds less than BM25 does.
    """
    if embedder is None or embedder.name == offline_embedder().name:
        return None
    return embedder
