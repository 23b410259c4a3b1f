"""What memories are made from and what comes back out of them: the records every room of Recollect shares.

    History ── items in time order ──> Session ── turns ──> Turn
    Context ── ranked items ──> Hit (text, score, ids of the turns it rests on)
    Failure    one thing that went wrong with one item or question; data, not an exception

Histories and everything in them are frozen: a memory that was written once for a history stays right for it.
A history is compared, hashed and printed by its content digest, so that copying one into a thousand examples,
or an optimizer printing its training set, costs nothing.

Example:
    >>> history = History.from_messages([{"role": "user", "content": "I moved to Lisbon."}], id="ada")
    >>> history.items[0].turns[0].id
    'D1:1'
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import DataError


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

    @property
    def content(self) -> str:
        """The text, and the image's caption in words."""
        image = f"[shares an image of {self.caption}]" if self.caption else ""
        return " ".join(part for part in (self.text, image) if part)

    def line(self, time: datetime | None = None) -> str:
        """Renders the turn on one line: `[D1:3] (8 May 2023, Monday 13:56) Ann: text`."""
        when = f" ({format_time(time)})" if time else ""
        return f"[{self.id}]{when} {self.speaker}: {' '.join(self.content.split())}"


class Session(Record):
    """One conversation sitting: turns that share a date."""

    kind: Literal["session"] = "session"
    id: str
    time: datetime | None = None
    turns: tuple[Turn, ...] = ()

    @cached_property
    def digest(self) -> str:
        """sha256 of the session's JSON."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def lines(self) -> list[str]:
        """Every turn on a line of its own, each with the session's date."""
        return [turn.line(self.time) for turn in self.turns]


Item = Session
"""An item of a history. Sessions today; what a method is given one at a time."""


class History(Record):
    """The past of one user or conversation: items in time order.

    Two histories are equal when their ids and items are.
    """

    id: str
    items: tuple[Item, ...] = ()

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """Chain of digests, one per item: `prefixes[i]` names the items up to and including i."""
        chain, last = [], ""
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
        return {turn.id: (turn, item) for item in self.items for turn in item.turns}

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
    def parse(cls, value: Any, id: str = "history") -> History:
        """Reads a history from parsed JSON: its own form, a list of messages, or a list of such lists.

        Raises:
            DataError: None of the forms fits; the message says what was expected.
        """
        try:
            if isinstance(value, Mapping):
                return cls.model_validate({"id": id, **value})
            if isinstance(value, list) and value and all(isinstance(part, list) for part in value):
                return cls(id=id, items=tuple(_session(part, n) for n, part in enumerate(value, 1)))
            if isinstance(value, list):
                return cls.from_messages(value, id)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise DataError(f"history {id!r}: {where}: {first['msg']}") from error
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

    def __copy__(self) -> History:
        return self

    def __deepcopy__(self, memo: object = None) -> History:
        return self


class Hit(Record):
    """One thing found in a memory."""

    id: str
    """Id of the memory entry."""
    text: str
    score: float = 0.0
    sources: tuple[str, ...] = ()
    """Ids of the turns the entry rests on."""
    time: datetime | None = None
    speaker: str | None = None

    def line(self) -> str:
        """Renders the hit on one line, as `Turn.line` does: `[id] (date) text`."""
        when = f" ({format_time(self.time)})" if self.time else ""
        return f"[{self.id}]{when} {self.text}"


class Context(Record):
    """What a memory recalls for one query: ranked hits, and notes such as a summary."""

    hits: tuple[Hit, ...] = ()
    notes: dict[str, str] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    """What the recall took, e.g. {"calls": 4, "facts": 22}; no prompt shows it."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Source turn ids in rank order, each once."""
        return tuple(dict.fromkeys(source for hit in self.hits for source in hit.sources))

    def text(self) -> str:
        """The hits, one per line, then the notes."""
        notes = [f"{name}: {note}" for name, note in self.notes.items() if note]
        return "\n".join([hit.line() for hit in self.hits] + notes)


class Failure(Record):
    """Something that failed for one item or one question, kept and counted instead of raised."""

    kind: Literal["parse", "endpoint", "refused", "error"]
    where: str
    message: str


def format_time(time: datetime) -> str:
    """A date as people and prompts read it: `8 May 2023, Monday 13:56` (no clock at midnight)."""
    clock = f" {time:%H:%M}" if (time.hour, time.minute) != (0, 0) else ""
    return f"{time.day} {time:%B %Y}, {time:%A}{clock}"


def estimate_tokens(text: str) -> int:
    """Length of a text in tokens without a tokenizer: four characters a token, 1.5 tokens a CJK character."""
    wide = sum(1 for char in text if "\u3000" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7af")
    return round((len(text) - wide) / 4 + wide * 1.5)


def read_json(path: str | Path) -> Any:
    """Reads a JSON file.

    Raises:
        DataError: The file is missing, empty, unreadable or no JSON; the message says which and where.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    if not text.strip():
        raise DataError(f"{path}: the file is empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error


def _session(messages: Iterable[Mapping[str, Any]], number: int) -> Session:
    turns, time = [], None
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise DataError(f"message {len(turns) + 1} of session {number} has no role; expected {{role, content}}")
        text = _message_text(message.get("content"), number)
        time = time or message.get("time")
        if text:
            speaker = str(message.get("name") or message["role"])
            turns.append(Turn(id=f"D{number}:{len(turns) + 1}", speaker=speaker, text=text))
    try:
        return Session.model_validate({"id": f"D{number}", "time": time, "turns": tuple(turns)})
    except ValidationError as error:
        raise DataError(f"session {number}: time {time!r} is not an ISO date") from error


def _message_text(content: Any, number: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    raise DataError(f"session {number}: message content is {type(content).__name__}; expected text or a list of parts")
