"""Many sessions of many users at once: JSON lines, each stored or refused with its number and the reason.

    {"user": "ada", "id": "chat-3", "messages": [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}]}

Lines are read as they come and stored a batch at a time, in one transaction each, so an import of any length takes the
memory of a batch. Every line has an id, and may have `metadata`. A session is stored once under its id: an import that
was cut off, however, is repeated as a whole, and what was stored is `known`.

Limits: a batch that was not stored whole when the process was killed is not stored at all; of refused lines the first
`MOST_TOLD` are told one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ..errors import UserError
from ..memory.incoming import incoming
from ..memory.metadata import Scalar
from ..memory.store import Store
from ..memory.stored import Added, Owner
from ..records import Item
from ..records.json_input import decode
from .bodies import Name, NewSession
from .refusals import malformed

BATCH = 64
"""Most lines of a transaction."""
BATCH_BYTES = 1_000_000
"""Bytes after which a batch is full."""
MOST_TOLD = 1000
MOST_LINE, MOST_TURNS = 100_000_000, 1_000_000
"""Bytes of a line and messages of a session that come from a file of this machine."""
EXAMPLE: JsonValue = {
    "user": "ada",
    "id": "chat-3",
    "messages": [{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}],
}


class ImportedSession(NewSession):
    """One line of an import."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})
    user: Name
    id: Name  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    """Makes the import repeatable: the same session under the same id is stored once."""


class RefusedLine(BaseModel):
    """A line that was not stored."""

    line: int = Field(description="Its number, from 1.", examples=[3])
    reason: str = Field(examples=["messages.0.content: Field required"])


class Imported(BaseModel):
    """What became of the lines of an import."""

    stored: int = Field(0, description="Sessions that are new.")
    known: int = Field(0, description="Sessions that were stored before.")
    refused: int = Field(0, description="Lines that were not stored.")
    refusals: Annotated[list[RefusedLine], Field(description=f"The first {MOST_TOLD} of these.")] = []


class Lines:
    """Cuts bytes that come in pieces into lines, and keeps no more than one of a bounded length.

    Args:
        most: Bytes of a line.
    """

    def __init__(self, most: int) -> None:
        self._most, self._number = most, 0
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes | None]]:
        """The lines that end in a piece, by number; None for one that is too long."""
        *ended, rest = piece.split(b"\n")
        for end in ended:
            self._keep(end)
            yield self._line()
        self._keep(rest)

    def end(self) -> Iterator[tuple[int, bytes | None]]:
        """What stands behind the last end of a line."""
        if self._size:
            yield self._line()

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._most:
            self._parts.append(part)

    def _line(self) -> tuple[int, bytes | None]:
        found = b"".join(self._parts) if self._size <= self._most else None
        self._parts, self._size, self._number = [], 0, self._number + 1
        return self._number, found


class Importing:
    """One import into the users of a tenant.

    Args:
        store: Where sessions go.
        tenant: Whose users.
        most_line: Bytes of a line.
        most_turns: Messages of a session.
    """

    def __init__(self, store: Store, tenant: str, most_line: int, most_turns: int) -> None:
        self._store, self._tenant, self._most_turns = store, tenant, most_turns
        self._since = store.forgets()
        self._most_line = most_line
        self._batch: list[tuple[int, bytes | None]] = []
        self._size = 0
        self.found = Imported.model_validate({})

    @property
    def full(self) -> bool:
        """Whether what was taken is to be stored before more is."""
        return len(self._batch) >= BATCH or self._size >= BATCH_BYTES

    def take(self, number: int, line: bytes | None) -> None:
        """Takes a line; None stands for one that was too long."""
        if line is None or line.strip():
            self._batch.append((number, line))
            self._size += len(line or b"")

    def store(self) -> None:
        """Stores what was taken, in one transaction.

        Raises:
            StoreError: Nothing of it was stored.
        """
        numbers: list[int] = []
        read: list[tuple[Owner, Item, str, Mapping[str, Scalar]]] = []
        refused: list[RefusedLine] = []
        for number, line in self._batch:
            try:
                read.append(self._session(line))
                numbers.append(number)
            except UserError as error:
                refused.append(RefusedLine(line=number, reason=str(error)))
        added = self._store.add_many(read, self._since)
        for number, one in zip(numbers, added, strict=True):
            if not isinstance(one, Added):
                refused.append(RefusedLine(line=number, reason=str(one)))
            elif one.new:
                self.found.stored += 1
            else:
                self.found.known += 1
        self.found.refused += len(refused)
        self.found.refusals += sorted(refused, key=lambda one: one.line)[: MOST_TOLD - len(self.found.refusals)]
        self._batch, self._size = [], 0

    def _session(self, line: bytes | None) -> tuple[Owner, Item, str, Mapping[str, Scalar]]:
        """What a line holds.

        Raises:
            UserError: It cannot be stored.
        """
        if line is None:
            raise UserError(f"the line has more than {self._most_line} bytes")
        try:
            value = decode(line.decode())
            if not isinstance(value, dict):
                raise UserError("expected a JSON object")
            found = ImportedSession.model_validate(value)
        except ValidationError as error:
            raise UserError(malformed(error.errors()).message) from error
        except json.JSONDecodeError as error:
            raise UserError(f"no JSON: {error.msg}") from error
        except ValueError as error:
            raise UserError(str(error)) from error
        if len(found.messages) > self._most_turns:
            raise UserError(f"{len(found.messages)} messages are too many; send at most {self._most_turns}")
        messages = [message.model_dump(exclude_none=True) for message in found.messages]
        metadata = found.metadata or {}
        return Owner(found.user, self._tenant), *incoming(messages, found.id, metadata), metadata


def import_lines(store: Store, tenant: str, pieces: Iterable[bytes]) -> Imported:
    """Imports lines that come in pieces.

    Args:
        store: Where sessions go.
        tenant: Whose users.
        pieces: Bytes, cut anywhere.

    Raises:
        StoreError: The lines before are stored, but for those of the last batch.
    """
    importing, lines = Importing(store, tenant, MOST_LINE, MOST_TURNS), Lines(MOST_LINE)
    for piece in pieces:
        for number, line in lines.feed(piece):
            importing.take(number, line)
            if importing.full:
                importing.store()
    for number, line in lines.end():
        importing.take(number, line)
    importing.store()
    return importing.found
