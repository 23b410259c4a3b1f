"""What comes in, as items: OpenAI-style messages become sessions, undated ones of now.

Example:
    >>> from mempiler.memory.incoming import incoming
    >>> item, digest = incoming([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}])
    >>> item.turns[0].speaker, item.id
    ('Ada', '')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..errors import DataError
from ..records import History, Item, Session, Turn
from .store_rows import digest_of

Messages = Sequence[Mapping[str, Any]]
"""OpenAI-style messages: `role`, `content`, and perhaps `name` and `time`."""


def incoming(session: Item | Messages, id: str | None = None) -> tuple[Item, str]:
    """An item with an id (or "") and a time, and the digest of what was given: the time of the call is not in it.

    Raises:
        DataError: It is neither an item nor a list of messages, or a message is malformed.
    """
    if isinstance(session, Item):
        item = session if id is None else session.model_copy(update={"id": id})
        return item, digest_of(item)
    turns = turns_of(session)
    time = next((turn.time for turn in turns if turn.time), None)
    item = Session(id=id or "", time=time, turns=tuple(turns))
    return (item if time else item.model_copy(update={"time": now()})), digest_of(item)


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
            found.append(turn.model_copy(update={"id": "", "time": _plain(session.time)}))
    return found


def now() -> datetime:
    """The time of day that undated messages get: UTC, to the second."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def _plain(time: datetime | None) -> datetime | None:
    """A time without a zone, as UTC: times with and without one cannot be compared."""
    return time.astimezone(UTC).replace(tzinfo=None) if time is not None and time.tzinfo else time
