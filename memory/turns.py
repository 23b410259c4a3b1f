"""The simplest memory: every turn verbatim, with its session's date.

Example:
    >>> from mempiler.memory.turns import TurnMemory
    >>> from mempiler.records import Session, Turn
    >>> session = Session(id="D1", turns=(Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon."),))
    >>> [(entry.id, entry.text) for entry in TurnMemory().with_session(session).turns]
    [('D1:1', 'Ada: I moved to Lisbon.')]
"""

from __future__ import annotations

from ..records import Item, Session, one_line
from .index import DIALOGUE, Entry
from .memory import Memory

KINDS = {"logs": "log", "behavior": "record", "profile": "profile"}
"""What a turn of an item is called as a hit, by the kind of the item; else "turn"."""


class TurnMemory(Memory):
    """Turns in time order."""

    turns: tuple[Entry, ...] = ()
    """One entry per turn: its id is the turn's, its text is `speaker: words [image caption]`."""

    def with_session(self, item: Item) -> TurnMemory:
        """The memory with one more item; empty turns are left out."""
        return self.model_copy(update={"turns": self.turns + turn_entries(item)})

    def entries(self) -> tuple[Entry, ...]:
        return self.turns


def turn_entries(item: Item) -> tuple[Entry, ...]:
    """Every turn with words as an entry; those of a session are a dialogue, named by its first turn."""
    kind = KINDS.get(getattr(item, "kind", ""), "turn")
    # Turn ids are unique, while two items may have one id; a session that is still open begins with the same turn.
    tags = {DIALOGUE: item.turns[0].id} if isinstance(item, Session) and item.turns else {}
    return tuple(
        Entry(
            id=turn.id,
            text=one_line(f"{turn.speaker}: {turn.content}"),
            kind=kind,
            sources=(turn.id,),
            time=turn.time or item.time,
            speaker=turn.speaker,
            tags=tags,
        )
        for turn in item.turns
        if turn.content.strip()
    )
