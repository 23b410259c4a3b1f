"""Full context and truncation: show the newest turns of a conversation, whatever is asked.

Both keep every turn, as turn RAG does, and show as many of the newest as fit into a budget of
tokens. They differ in the size of the budget alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ...memory.memory import TurnMemory
from ...memory.tuning_range import TuningRange
from ...records import Context, Hit, Item, Query, estimate_tokens
from .._relative_dates import resolve_item_dates, resolve_line_dates
from ..method import Method
from ..reader import EntryReader
from ..settings import Settings
from .turn_rag import TurnWriter

_LONG_CONTEXT = {"max_tokens": 32_000}
"""The long context of PraMem, section 4.1."""


class NewestReader(EntryReader[TurnMemory]):
    """Recall the newest turns that fit; `search` finds single turns, as turn RAG does."""

    settings: FullContextSettings

    def __init__(self, settings: FullContextSettings) -> None:
        super().__init__(settings=settings)

    def recall(self, memory: TurnMemory, query: Query) -> Context:
        """Return the newest turns that fit into `max_tokens`, in time order.

        They include turns that came after the end of the memory. Turns that the prompt of the task
        shows in any case are left out, but their tokens count.
        """
        for item in query.new_items:
            memory = memory.with_session(item)

        free_tokens = self.settings.max_tokens - self._tokens_of_items(query.shown_items)
        shown_ids = query.shown_turn_ids
        hits: list[Hit] = []
        for turn in reversed(memory.turns):
            if turn.id in shown_ids:
                continue
            hit = turn.hit()
            free_tokens -= self._tokens_of_hit(hit)
            if free_tokens < 0:
                break
            hits.append(hit)

        # They were collected newest first.
        hits.reverse()
        return Context(hits=tuple(hits))

    def _tokens_of_items(self, items: Iterable[Item]) -> int:
        """Return how many tokens the lines of items have in the prompt of the task."""
        tokens = 0
        for item in items:
            shown_item = resolve_item_dates(item) if self.resolve_dates else item
            for line in shown_item.lines():
                tokens += _tokens_of_line(line)
        return tokens

    def _tokens_of_hit(self, hit: Hit) -> int:
        """Return how many tokens the line of a hit has in the prompt of the task."""
        shown_hit = resolve_line_dates(hit) if self.resolve_dates else hit
        return _tokens_of_line(shown_hit.line())


class FullContextSettings(Settings):
    """What can be set of `FullContext`."""

    max_tokens: Annotated[int, TuningRange(500, 200_000, log=True)] = Field(
        default=100_000,
        description="most tokens of context; four characters count as one token, a Chinese "
        "character as 1.5",
    )


class TruncationSettings(FullContextSettings):
    """What can be set of `Truncation`: the same, with a small budget."""

    max_tokens: Annotated[int, TuningRange(500, 200_000, log=True)] = Field(
        default=8_000,
        description="most tokens of context; four characters count as one token, a Chinese "
        "character as 1.5",
    )


class FullContext(Method):
    """Recall all turns, the newest ones if not all of them fit. Critical path: no LM call."""

    Settings = FullContextSettings
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "omnibehavior": _LONG_CONTEXT,
        "movielens": _LONG_CONTEXT,
    }

    def __init__(self, settings: FullContextSettings | None = None) -> None:
        settings = settings or FullContextSettings()
        super().__init__(TurnWriter(), NewestReader(settings), settings=settings)


class Truncation(FullContext):
    """Recall the newest turns that fit into a small budget. Critical path: no LM call."""

    Settings = TruncationSettings
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, settings: TruncationSettings | None = None) -> None:
        super().__init__(settings or TruncationSettings())


def _tokens_of_line(line: str) -> int:
    """Return how many tokens a line has, with its line break."""
    return estimate_tokens(line) + 1
