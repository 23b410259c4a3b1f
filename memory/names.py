"""Names of tenants, users, sessions and turns, and the texts that a store can hold."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

from ..errors import UserError

MAX_KEY = 512
"""Longest tenant, user, session or turn id, in characters."""
MAX_BYTES = 800
"""Longest of these in UTF-8: three of them must fit into one entry of PostgreSQL's indexes."""
ADDRESSABLE = r"^[\w@:+=~|-][\w.@:+=~|-]*$"
"""Names of users and sessions over HTTP. The store takes any text; letters, digits and these signs need no escaping in
an address, and cannot be taken for a path, a query or code."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters without a shape that Unicode counts as letters, marks or signs."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def valid_name(what: str, value: object) -> str:
    """A tenant, user or session id as it is stored: two spellings of one name are one name (Unicode's form NFC).

    Raises:
        UserError: See `check_key`; or it holds a character that cannot be seen, so that two names would look the same.
    """
    if isinstance(value, str):
        value = unicodedata.normalize("NFC", value)
    check_id(what, value)
    hidden = next((char for char in str(value) if char in _BLANK or unicodedata.category(char) == "Cf"), None)
    if hidden is not None:
        raise UserError(
            f"{what} {value!a:.100} holds a character that cannot be seen (U+{ord(hidden):04X}); leave it out"
        )
    return str(value)


def check_id(what: str, value: object) -> None:
    """Refuses ids that a database or a line of a prompt cannot hold; everything else is data, however it looks.

    Raises:
        UserError: It is empty, longer than `MAX_KEY`, or holds a control character or half a character.
    """
    if not isinstance(value, str) or not value:
        raise UserError(f"{what} {value!r:.100} must be a text that is not empty")
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in value[: MAX_KEY + 1]):
        raise UserError(
            f"{what} {value!a:.100} holds a control character or half a character; use one line of plain text"
        )
    if len(value) > MAX_KEY or len(value.encode()) > MAX_BYTES:
        raise UserError(
            f"{what} {value[:40]!r}... has {len(value)} characters; use at most {MAX_KEY}, {MAX_BYTES} bytes"
        )


def storable(text: str) -> str:
    """A text that a store can hold; one with NUL or half a character is a `UserError`."""
    if _UNSTORABLE.search(text):
        raise UserError(f"the text {text!a:.60} holds NUL or half a character; use plain text")
    return text


Storable = Annotated[str, AfterValidator(storable)]
"""A text that is checked where it comes from outside."""


def plain_line(what: str, value: object, most: int) -> str:
    """A text on one line, as a store and a prompt can hold it; a `UserError` if it is empty, too long, or no text."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{what} {value!a:.60} must be a text that is not empty")
    if len(value) > most:
        raise UserError(f"{what} has {len(value)} characters; use at most {most}")
    return " ".join(storable(value).split())
