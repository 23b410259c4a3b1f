"""What callers add: sessions and messages, checked and in the form in which they are stored.

Example:
    >>> from mempiler.memory.incoming_items import read_incoming_item
    >>> message = {"role": "user", "name": "Ada", "content": "I moved to Lisbon."}
    >>> incoming = read_incoming_item([message], "chat-17")
    >>> incoming.item.id, [turn.content for turn in incoming.item.turns]
    ('chat-17', ['I moved to Lisbon.'])
    >>> incoming.digest == read_incoming_item([message], "chat-17").digest
    True
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from ..errors import DataError, UserError
from ..records import Item, Session, Turn
from ..records.messages import session_from_messages
from ..records.timestamps import utc
from .metadata import Scalar, validate_metadata
from .names import check_id, valid_name

ItemT = TypeVar("ItemT", bound=Item)

Messages = Sequence[Mapping[str, object]]
"""OpenAI-style messages: `role`, `content`, and perhaps `name` and `time`."""


class IncomingItem(NamedTuple):
    """An item that a caller adds, and the digest that identifies it when it is added again."""

    item: Item
    """Without an id, it is given one when it is stored."""
    digest: str
    """Of what the caller gave; the time that undated messages get is not in it."""


def read_incoming_item(
    session: Item | Messages,
    session_id: str | None = None,
    metadata: Mapping[str, Scalar] | None = None,
) -> IncomingItem:
    """Return what a caller wants to store as a checked item, with a digest that identifies it.

    Args:
        session: An item, or messages, which become a session. If no message has a time, the session
            gets the current one.
        session_id: The id of the item; if None, the item keeps the id that it has.
        metadata: A few plain values by name, e.g. `{"channel": "phone"}`.

    Raises:
        DataError: It is neither an item nor a list of messages, or a message is malformed.
        UserError: The id is no name, or the metadata are malformed.
    """
    values = validate_metadata(metadata)
    if isinstance(session, Item):
        item = _with_id(session, session_id)
        return IncomingItem(item, item_digest(item, values))

    turns = turns_from_messages(session)
    first_time = next((turn.time for turn in turns if turn.time is not None), None)
    item = _with_id(Session(id="", time=first_time, turns=tuple(turns)), session_id)

    # The digest leaves out the current time: the same messages, added again later, must have the
    # same digest.
    digest = item_digest(item, values)
    if item.time is None:
        item = item.model_copy(update={"time": utc_now()})
    return IncomingItem(item, digest)


def turns_from_messages(messages: Messages) -> list[Turn]:
    """Return the messages as turns without ids; those without text are left out.

    Raises:
        DataError: They are no list, or a message is malformed.
    """
    # Callers without type checks may pass anything. A text or a dictionary could be iterated as
    # well, but is no list of messages.
    is_list = isinstance(messages, Sequence)  # pyright: ignore[reportUnnecessaryIsInstance]
    if isinstance(messages, str | Mapping) or not is_list:
        raise DataError(f"expected a session or a list of messages, got {type(messages).__name__}")

    turns: list[Turn] = []
    for message in messages:
        # `session_from_messages` reads a single time for all messages. Each message may have a time
        # of its own, so each is read as a session by itself.
        session = session_from_messages([message], 1)
        for turn in session.turns:
            turns.append(turn.model_copy(update={"id": "", "time": utc(session.time)}))
    return turns


def utc_now() -> datetime:
    """Return the current time in UTC, without a zone and without fractions of a second."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def storable_item(item: ItemT) -> ItemT:
    """Return an item in the form in which it is stored, after checking it.

    Its id is in Unicode's form NFC, and its times are in UTC.

    Raises:
        UserError: It has no turns, or an id or a speaker that cannot be stored.
    """
    valid_id = valid_name("session", item.id) if item.id else ""
    if not item.turns:
        raise UserError(f"session {item.id!r} has no turns; there is nothing to remember")
    check_turns(item.turns)

    turns = tuple(_with_utc_time(turn) for turn in item.turns)
    return item.model_copy(update={"id": valid_id, "time": utc(item.time), "turns": turns})


def check_turns(turns: Sequence[Turn]) -> None:
    """Refuse turns whose id or speaker cannot be stored, or does not fit on one line of a prompt.

    A turn without an id is fine: it gets one when it is stored.

    Raises:
        UserError: An id or a speaker is one that `check_id` refuses, e.g. for a line break.
    """
    for turn in turns:
        if turn.id:
            check_id("turn", turn.id)
        check_id("speaker", turn.speaker)


def item_digest(item: Item, metadata: Mapping[str, Scalar]) -> str:
    """Return a digest (SHA-256) of an item and its metadata, by which a repetition is recognized.

    Raises:
        UserError: See `record_json`.
    """
    content = record_json(item)
    if metadata:
        content += json.dumps(metadata, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def record_json(record: Item | Turn) -> str:
    """Return the JSON of an item or a turn.

    Raises:
        UserError: A text holds half of a character (a lone surrogate), which UTF-8 cannot encode.
    """
    try:
        return record.model_dump_json()
    except ValueError:
        raise UserError(
            f"{record.id!r}: a text holds half a character (a lone surrogate); use valid Unicode"
        ) from None


def _with_id(item: Item, session_id: str | None) -> Item:
    """Return an item with this id; if it is None, the item keeps its own id, which may be "".

    Raises:
        UserError: The id is no name.
    """
    if session_id is None and not item.id:
        return item

    chosen_id = item.id if session_id is None else session_id
    return item.model_copy(update={"id": valid_name("session", chosen_id)})


def _with_utc_time(turn: Turn) -> Turn:
    """Return a turn whose time is in UTC; a time without a zone is taken to be UTC already."""
    if turn.time is None or turn.time.tzinfo is None:
        return turn
    return turn.model_copy(update={"time": utc(turn.time)})
