"""Names of tenants, users, sessions and turns, and the texts that a store can hold.

A tenant, user or session is named by its user: such a name is shown, compared and typed again, so
`valid_name` also refuses what cannot be seen. The id of a turn or the name of a speaker may come
from any data file: `check_id` asks only that it can be stored and stays on one line.

Example:
    >>> from mempiler.memory.names import plain_line, valid_name
    >>> valid_name("user", "ada")
    'ada'
    >>> plain_line("author", "  Ada   Lovelace ", max_length=200)
    'Ada Lovelace'
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

from ..errors import UserError

MAX_ID_LENGTH = 512
"""The longest tenant, user, session or turn id, in characters."""
MAX_ID_BYTES = 800
"""The longest of these ids, in bytes of UTF-8: three of them fit into one entry of PostgreSQL's
indexes."""
MAX_ENTRY_LENGTH = 10_000
"""The longest text that a user may give an entry, in characters."""
MAX_AUTHOR_LENGTH = 200
"""The longest name of who made an amendment, in characters."""
HTTP_NAME_PATTERN = r"^[\w@:+=~|-][\w.@:+=~|-]*$"
"""Names of users and sessions over HTTP. A store takes any text; letters, digits and these signs
need no escaping in an address, and cannot be taken for a path, a query or code."""

_BLANK_CHARACTERS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
)
"""Characters without a shape that Unicode counts as letters, marks or signs."""
_FORMAT_CATEGORY = "Cf"
"""Unicode's category of characters that are never seen, such as the zero-width joiner."""
_UNPRINTABLE_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Control characters, halves of surrogate pairs, and separators of lines and paragraphs."""
_UNSTORABLE_CHARACTER = re.compile("[\0\ud800-\udfff]")
"""NUL, which PostgreSQL refuses, and half of a surrogate pair, which is not valid UTF-8."""


def valid_name(kind: str, name: object) -> str:
    """Check the name of a tenant, a user or a session.

    It is returned in Unicode's form NFC, in which an accented letter has only one spelling.

    Args:
        kind: What is named, for the message, e.g. "user".
        name: The name.

    Raises:
        UserError: `check_id` refuses it, or it holds an invisible character, with which two
            different names would look the same.
    """
    if isinstance(name, str):
        name = unicodedata.normalize("NFC", name)
    check_id(kind, name)

    text = str(name)
    for character in text:
        is_format_character = unicodedata.category(character) == _FORMAT_CATEGORY
        if is_format_character or character in _BLANK_CHARACTERS:
            raise UserError(
                f"{kind} {text!a:.100} holds a character that cannot be seen "
                f"(U+{ord(character):04X}); leave it out"
            )
    return text


def check_id(kind: str, value: object) -> None:
    """Refuse an id that a database cannot hold, or that does not fit on one line of a prompt.

    Args:
        kind: What the id names, for the message, e.g. "turn".
        value: The id.

    Raises:
        UserError: It is empty, longer than `MAX_ID_LENGTH` or `MAX_ID_BYTES`, or holds a control
            character or half of a character (a lone surrogate).
    """
    if not isinstance(value, str) or not value:
        raise UserError(f"{kind} {value!r:.100} must be a text that is not empty")

    # A text that is too long is refused anyway, so only its beginning is looked at.
    for character in value[: MAX_ID_LENGTH + 1]:
        if unicodedata.category(character) in _UNPRINTABLE_CATEGORIES:
            raise UserError(
                f"{kind} {value!a:.100} holds a control character or half a character; "
                "use one line of plain text"
            )

    if len(value) > MAX_ID_LENGTH or len(value.encode()) > MAX_ID_BYTES:
        raise UserError(
            f"{kind} {value[:40]!r}... has {len(value)} characters; "
            f"use at most {MAX_ID_LENGTH}, {MAX_ID_BYTES} bytes"
        )


def storable_text(text: str) -> str:
    """Return a text unchanged if a store can hold it.

    Raises:
        UserError: It holds NUL or half of a character (a lone surrogate).
    """
    if _UNSTORABLE_CHARACTER.search(text):
        raise UserError(f"the text {text!a:.60} holds NUL or half a character; use plain text")
    return text


StorableText = Annotated[str, AfterValidator(storable_text)]
"""The type of a field whose text comes from outside and is checked by `storable_text`."""


def plain_line(kind: str, value: object, max_length: int) -> str:
    """Check a text from outside, and return it on one line, with single spaces.

    Args:
        kind: What the text is, for the message, e.g. "author".
        value: The text.
        max_length: The most characters that it may have.

    Raises:
        UserError: It is no text, is empty or too long, or holds NUL or half a character.
    """
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{kind} {value!a:.60} must be a text that is not empty")
    if len(value) > max_length:
        raise UserError(f"{kind} has {len(value)} characters; use at most {max_length}")

    words = storable_text(value).split()
    return " ".join(words)
