"""What a method recalls for a query: the hits of its memory, and raw turns that are not in it."""

from __future__ import annotations

from typing import NamedTuple

from ..records import Context, Hit, Query


class Recalled(NamedTuple):
    """What was recalled for a query."""

    query: Query
    """The query, whose `shown_items` hold the raw turns too, so that the task shows them."""
    context: Context
    """What the memory gave."""
    raw_turns: tuple[Hit, ...]
    """Turns that are not in the memory."""

    def full_context(self) -> Context:
        """Return the context with the raw turns as further hits at its end."""
        if not self.raw_turns:
            return self.context
        return self.context.model_copy(update={"hits": (*self.context.hits, *self.raw_turns)})
