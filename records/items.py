"""The items of a history: sessions of turns, device logs, behaviour records, a profile."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Tag

from .frozen import Record
from .timestamps import Moment
from .turns import Turn, format_time


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

    @property
    def spoken(self) -> tuple[Turn, ...]:
        """The turns with words."""
        return tuple(turn for turn in self.turns if turn.content.strip())

    @property
    def date(self) -> str:
        """The time as prompts show it; "unknown" where there is none."""
        return format_time(self.time) if self.time else "unknown"

    def lines(self) -> list[str]:
        """Render every turn on a line of its own, each with its date."""
        return [turn.line(self.time) for turn in self.turns]

    def select_turns(self, ids: Collection[str]) -> Self:
        """Return the item with those of its turns that have one of the ids."""
        turns = tuple(turn for turn in self.turns if turn.id in ids)
        return self.model_copy(update={"turns": turns})


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


_FIELDS_OF_ACTION_TURNS = {"id", "speaker", "text", "time"}


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
        """Return the action as a turn: `scene; situation => action`."""
        text = f"{self.scene}; {self.situation} => {self.action}"
        # There may be a million of them: the values were validated already, and the set of given fields is shared.
        return Turn.model_construct(_FIELDS_OF_ACTION_TURNS, id=self.id, speaker=speaker, text=text, time=self.time)


class Behavior(Item):
    """A batch of behaviour records in time order."""

    kind: Literal["behavior"] = "behavior"
    actions: tuple[Action, ...] = ()

    @classmethod
    def from_actions(cls, id: str, actions: Iterable[Action]) -> Behavior:
        """Make a batch of actions, with a turn for each; its time is that of the first."""
        actions = tuple(actions)
        turns = tuple(action.turn() for action in actions)
        time = actions[0].time if actions else None
        return cls(id=id, time=time, actions=actions, turns=turns)

    def select_turns(self, ids: Collection[str]) -> Behavior:
        return Behavior.from_actions(self.id, (action for action in self.actions if action.id in ids))


def _kind_of(value: Mapping[str, Any] | Item | str | float | None) -> Any:
    """Return the kind that an item, or its JSON, says it is of."""
    if isinstance(value, Mapping):
        return value.get("kind", "session")
    return getattr(value, "kind", "session")


AnyItem = Annotated[
    Annotated[Session, Tag("session")]
    | Annotated[Logs, Tag("logs")]
    | Annotated[Profile, Tag("profile")]
    | Annotated[Behavior, Tag("behavior")],
    Discriminator(_kind_of),
]
"""An item of any kind, told apart by `kind`; a session where it is left out."""
