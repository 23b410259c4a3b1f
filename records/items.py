"""The items of a history: sessions of turns, device logs, behaviour records, a profile."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Literal, Self, cast

from pydantic import Discriminator, Tag

from .frozen import Record
from .timestamps import Moment
from .turns import Turn, format_time


class Item(Record):
    """One step of a history: an id, a time and turns. A method reads one item at a time.

    Items of every kind show their content as turns too. So a method that knows nothing of logs or
    behaviour reads them as lines with an id and a date.
    """

    id: str
    time: Moment | None = None
    turns: tuple[Turn, ...] = ()

    @cached_property
    def digest(self) -> str:
        """The sha256 of the item's JSON."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def spoken(self) -> tuple[Turn, ...]:
        """The turns that have a text or a caption."""
        return tuple(turn for turn in self.turns if turn.content.strip())

    @property
    def date(self) -> str:
        """The time as prompts show it; "unknown" if there is none."""
        return format_time(self.time) if self.time else "unknown"

    def lines(self) -> list[str]:
        """Render every turn on a line of its own, with its date."""
        return [turn.line(self.time) for turn in self.turns]

    def select_turns(self, ids: Collection[str]) -> Self:
        """Return the item with only those of its turns that have one of the ids."""
        turns = tuple(turn for turn in self.turns if turn.id in ids)
        return self.model_copy(update={"turns": turns})


class Session(Item):
    """One sitting of a conversation. Its turns share a date."""

    kind: Literal["session"] = "session"


class Logs(Item):
    """What devices logged between two sessions. Each turn is one entry, with a time of its own.

    The speaker of an entry is the device, or "log" if the data does not name it.
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
    """What the user saw before they acted, in words."""
    action: str
    """What they did, in words."""
    questions: tuple[str, ...] | None = None
    """The questions of a practice task, which `action` answers.

    Empty if nothing is to be asked. None if the data does not say: then the task asks what the user
    does.
    """

    def turn(self, speaker: str = "user") -> Turn:
        """Return the action as a turn: `scene; situation => action`."""
        # A history may have a million actions, so the turn is not validated: the fields of the
        # action were. All turns share one set of the names of their fields.
        return Turn.model_construct(
            _FIELDS_OF_ACTION_TURNS,
            id=self.id,
            speaker=speaker,
            text=f"{self.scene}; {self.situation} => {self.action}",
            time=self.time,
        )


_FIELDS_OF_ACTION_TURNS = {"id", "speaker", "text", "time"}


class Behavior(Item):
    """A batch of behaviour records in time order."""

    kind: Literal["behavior"] = "behavior"
    actions: tuple[Action, ...] = ()

    @classmethod
    def from_actions(
        cls,
        id: str,  # noqa: A002 (the public name)
        actions: Iterable[Action],
    ) -> Behavior:
        """Make a batch of actions, with a turn for each; its time is that of the first action."""
        all_actions = tuple(actions)
        turns = tuple(action.turn() for action in all_actions)
        time = all_actions[0].time if all_actions else None
        return cls(id=id, time=time, actions=all_actions, turns=turns)

    def select_turns(self, ids: Collection[str]) -> Behavior:
        actions = [action for action in self.actions if action.id in ids]
        return Behavior.from_actions(self.id, actions)


def _kind_of(value: object) -> object:
    """Return the kind of an item or of its JSON; "session" if it does not say."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return fields.get("kind", "session")
    return getattr(value, "kind", "session")


AnyItem = Annotated[
    Annotated[Session, Tag("session")]
    | Annotated[Logs, Tag("logs")]
    | Annotated[Profile, Tag("profile")]
    | Annotated[Behavior, Tag("behavior")],
    Discriminator(_kind_of),
]
"""An item of the kind that its field `kind` names; a session if it has no such field."""
