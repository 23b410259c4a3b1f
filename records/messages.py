"""Read OpenAI-style messages (`role`, `content`, optional `name` and `time`) as a session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from pydantic import JsonValue, ValidationError

from ..errors import DataError
from ..text import one_line
from ..validation import validation_message
from .frozen import Record
from .items import Session
from .normalize import normalize_text
from .turns import Turn

ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
"""Roles of messages. A name that reads like one of them is not used."""

RecordT = TypeVar("RecordT", bound=Record)


def session_from_messages(
    messages: Iterable[Mapping[str, object] | JsonValue], number: int
) -> Session:
    """Return a session with a turn for every message that has a text.

    Messages without text, such as calls of tools, are left out. The time of the session is the
    first time that a message has.

    Args:
        messages: The messages, in order.
        number: The number of the session: session 2 has the id D2, and turns D2:1, D2:2, ...

    Raises:
        DataError: A message has no role, or a content that is neither text nor a list of parts.
    """
    turns: list[Turn] = []
    session_time: object = None
    for position, message in enumerate(messages, 1):
        where = f"message {position} of session {number}"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise DataError(f"{where} has no role; expected {{role, content}}")
        if "content" not in message and not message.get("tool_calls"):
            raise DataError(f"{where} has no content; expected {{role, content}}")

        if session_time is None:
            session_time = message.get("time")

        text = _message_text(message, number)
        if text:
            turn_fields = {
                "id": f"D{number}:{len(turns) + 1}",
                "speaker": _message_speaker(message),
                "text": text,
            }
            turns.append(_validate_record(Turn, turn_fields, where))

    session_fields = {"id": f"D{number}", "time": session_time, "turns": tuple(turns)}
    return _validate_record(Session, session_fields, f"session {number}")


def _message_text(message: Mapping[str, object], number: int) -> str:
    """Return the text of a message; parts without text, such as images, add nothing.

    Args:
        message: The message.
        number: The number of its session, for the error.

    Raises:
        DataError: The content is neither text nor a list of parts.
    """
    content = message.get("content")
    kind = type(content).__name__
    if content is None:
        return ""
    if isinstance(content, str):
        return content

    if isinstance(content, list):
        texts = [_part_text(part) for part in cast("list[object]", content)]
        if None not in texts:
            return "\n".join(text for text in texts if text)

    raise DataError(
        f"session {number}: message content is {kind}; expected text or a list of parts"
    )


def _part_text(part: object) -> str | None:
    """Return the text of a part of a message, "" if it has none, None if it is not a part."""
    if not isinstance(part, dict):
        return None
    text = cast("dict[str, object]", part).get("text", "")
    return text if isinstance(text, str) else None


def _message_speaker(message: Mapping[str, object]) -> object:
    """Return the name of a message, or its role if it has no name that can be used.

    A name that reads like a role is not used: a user called "system" must not speak as the system.
    """
    role = message["role"]
    name = message.get("name")
    if not name:
        return role
    if not isinstance(name, str):
        # The validation of the turn refuses it and says where it is.
        return name

    name_on_one_line = one_line(name)
    letters = re.sub(r"[\W_]+", "", normalize_text(name_on_one_line))
    if not letters or letters in ROLES:
        return role
    return name_on_one_line


def _validate_record(
    record_type: type[RecordT], fields: Mapping[str, object], where: str
) -> RecordT:
    """Return a record with some fields.

    Raises:
        DataError: A field is not valid; the message begins with `where`.
    """
    try:
        # Half of a surrogate pair has no UTF-8 form: it could not be stored or sent to a model.
        for value in fields.values():
            if isinstance(value, str):
                value.encode()
        return record_type.model_validate(fields)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: a text holds half of a surrogate pair; replace it by a whole character"
        ) from error
    except ValidationError as error:
        raise DataError(f"{where}: {validation_message(error)}") from error
