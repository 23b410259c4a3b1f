"""Compare names and values that are spelled differently."""

from __future__ import annotations

import re

_DECORATION = re.compile(r"[\s_\-\"'`*.\[\](){}<>:]+")

_NULL_WORDS = ("", "null", "none", "n/a", "nil")


def normalize_name(name: object) -> str:
    """Return a name without case, blanks, underscores and decoration.

    "**Final Answer:**" and "final_answer" are both "finalanswer".
    """
    return _DECORATION.sub("", to_text(name)).casefold()


def to_text(value: object) -> str:
    """Return a value as text; a whole number loses its decimal point: 7.0 is "7"."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_null_like(value: object) -> bool:
    """Say whether a value stands for nothing: None, a blank text, "null", "N/A" or the like."""
    if isinstance(value, str):
        return value.strip().casefold() in _NULL_WORDS
    return value is None
