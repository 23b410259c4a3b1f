"""Turn RAG: keep every turn, recall the ones that bear on the query.

Search is BM25 over stop-worded, stemmed turns with the speaker's name in front; turns of a session lend their
neighbours shares of their scores (`memory.words`). An embedding model adds its cosine (`memory.index`), or takes
the place of BM25 (`hybrid=False`, as the baselines of papers search); the offline embedder, which compares spelling,
does neither. `python perf/retrieval.py` measures each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...memory.index import Embedder
from ...memory.turns import TurnMemory
from ...records import Item
from ..method import ANY_COSINE, EntryReader, Method, Writer, of_meaning


class TurnWriter(Writer):
    """Keeps every turn."""

    Memory = TurnMemory

    def write(self, memory: TurnMemory, item: Item, prepared: Any = None) -> TurnMemory:
        return memory.with_session(item)


class TurnRAG(Method):
    """Recalls the `k` best-matching turns. Critical path: no LM call.

    Args:
        k: Turns recalled per query.
        hybrid: Whether an embedding model adds to BM25, or searches alone.
        embedder: Adds search by meaning.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"palbench": {"k": 3, "hybrid": False}}
    """Mem-PAL, appendix C: what its baselines recall, and how."""

    def __init__(self, k: int = 10, hybrid: bool = True, embedder: Embedder | None = None) -> None:
        near = of_meaning(embedder)
        super().__init__(TurnWriter(), EntryReader(k, ANY_COSINE, near, hybrid=hybrid), near)
