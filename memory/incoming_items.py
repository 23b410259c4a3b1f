"""What callers add: sessions and messages, checked and in the form in which they are stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from ..errors import DataError, UserError
from ..records import History, Item, Session, Turn
from ..records.timestamps import utc
from .metadata import Scalar, validate_metadata
from .names import check_id, valid_name

I = TypeVar("I", bound=Item)  # noqa: E741

Messages = Sequence[Mapping[str, Any]]
"""OpenAI-style messages: `role`, `content`, and perhaps `name` and `time`."""


def item_and_digest(
    session: Item | Messages, id: str | None = None, metadata: Mapping[str, Scalar] | None = None
) -> tuple[Item, str]:
    """An item with an id (or "") and a time, and the digest of what was given: the time of the call is not in it.

    Raises:
        DataError: It is neither an item nor a list of messages, or a message is malformed.
        UserError: The id is no name, or the metadata are malformed.
    """
    said = {} if metadata is None else validate_metadata(metadata)
    if isinstance(session, Item):
        given = session.id if id is None else id
        item = session.model_copy(update={"id": valid_name("session", given) if given or id is not None else ""})
        return item, item_digest(item, said)
    turns = turns_from_messages(session)
    time = next((turn.time for turn in turns if turn.time), None)
    item = Session(id=valid_name("session", id) if id is not None else "", time=time, turns=tuple(turns))
    return (item if time else item.model_copy(update={"time": utc_now()})), item_digest(item, said)


def turns_from_messages(messages: Messages) -> list[Turn]:
    """Turns without ids from messages, or a `DataError`; those without text are left out."""
    # Callers without types pass anything.
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"expected a session or a list of messages, got {type(messages).__name__}")
    sessions = [History.from_messages([message]).items[0] for message in messages]
    return [
        turn.model_copy(update={"id": "", "time": utc(session.time)}) for session in sessions for turn in session.turns
    ]


def utc_now() -> datetime:
    """The time of day that undated messages get: UTC, to the second."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def storable_item(item: I) -> I:
    """An item as it is stored, or a `UserError`: its id in Unicode's form NFC, its times in UTC without a zone."""
    id = valid_name("session", item.id) if item.id else ""
    if not item.turns:
        raise UserError(f"session {item.id!r} has no turns; there is nothing to remember")
    check_turns(item.turns)
    turns = tuple(
        turn.model_copy(update={"time": utc(turn.time)}) if turn.time and turn.time.tzinfo else turn
        for turn in item.turns
    )
    return item.model_copy(update={"id": id, "time": utc(item.time), "turns": turns})


def check_turns(turns: Sequence[Turn]) -> None:
    """Refuses turns whose id or speaker would not stay on its line of a prompt, as a `UserError`."""
    for turn in turns:
        if turn.id:
            check_id("turn", turn.id)
        check_id("speaker", turn.speaker)


def item_digest(item: Item, metadata: Mapping[str, Any]) -> str:
    """sha256 of an item's JSON, and of what the caller says of it."""
    said = json.dumps(metadata, sort_keys=True) if metadata else ""
    return hashlib.sha256((record_json(item) + said).encode()).hexdigest()


def record_json(record: Item | Turn) -> str:
    """JSON of a record; a text with half a character is a `UserError`."""
    try:
        return record.model_dump_json()
    except ValueError:
        raise UserError(f"{record.id!r}: a text holds half a character (a lone surrogate); use valid Unicode") from None
