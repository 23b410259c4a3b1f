"""Turn RAG: keep every turn, recall the ones that share words with the query.

Search is BM25 over stop-worded, stemmed turns with the speaker's name in front. On LoCoMo, where questions share words
with their evidence, this finds more of it than small dense embedders do (`docs/coverage.md` has the measured recall).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...memory.index import Index
from ...memory.sparse import SparseIndex
from ...memory.turns import TurnMemory
from ...records import Context, Hit, Item
from ..method import Method
from .logs import apart, is_dialogue, log_hits, seen


class TurnRAG(Method):
    """Recalls the `k` best-matching turns. Critical path: no LM call.

    Args:
        k: Turns recalled per query.
        logs: Whether logs are kept apart from the dialogues: then the `k` best-matching log entries of earlier
            sessions and all of the current session follow the turns (Mem-PAL, appendix C).
    """

    Memory = TurnMemory

    def __init__(self, k: int = 10, logs: bool = False) -> None:
        super().__init__()
        self.k = k
        self.logs = logs

    def write(self, memory: TurnMemory, item: Item, prepared: Any = None) -> TurnMemory:
        memory = seen(memory, item, self.logs)
        return memory if apart(item, self.logs) else memory.with_session(item)

    def search(
        self, memory: TurnMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.index(memory).search(queries, k, 0.0 if min_score is None else min_score)

    def recall(self, memory: TurnMemory, query: str, **hints: Any) -> Context:
        index = self.index(memory)
        turns = index.search([query], self.k, 0.0, is_dialogue)[0]
        return Context(hits=(*turns, *log_hits(memory.logs, index, query, self.k, hints.get("recent"))))

    def build_index(self, memory: TurnMemory) -> Index:
        index = SparseIndex()
        index.add(memory.entries + memory.logs.entries)
        return index
