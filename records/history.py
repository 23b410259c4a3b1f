"""The history of one user or conversation, and the JSON it is read from."""

from __future__ import annotations

import hashlib
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError

from ..errors import DataError, misfit, one_line
from .folding import folded
from .items import AnyItem, Item, Record, Session, Turn
from .json_input import read_json

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

    def __copy__(self) -> History:
        return self

    def __deepcopy__(self, memo: object = None) -> History:
        return self


def _session(messages: Iterable[Mapping[str, Any] | JsonValue], number: int) -> Session:
    turns: list[Turn] = []
    time = None
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise DataError(f"message {len(turns) + 1} of session {number} has no role; expected {{role, content}}")
        if "content" not in message and not message.get("tool_calls"):
            raise DataError(f"message {len(turns) + 1} of session {number} has no content; expected {{role, content}}")
        text = _message_text(message.get("content"), number)
        time = message.get("time") if time is None else time
        if text:
            fields = {"id": f"D{number}:{len(turns) + 1}", "speaker": _speaker(message)}
            turns.append(_made(Turn, {**fields, "text": text}, f"message {len(turns) + 1} of session {number}"))
    return _made(Session, {"id": f"D{number}", "time": time, "turns": tuple(turns)}, f"session {number}")


def _made(kind: type[Made], fields: dict[str, Any], where: str) -> Made:
    """A record.

    Raises:
        DataError: A field does not fit, e.g. a time that is no date, or a text that is no Unicode.
    """
    try:
        "".join(value for value in fields.values() if isinstance(value, str)).encode()
        return kind.model_validate(fields)
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: a text holds half of a surrogate pair; replace it by a whole character") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise DataError(f"{where}: {name} {reprlib.repr(fields.get(name))}: {first['msg']}") from error


def _speaker(message: Mapping[str, Any]) -> Any:
    """Who speaks: the name, or the role. A name that is another role's is left out: who may say what is not a name."""
    role, name = message["role"], message.get("name") or ""
    if not isinstance(name, str):
        return name
    name = one_line(name)
    letters = re.sub(r"[\W_]+", "", folded(name))
    return name if letters and letters not in ROLES else role


def _message_text(content: JsonValue, number: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        # What is no text, an image say, is passed over.
        texts = [part.get("text", "") if isinstance(part, Mapping) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(str(text) for text in texts if text)
    raise DataError(f"session {number}: message content is {type(content).__name__}; expected text or a list of parts")
