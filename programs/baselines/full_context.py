"""Full context: the task sees the conversation itself, as much of its end as fits.

The ceiling for short histories and the honest rival of every memory: what no memory method should lose to.
"""

from __future__ import annotations

from typing import Any

from ...memory.turns import TurnMemory
from ...records import Context, Hit, estimate_tokens
from .turn_rag import TurnRAG


class FullContext(TurnRAG):
    """Recalls all turns, newest first to be kept, shown in time order. Critical path: no LM call.

    `search` finds single turns as turn RAG does, so that retrieval policies can stand on it.

    Args:
        max_tokens: Most tokens of context, as `records.estimate_tokens` counts them.
    """

    def __init__(self, max_tokens: int = 100_000) -> None:
        super().__init__()
        self.max_tokens = max_tokens

    def recall(self, memory: TurnMemory, query: str, **hints: Any) -> Context:
        """The newest turns, of the memory and of what came after it.

        Args:
            memory: The turns that were written.
            query: Not used.
            **hints: `since`: items after the memory, which are turns like any other here. `recent`: those items that
                the task shows by itself; they come out of the budget first, and are not recalled.
        """
        kept: list[Hit] = []
        lines = {turn.id: turn.line(item.time) for item in hints.get("recent") or () for turn in item.turns}
        room = self.max_tokens - sum(estimate_tokens(line) + 1 for line in lines.values())
        for item in hints.get("since") or ():
            memory = memory.with_session(item)
        for hit in reversed([hit for hit in memory.hits() if hit.id not in lines]):
            room -= estimate_tokens(hit.line()) + 1
            if room < 0:
                break
            kept.append(hit)
        return Context(hits=tuple(reversed(kept)))
