"""A history: the items of one user or conversation, in time order.

Example:
    >>> from mempiler.records import History
    >>> history = History.from_messages([{"role": "user", "name": "Ann", "content": "I moved to Lisbon."}])
    >>> [line for item in history for line in item.lines()]
    ['[D1:1] Ann: I moved to Lisbon.']
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from ..errors import DataError
from ..validation import validation_message
from .frozen import Record
from .items import AnyItem, Item
from .json_input import read_json
from .messages import session_from_messages
from .turns import Turn


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
        digest = ""
        for item in self.items:
            digest = hashlib.sha256(f"{digest}{item.digest}".encode()).hexdigest()
            chain.append(digest)
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
        names = (turn.speaker for item in self.items for turn in item.turns)
        return tuple(dict.fromkeys(names))

    @classmethod
    def from_messages(cls, messages: Sequence[Mapping[str, Any]], id: str = "history") -> History:
        """Make a one-session history from OpenAI-style messages (`role`, `content`, optional `name`, `time`).

        Args:
            messages: The messages; content may be a string or a list of parts, of which the text parts count.
            id: Id of the history.

        Raises:
            DataError: A message has no role, or content of another kind.
        """
        return cls(id=id, items=(session_from_messages(messages, 1),))

    @classmethod
    def parse(cls, value: Mapping[str, Any] | list[Any] | str | float | None, id: str = "history") -> History:
        """Read a history from parsed JSON: its own form, a list of messages, or a list of such lists.

        Raises:
            DataError: None of the forms fits; the message says what was expected.
        """
        if not isinstance(value, Mapping | list):
            kind = type(value).__name__
            raise DataError(f"history {id!r}: expected {{items: [...]}} or a list of messages, got {kind}")
        try:
            if isinstance(value, Mapping):
                history = cls.model_validate({"id": id, **value})
            elif value and all(isinstance(part, list) for part in value):
                sessions = [session_from_messages(part, number) for number, part in enumerate(value, 1)]
                history = cls(id=id, items=tuple(sessions))
            else:
                history = cls.from_messages(value, id)
        except ValidationError as error:
            raise DataError(f"history {id!r}: {validation_message(error)}") from error

        if len(history.turns) < sum(len(item.turns) for item in history.items):
            raise DataError(f"history {id!r}: uses a turn id twice; ids name single turns")
        return history

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read a history from a JSON file; see `parse` for the forms."""
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
