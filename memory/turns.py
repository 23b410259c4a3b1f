"""The simplest memory: every turn as it was said, with its session's date.

Example:
    >>> memory = TurnMemory().with_session(session)
    >>> [entry.id for entry in memory.entries]
    ['D1:1', 'D1:2']
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ..records import Hit, Item
from .device_logs import LogMemory, turn_entries
from .index import Entry


class TurnMemory(BaseModel):
    """Turns in time order."""

    model_config = ConfigDict(frozen=True)

    entries: tuple[Entry, ...] = ()
    """One entry per turn: its id is the turn's, its text is `speaker: words [image caption]`."""
    logs: LogMemory = LogMemory()
    """Logs that are kept apart from the dialogues, where a method does so."""

    def with_session(self, session: Item) -> TurnMemory:
        """The memory with one more session; empty turns are left out."""
        return self.model_copy(update={"entries": self.entries + turn_entries(session)})

    def hits(self) -> list[Hit]:
        """All turns as hits, in time order."""
        return [
            Hit(id=entry.id, text=entry.text, sources=entry.sources, time=entry.time, speaker=entry.speaker)
            for entry in self.entries
        ]
