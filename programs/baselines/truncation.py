"""Truncation: the end of the conversation, for any question.

What a chat does that only keeps its last tokens. It needs no search and no memory prompt, so any memory that costs more
than this must find older evidence. Full context is the same with room for everything.
"""

from __future__ import annotations

from ..method import Method
from .full_context import NewestReader
from .turn_rag import TurnWriter


class Truncation(Method):
    """Recalls the newest turns that fit a small budget, in time order. Critical path: no LM call.

    Args:
        max_tokens: Most tokens of context, as `records.estimate_tokens` counts them.
    """

    def __init__(self, max_tokens: int = 8_000) -> None:
        super().__init__(TurnWriter(), NewestReader(max_tokens))
