"""The embedder that methods fall back to, and which embedders compare meaning."""

from __future__ import annotations

from ..engines.embedders import embedder as make_embedder
from ..memory.search.embedder import Embedder


def offline_embedder() -> Embedder:
    """Return the embedder for methods that need one, where the user has named none."""
    return make_embedder()


def embedder_by_name(name: str) -> Embedder:
    """Return the embedder of a name, e.g. "minilm"; errors are those of `engines.embedders`."""
    return make_embedder(name)


def semantic_embedder(embedder: Embedder | None) -> Embedder | None:
    """Return the embedder if it compares what texts mean, else None.

    The offline embedder compares only how texts are spelled. So it finds less than a search by
    words, and callers do better without it.
    """
    if embedder is None or embedder.name == offline_embedder().name:
        return None
    return embedder
