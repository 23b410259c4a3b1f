"""A history: the items of one user or conversation, in time order.

Example:
    >>> from mempiler.records import History
    >>> messages = [{"role": "user", "name": "Ann", "content": "I moved to Lisbon."}]
    >>> history = History.from_messages(messages)
    >>> [line for item in history for line in item.lines()]
    ['[D1:1] Ann: I moved to Lisbon.']
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from pydantic import JsonValue, ValidationError

from ..errors import DataError
from ..validation import validation_message
from .frozen import Record
from .items import AnyItem, Item, Session
from .json_input import read_json
from .messages import session_from_messages
from .turns import Turn


class History(Record):
    """The past of one user or conversation: items in time order.

    Two histories are equal if their ids and items are. DSPy and optimizers compare, hash and print
    examples often. So its digest is computed once, and its `repr` leaves out the items.
    """

    id: str
    items: tuple[AnyItem, ...] = ()

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """One digest per item: `prefixes[i]` identifies the items up to and including i."""
        digests: list[str] = []
        digest = ""
        for item in self.items:
            digest = hashlib.sha256(f"{digest}{item.digest}".encode()).hexdigest()
            digests.append(digest)
        return tuple(digests)

    @property
    def digest(self) -> str:
        """Digest of all items, "" for an empty history."""
        return self.prefixes[-1] if self.items else ""

    @cached_property
    def turns(self) -> Mapping[str, tuple[Turn, Item]]:
        """Every turn with its item, by turn id."""
        turns: dict[str, tuple[Turn, Item]] = {}
        for item in self.items:
            for turn in item.turns:
                turns[turn.id] = (turn, item)

        # Read-only, since all users of the history share it.
        return MappingProxyType(turns)

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        """Names in order of first appearance."""
        names = (turn.speaker for item in self.items for turn in item.turns)
        return tuple(dict.fromkeys(names))

    @classmethod
    def from_messages(
        cls,
        messages: Sequence[Mapping[str, object]],
        id: str = "history",  # noqa: A002 (the public name)
    ) -> History:
        """Make a history of one session from OpenAI-style messages.

        Args:
            messages: Each has a `role` and `content`, and may have a `name` and a `time`. Content
                is a text or a list of parts, of which the text parts are read.
            id: Id of the history.

        Raises:
            DataError: A message has no role, or content of another kind.
        """
        session = session_from_messages(messages, 1)
        return cls(id=id, items=(session,))

    @classmethod
    def parse(
        cls,
        value: Mapping[str, object] | JsonValue,
        id: str = "history",  # noqa: A002 (the public name)
    ) -> History:
        """Read a history from JSON: its own form, a list of messages, or a list of such lists.

        Args:
            value: The value of the JSON text. A list of lists of messages has a list per session.
            id: Id of the history, unless its own form has one.

        Raises:
            DataError: None of the forms fits; the message says what was expected.
        """
        if not isinstance(value, Mapping | list):
            kind = type(value).__name__
            raise DataError(
                f"history {id!r}: expected {{items: [...]}} or a list of messages, got {kind}"
            )

        try:
            if isinstance(value, Mapping):
                history = cls.model_validate({"id": id, **value})
            else:
                history = cls(id=id, items=_sessions_from_list(value))
        except ValidationError as error:
            raise DataError(f"history {id!r}: {validation_message(error)}") from error

        turn_count = sum(len(item.turns) for item in history.items)
        if len(history.turns) < turn_count:
            raise DataError(f"history {id!r}: uses a turn id twice; ids name single turns")
        return history

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read a history from a JSON file; see `parse` for the forms.

        Raises:
            DataError: The file cannot be read, or holds no history.
        """
        return cls.parse(read_json(path), id=Path(path).stem)

    def __iter__(self) -> Iterator[Item]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return False
        return self.id == other.id and self.digest == other.digest

    def __hash__(self) -> int:
        return hash((self.id, self.digest))

    def __repr__(self) -> str:
        return f"History({self.id!r}, {len(self.items)} items)"

    __str__ = __repr__


def _sessions_from_list(values: Sequence[JsonValue]) -> tuple[Session, ...]:
    """Return a session for every list of messages, or one session for a list of messages."""
    message_lists = [value for value in values if isinstance(value, list)]
    if not values or len(message_lists) < len(values):
        return (session_from_messages(values, 1),)

    sessions: list[Session] = []
    for number, messages in enumerate(message_lists, 1):
        sessions.append(session_from_messages(messages, number))
    return tuple(sessions)
