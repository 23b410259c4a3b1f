"""A history and its items: sessions of turns, device logs, behaviour records, a profile.

Example:
    >>> from mempiler.records import Turn
    >>> Turn(id="D3:11", speaker="Ann", text="I moved to Lisbon.").line()
    '[D3:11] Ann: I moved to Lisbon.'
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import Discriminator, JsonValue, Tag, ValidationError

from ..errors import DataError, misfit, one_line
from .frozen import Record
from .json_input import read_json
from .timestamps import Moment


def format_time(time: datetime) -> str:
    """A date as people and prompts read it: `8 May 2023, Monday 13:56` (no clock at midnight)."""
    # Without its zone, which is not shown: moments that are equal read differently in two of them.
    return _shown(time.replace(tzinfo=None))


@lru_cache(maxsize=4096)
def _shown(time: datetime) -> str:
    clock = f" {time:%H:%M}" if (time.hour, time.minute) != (0, 0) else ""
    return f"{time.day} {time:%B %Y}, {time:%A}{clock}"


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

    @property
    def spoken(self) -> tuple[Turn, ...]:
        """The turns with words."""
        return tuple(turn for turn in self.turns if turn.content.strip())

    @property
    def date(self) -> str:
        """The time as prompts show it; "unknown" where there is none."""
        return format_time(self.time) if self.time else "unknown"

    def lines(self) -> list[str]:
        """Every turn on a line of its own, each with its date."""
        return [turn.line(self.time) for turn in self.turns]

    def only(self, ids: Collection[str]) -> Self:
        """The item with those of its turns that have one of the ids."""
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


_SIGNS = re.compile(r"[\W\uff9e\uff9f]{30}")
"""More signs in a row than any language puts on a letter (Unicode's Stream-Safe Text Format); two of them are letters
to `re`, but combining marks in form NFKC."""


def folded(text: str) -> str:
    """The text in lower case and Unicode's form NFKC, so that full-width and composed letters are the plain ones.

    Python puts combining marks in order in quadratic time: runs of more than 30 signs are parted by blanks before.
    """
    # NFKC folds nothing in ASCII.
    return (text if text.isascii() else unicodedata.normalize("NFKC", _SIGNS.sub(r"\g<0> ", text))).lower()


ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
"""Roles of messages: no name may pass for one."""
Made = TypeVar("Made", bound=Record)


class History(Record):
    """The past of one user or conversation: items in time order.

    Two histories are equal when their ids and items are.
    """

    id: str
    items: tuple[AnyItem, ...] = ()

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """Chain of digests, one per item: `prefixes[i]` names the items up to and including i."""
        chain: list[str] = []
        last = ""
        for item in self.items:
            last = hashlib.sha256(f"{last}{item.digest}".encode()).hexdigest()
            chain.append(last)
        return tuple(chain)

    @property
    def digest(self) -> str:
        """Digest of all items, "" for an empty history."""
        return self.prefixes[-1] if self.items else ""

    @cached_property
    def turns(self) -> Mapping[str, tuple[Turn, Item]]:
        """Every turn with its item, by turn id."""
        turns = {turn.id: (turn, item) for item in self.items for turn in item.turns}
        # Read-only, since whoever is handed the history shares it.
        return MappingProxyType(turns)

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        """Names in order of first appearance."""
        return tuple(dict.fromkeys(turn.speaker for item in self.items for turn in item.turns))

    @classmethod
    def from_messages(cls, messages: Sequence[Mapping[str, Any]], id: str = "history") -> History:
        """Makes a one-session history from OpenAI-style messages (`role`, `content`, optional `name`, `time`).

        Args:
            messages: The messages; content may be a string or a list of parts, of which the text parts count.
            id: Id of the history.

        Raises:
            DataError: A message has no role, or content of another kind.
        """
        return cls(id=id, items=(_session(messages, 1),))

    @classmethod
    def parse(cls, value: Mapping[str, Any] | list[Any] | str | float | None, id: str = "history") -> History:
        """Reads a history from parsed JSON: its own form, a list of messages, or a list of such lists.

        Raises:
            DataError: None of the forms fits; the message says what was expected.
        """
        try:
            if isinstance(value, Mapping):
                found = cls.model_validate({"id": id, **value})
                if len(found.turns) < sum(len(item.turns) for item in found.items):
                    raise DataError(f"history {id!r}: uses a turn id twice; ids name single turns")
                return found
            if isinstance(value, list) and value and all(isinstance(part, list) for part in value):
                return cls(id=id, items=tuple(_session(part, n) for n, part in enumerate(value, 1)))
            if isinstance(value, list):
                return cls.from_messages(value, id)
        except ValidationError as error:
            raise DataError(f"history {id!r}: {misfit(error)}") from error
        raise DataError(f"history {id!r}: expected {{items: [...]}} or a list of messages, got {type(value).__name__}")

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Reads a history from a JSON file; see `parse` for the forms."""
        return cls.parse(read_json(path), id=Path(path).stem)

    def __iter__(self) -> Iterator[Item]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and (self.id, self.digest) == (other.id, other.digest)

    def __hash__(self) -> int:
        return hash((self.id, self.digest))

    def __repr__(self) -> str:
        return f"History({self.id!r}, {len(self.items)} items)"

    __str__ = __repr__


def _session(messages: Iterable[Mapping[str, Any] | JsonValue], number: int) -> Session:
    turns: list[Turn] = []
    time = None
    for message in messages:
        where = f"message {len(turns) + 1} of session {number}"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise DataError(f"{where} has no role; expected {{role, content}}")
        if "content" not in message and not message.get("tool_calls"):
            raise DataError(f"{where} has no content; expected {{role, content}}")
        text: Any = message.get("content")
        time = message.get("time") if time is None else time
        if isinstance(text, list):
            # What is no text, an image say, is passed over.
            parts = cast("list[Any]", text)
            texts = [cast("Any", part).get("text", "") if isinstance(part, dict) else None for part in parts]
            text = "\n".join(filter(None, texts)) if all(isinstance(each, str) for each in texts) else None
        elif text is None:
            text = ""
        if not isinstance(text, str):
            kind = type(message.get("content")).__name__
            raise DataError(f"session {number}: message content is {kind}; expected text or a list of parts")
        if text:
            fields = {"id": f"D{number}:{len(turns) + 1}", "speaker": _speaker(message)}
            turns.append(_made(Turn, {**fields, "text": text}, where))
    return _made(Session, {"id": f"D{number}", "time": time, "turns": tuple(turns)}, f"session {number}")


def _made(kind: type[Made], fields: dict[str, Any], where: str) -> Made:
    try:
        "".join(value for value in fields.values() if isinstance(value, str)).encode()
        return kind.model_validate(fields)
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: a text holds half of a surrogate pair; replace it by a whole character") from error
    except ValidationError as error:
        raise DataError(f"{where}: {misfit(error)}") from error


def _speaker(message: Mapping[str, Any]) -> Any:
    """Who speaks: the name, or the role. A name that is another role's is left out: who may say what is not a name."""
    role, name = message["role"], message.get("name") or ""
    if not isinstance(name, str):
        return name
    name = one_line(name)
    letters = re.sub(r"[\W_]+", "", folded(name))
    return name if letters and letters not in ROLES else role
