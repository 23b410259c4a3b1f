"""Reads OpenAI-style messages (`role`, `content`, optional `name`, `time`) as a session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from pydantic import JsonValue, ValidationError

from ..errors import DataError
from ..text import one_line
from ..validation import validation_message
from .frozen import Record
from .items import Session
from .normalize import normalize_text
from .turns import Turn

ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
"""Roles of messages: no name may pass for one."""

RecordT = TypeVar("RecordT", bound=Record)


def session_from_messages(messages: Iterable[Mapping[str, Any] | JsonValue], number: int) -> Session:
    """Return the session of some messages, whose time is the first that any of them has.

    Messages without text, e.g. calls of tools, are left out.

    Args:
        messages: The messages, in order.
        number: Which session it is: session 2 has the id D2, and its turns D2:1, D2:2, ...

    Raises:
        DataError: A message has no role, or a content that is neither text nor a list of parts.
    """
    turns: list[Turn] = []
    time = None
    for position, message in enumerate(messages, 1):
        where = f"message {position} of session {number}"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise DataError(f"{where} has no role; expected {{role, content}}")
        if "content" not in message and not message.get("tool_calls"):
            raise DataError(f"{where} has no content; expected {{role, content}}")

        if time is None:
            time = message.get("time")

        text = _text_of(message, number)
        if text:
            fields = {"id": f"D{number}:{len(turns) + 1}", "speaker": _speaker_of(message), "text": text}
            turns.append(_validated(Turn, fields, where))

    fields = {"id": f"D{number}", "time": time, "turns": tuple(turns)}
    return _validated(Session, fields, f"session {number}")


def _text_of(message: Mapping[str, Any], number: int) -> str:
    """Return the text of a message of a session; parts that are no text, e.g. images, are passed over."""
    content: object = message.get("content")
    kind = type(content).__name__
    if content is None:
        return ""
    if isinstance(content, str):
        return content

    if isinstance(content, list):
        texts = [_text_of_part(part) for part in cast("list[object]", content)]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(text for text in texts if text)

    raise DataError(f"session {number}: message content is {kind}; expected text or a list of parts")


def _text_of_part(part: object) -> Any:
    """Return the text of one part of a message, "" where it has none, and None where it is no part."""
    if not isinstance(part, dict):
        return None
    return cast("dict[str, Any]", part).get("text", "")


def _speaker_of(message: Mapping[str, Any]) -> Any:
    """Return the name of who speaks, or the role where there is no name.

    A name that reads as a role is not used: whoever is called "system" must not speak as the system.
    """
    role = message["role"]
    name = message.get("name")
    if not name:
        return role
    if not isinstance(name, str):
        # The validation of the turn refuses it, and says where it is.
        return name

    name = one_line(name)
    letters = re.sub(r"[\W_]+", "", normalize_text(name))
    if not letters or letters in ROLES:
        return role
    return name


def _validated(kind: type[RecordT], fields: dict[str, Any], where: str) -> RecordT:
    """Return a record of some fields.

    Raises:
        DataError: A field does not fit; the message begins with `where`.
    """
    texts = [value for value in fields.values() if isinstance(value, str)]
    try:
        # Half of a surrogate pair has no UTF-8 form: it could neither be stored nor sent to a model.
        "".join(texts).encode()
        return kind.model_validate(fields)
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: a text holds half of a surrogate pair; replace it by a whole character") from error
    except ValidationError as error:
        raise DataError(f"{where}: {validation_message(error)}") from error
