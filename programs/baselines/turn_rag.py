"""Turn RAG: keep every turn, recall the ones that share words with the query.

Search is BM25 over stop-worded, stemmed turns with the speaker's name in front. On LoCoMo, where questions share words
with their evidence, this finds more of it than small dense embedders do (`docs/coverage.md` has the measured recall).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...memory.turns import TurnMemory
from ...records import Item
from ..method import EntryReader, Method, Writer


class TurnWriter(Writer):
    """Keeps every turn."""

    Memory = TurnMemory

    def write(self, memory: TurnMemory, item: Item, prepared: Any = None) -> TurnMemory:
        return memory.with_session(item)


class TurnRAG(Method):
    """Recalls the `k` best-matching turns. Critical path: no LM call.

    Args:
        k: Turns recalled per query.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"palbench": {"k": 3}}
    """Mem-PAL, appendix C: what its baselines recall."""

    def __init__(self, k: int = 10) -> None:
        super().__init__(TurnWriter(), EntryReader(k))
