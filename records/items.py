"""The items of a history: sessions of turns, device logs, behaviour records, a profile.

Example:
    >>> from mempiler.records import Turn
    >>> Turn(id="D3:11", speaker="Ann", text="I moved to Lisbon.").line()
    '[D3:11] Ann: I moved to Lisbon.'
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Tag

from ..errors import one_line
from .moment import Moment, format_time


class Record(BaseModel):
    """Frozen base: unknown fields are refused, so that a typing slip in a data file is seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Turn(Record):
    """One utterance of a session."""

    id: str
    """Unique within its history, e.g. "D3:11" (session 3, turn 11)."""
    speaker: str
    text: str = ""
    caption: str | None = None
    """What an image sent with the turn shows, if any."""
    time: Moment | None = None
    """When it was said, where that is known more exactly than by the item's own time."""

    @property
    def content(self) -> str:
        """The text, and the image's caption in words."""
        image = f"[shares an image of {self.caption}]" if self.caption else ""
        return " ".join(part for part in (self.text, image) if part)

    def at(self, time: datetime | None) -> Turn:
        """The turn with a time, if it has none of its own."""
        return self if self.time or not time else self.model_copy(update={"time": time})

    def line(self, time: datetime | None = None) -> str:
        """Renders the turn on one line: `[D1:3] (8 May 2023, Monday 13:56) Ann: text`."""
        time = self.time or time
        when = f" ({format_time(time)})" if time else ""
        return one_line(f"[{self.id}]{when} {self.speaker}: {self.content}")


_OF_ACTION = {"id", "speaker", "text", "time"}


class Item(Record):
    """One step of a history, what a method is given one at a time: an id, a time, and turns.

    Whatever an item holds is seen as turns too, so that a method that knows nothing of logs or of behaviour reads them
    as lines with an id and a date.
    """

    id: str
    time: Moment | None = None
    turns: tuple[Turn, ...] = ()

    @cached_property
    def digest(self) -> str:
        """sha256 of the item's JSON."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def lines(self) -> list[str]:
        """Every turn on a line of its own, each with its date."""
        return [turn.line(self.time) for turn in self.turns]

    def only(self, ids: Collection[str]) -> Self:
        """The item with those of its turns that have one of the ids."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        fields["turns"] = tuple(turn for turn in self.turns if turn.id in ids)
        return type(self)(**fields)


class Session(Item):
    """One conversation sitting: turns that share a date."""

    kind: Literal["session"] = "session"


class Logs(Item):
    """A batch of what devices logged between two sessions: each turn is one entry, with a time of its own.

    The speaker of an entry is the device, or "log" where the data does not tell.
    """

    kind: Literal["logs"] = "logs"


class Profile(Item):
    """What is known of a user from the start: one turn, or several."""

    kind: Literal["profile"] = "profile"


class Action(Record):
    """What a user did in one situation."""

    id: str
    """Unique within its history."""
    time: Moment | None = None
    scene: str
    """The kind of situation, e.g. "video"."""
    situation: str
    """What the user had before them, in words."""
    action: str
    """What they did, in words."""
    questions: tuple[str, ...] | None = None
    """What practice asks about it, which `action` answers; empty where nothing is to be asked, None where it is not
    told: then what the user does is asked."""

    def turn(self, speaker: str = "user") -> Turn:
        """The action as a turn: `scene; situation => action`."""
        text = f"{self.scene}; {self.situation} => {self.action}"
        # Checked already; turns of records share one set of given fields, since there may be a million of them.
        return Turn.model_construct(_OF_ACTION, id=self.id, speaker=speaker, text=text, time=self.time)


class Behavior(Item):
    """A batch of behaviour records in time order."""

    kind: Literal["behavior"] = "behavior"
    actions: tuple[Action, ...] = ()

    @classmethod
    def of(cls, id: str, actions: Iterable[Action]) -> Behavior:
        """Makes a batch, its turns from its actions."""
        actions = tuple(actions)
        time = actions[0].time if actions else None
        return cls(id=id, time=time, actions=actions, turns=tuple(action.turn() for action in actions))

    def only(self, ids: Collection[str]) -> Behavior:
        return Behavior.of(self.id, (action for action in self.actions if action.id in ids))


def _kind(value: Mapping[str, Any] | Item | str | float | None) -> Any:
    return value.get("kind", "session") if isinstance(value, Mapping) else getattr(value, "kind", "session")


AnyItem = Annotated[
    Annotated[Session, Tag("session")]
    | Annotated[Logs, Tag("logs")]
    | Annotated[Profile, Tag("profile")]
    | Annotated[Behavior, Tag("behavior")],
    Discriminator(_kind),
]
"""An item of any kind, told apart by `kind`; a session where it is left out."""
