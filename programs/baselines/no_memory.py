"""No memory: the task answers from the question alone. The floor of every table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...memory.memory import Memory
from ...records import Context, Hit, Item, Query
from ..method import Method, Reader, Writer


class Nothing(Memory):
    """An empty memory."""


class NothingWriter(Writer):
    """Keeps nothing."""

    Memory = Nothing

    def write(self, memory: Nothing, item: Item, prepared: Any = None) -> Nothing:
        return memory


class NothingReader(Reader):
    """Finds nothing."""

    def search(
        self, memory: Nothing, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return [[] for _ in queries]

    def recall(self, memory: Nothing, query: Query) -> Context:
        return Context()


class NoMemory(Method):
    """Keeps and recalls nothing. Critical path: no LM call."""

    def __init__(self) -> None:
        super().__init__(NothingWriter(), NothingReader())
