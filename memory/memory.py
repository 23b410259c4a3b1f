"""What a method keeps for one user: a frozen value whose JSON is its stored form.

Writing never changes a memory but returns a new one, so earlier memories stay usable: caches, rollouts and
snapshots rest on that. `settled` memories are what questions are asked of; a memory says itself which of the two
further items are written into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from .index import Entry


class Memory(BaseModel):
    """Base of all memories; without arguments it is the empty memory."""

    model_config = ConfigDict(frozen=True)

    def entries(self) -> Sequence[Entry]:
        """What can be searched in it, in order."""
        return ()

    def resumed(self, settled: Any) -> Any:
        """The memory that further items are written into after it was settled.

        By default this memory: how often it was settled meanwhile then changes nothing, and a stored memory equals the
        one that is written at once. A memory whose settling must not be repeated returns `settled`.

        Args:
            settled: What `settle` made of this memory.
        """
        return self
