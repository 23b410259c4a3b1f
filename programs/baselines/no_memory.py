"""No memory: the task answers from the question alone. The floor of every table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...records import Hit, Item
from ..method import Method


class Nothing(BaseModel):
    """A memory that holds nothing."""

    model_config = ConfigDict(frozen=True)


class NoMemory(Method):
    """Keeps and recalls nothing. Critical path: no LM call."""

    Memory = Nothing

    def __init__(self) -> None:
        super().__init__()

    def write(self, memory: Nothing, item: Item, prepared: Any = None) -> Nothing:
        return memory

    def search(
        self, memory: Nothing, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return [[] for _ in queries]
