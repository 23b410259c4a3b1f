"""No memory: the task answers from the question alone. The floor of every table.

With `logs` it sees the logs of the current session, and nothing of earlier ones (Mem-PAL, "Vanilla (with log)").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...memory.device_logs import LogMemory
from ...records import Context, Hit, Item
from ..method import Method
from .logs import current_hits, seen


class Nothing(BaseModel):
    """A memory that holds nothing, or nothing but the latest logs."""

    model_config = ConfigDict(frozen=True)

    logs: LogMemory = LogMemory()
    """Those of the current session, where they are shown."""


class NoMemory(Method):
    """Keeps and recalls nothing. Critical path: no LM call.

    Args:
        logs: Whether the logs of the current session are recalled, all of them.
    """

    Memory = Nothing

    def __init__(self, logs: bool = False) -> None:
        super().__init__()
        self.logs = logs

    def write(self, memory: Nothing, item: Item, prepared: Any = None) -> Nothing:
        kept = seen(memory, item, self.logs)
        if not kept.logs.earlier:
            return kept
        return kept.model_copy(update={"logs": kept.logs.model_copy(update={"earlier": ()})})

    def search(
        self, memory: Nothing, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return [[] for _ in queries]

    def recall(self, memory: Nothing, query: str, **hints: Any) -> Context:
        return Context(hits=current_hits(memory.logs, hints.get("recent") or ()))
