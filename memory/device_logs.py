"""Logs beside a memory of dialogues: those of the current session, and those of all sessions before it.

    logs ── after ──> current        dialogue ── after ──> current, answered        logs ── after ──> earlier, current

The current session is the one whose dialogue is about to begin: its logs are those since the last dialogue, and once
that dialogue has come they stay current until there are newer ones.

Example:
    >>> kept = LogMemory().after(logs_1).after(dialogue_1).after(logs_2)
    >>> [entry.id for entry in kept.current]
    ['L2:1', 'L2:2']
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ..records import Item, Logs, Session
from .index import Entry

TAGS = {"kind": "logs"}
"""What entries of logs are tagged with."""


def turn_entries(item: Item) -> tuple[Entry, ...]:
    """Every turn with words as an entry: its id is the turn's, its text is `speaker: words [image caption]`."""
    return tuple(
        Entry(
            id=turn.id,
            text=f"{turn.speaker}: {' '.join(turn.content.split())}",
            sources=(turn.id,),
            time=turn.time or item.time,
            speaker=turn.speaker,
        )
        for turn in item.turns
        if turn.content.strip()
    )


class LogMemory(BaseModel):
    """Log entries in time order."""

    model_config = ConfigDict(frozen=True)

    earlier: tuple[Entry, ...] = ()
    """Of all sessions but the current one."""
    current: tuple[Entry, ...] = ()
    """Of the current session."""
    answered: bool = False
    """Whether the dialogue that follows the current ones has come."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All of them."""
        return self.earlier + self.current

    def after(self, item: Item) -> LogMemory:
        """What is kept after one more item; items that are neither logs nor a dialogue change nothing."""
        if isinstance(item, Session):
            return self.model_copy(update={"answered": True})
        if not isinstance(item, Logs):
            return self
        new = tuple(entry.model_copy(update={"tags": TAGS}) for entry in turn_entries(item))
        if self.answered:
            return LogMemory(earlier=self.entries, current=new)
        return self.model_copy(update={"current": self.current + new})
