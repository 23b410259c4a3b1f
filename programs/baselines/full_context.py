"""Full context: the task sees the conversation itself, as much of its end as fits.

The upper bound for short histories, and the baseline that no memory method should lose to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...memory.turns import TurnMemory
from ...records import Context, Hit, Query, estimate_tokens
from ..method import EntryReader, Method
from .turn_rag import TurnWriter


class NewestReader(EntryReader):
    """Recalls the newest turns that fit, for any question.

    `search` finds single turns as turn RAG does, so that retrieval policies can stand on it.

    Args:
        max_tokens: Most tokens of context, as `records.estimate_tokens` counts them.
    """

    def __init__(self, max_tokens: int) -> None:
        super().__init__()
        self.max_tokens = max_tokens

    def recall(self, memory: TurnMemory, query: Query) -> Context:
        """The newest turns, of the memory and of what came after it, in time order.

        What the task shows by itself comes out of the budget first, and is not recalled.
        """
        kept: list[Hit] = []
        lines = {turn.id: turn.line(item.time) for item in query.shown for turn in item.turns}
        room = self.max_tokens - sum(estimate_tokens(line) + 1 for line in lines.values())
        for item in query.since:
            memory = memory.with_session(item)
        for hit in (entry.hit() for entry in reversed(memory.turns) if entry.id not in lines):
            room -= estimate_tokens(hit.line()) + 1
            if room < 0:
                break
            kept.append(hit)
        return Context(hits=tuple(reversed(kept)))


class FullContext(Method):
    """Recalls all turns, the newest ones if not all of them fit. Critical path: no LM call.

    Args:
        max_tokens: Most tokens of context.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "omnibehavior": {"max_tokens": 32_000},
        "movielens": {"max_tokens": 32_000},
    }
    """PraMem, section 4.1: the long context is 32K tokens."""

    def __init__(self, max_tokens: int = 100_000) -> None:
        super().__init__(TurnWriter(), NewestReader(max_tokens))
