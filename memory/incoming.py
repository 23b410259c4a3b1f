"""What comes in, as items: OpenAI-style messages become sessions, undated ones of now.

Example:
    >>> from mempiler.memory.incoming import incoming
    >>> item, digest = incoming([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}])
    >>> item.turns[0].speaker, item.id
    ('Ada', '')
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

from ..errors import DataError, UserError
from ..records import History, Item, Session, Turn
from ..records.moment import utc
from .metadata import Scalar, checked_metadata
from .stored import check_key, name_of

I = TypeVar("I", bound=Item)  # noqa: E741

Messages = Sequence[Mapping[str, Any]]
"""OpenAI-style messages: `role`, `content`, and perhaps `name` and `time`."""


def incoming(
    session: Item | Messages, id: str | None = None, metadata: Mapping[str, Scalar] | None = None
) -> tuple[Item, str]:
    """An item with an id (or "") and a time, and the digest of what was given: the time of the call is not in it.

    Args:
        session: What was said.
        id: Names it.
        metadata: What the caller says of it; a part of what was given.

    Raises:
        DataError: It is neither an item nor a list of messages, or a message is malformed.
        UserError: The id is no name.
    """
    said = checked_metadata(metadata)
    if isinstance(session, Item):
        given = session.id if id is None else id
        item = session.model_copy(update={"id": name_of("session", given) if given or id is not None else ""})
        return item, digest_of(item, said)
    turns = turns_of(session)
    time = next((turn.time for turn in turns if turn.time), None)
    item = Session(id=name_of("session", id) if id is not None else "", time=time, turns=tuple(turns))
    return (item if time else item.model_copy(update={"time": now()})), digest_of(item, said)


def turns_of(messages: Messages) -> list[Turn]:
    """Turns without ids from messages; those without text are left out.

    Raises:
        DataError: They are no messages.
    """
    # Callers without types pass anything.
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"expected a session or a list of messages, got {type(messages).__name__}")
    found: list[Turn] = []
    for message in messages:
        (session,) = History.from_messages([message]).items
        for turn in session.turns:
            found.append(turn.model_copy(update={"id": "", "time": utc(session.time)}))
    return found


def now() -> datetime:
    """The time of day that undated messages get: UTC, to the second."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def checked(item: I) -> I:
    """An item as it is stored: its id in Unicode's form NFC, its times in UTC without a zone.

    Raises:
        UserError: No turns, or an id or a text that is no plain text.
    """
    id = name_of("session", item.id) if item.id else ""
    if not item.turns:
        raise UserError(f"session {item.id!r} has no turns; there is nothing to remember")
    check_turns(item.turns)
    turns = tuple(
        turn.model_copy(update={"time": utc(turn.time)}) if turn.time and turn.time.tzinfo else turn
        for turn in item.turns
    )
    return item.model_copy(update={"id": id, "time": utc(item.time), "turns": turns})


def check_turns(turns: Sequence[Turn]) -> None:
    """Refuses turns whose id or speaker would not stay on its line of a prompt.

    Raises:
        UserError: One is no line of plain text.
    """
    for turn in turns:
        if turn.id:
            check_key("turn", turn.id)
        check_key("speaker", turn.speaker)


def digest_of(item: Item, metadata: Mapping[str, Any] = MappingProxyType({})) -> str:
    """sha256 of an item's JSON, and of what the caller says of it."""
    said = json.dumps(metadata, sort_keys=True) if metadata else ""
    return hashlib.sha256((json_of(item) + said).encode()).hexdigest()


def json_of(record: Item | Turn) -> str:
    """JSON of a record.

    Raises:
        UserError: A text holds half a character.
    """
    try:
        return record.model_dump_json()
    except ValueError:
        raise UserError(f"{record.id!r}: a text holds half a character (a lone surrogate); use valid Unicode") from None
