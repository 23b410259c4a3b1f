"""How the texts of MemoryQuest are compared, and which dates are days."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...field_types import parse_day

_STEM_LENGTH = 4


def normalized(text: str) -> str:
    """Return a text in one case and with single blanks, for comparisons."""
    return " ".join(text.casefold().split())


def word_beginnings(text: str) -> set[str]:
    """Return the beginnings of the longer words of a text, and all its numbers.

    "moved" and "moving" share their beginning.
    """
    beginnings: set[str] = set()
    for word in re.findall(r"\w+", text.casefold()):
        if len(word) >= _STEM_LENGTH or word.isdigit():
            beginnings.add(word[:_STEM_LENGTH])
    return beginnings


def day_problems(dates: Iterable[str]) -> list[str]:
    """Return which dates are no days."""
    return [f"{text!r} is no day; write YYYY-MM-DD" for text in dates if parse_day(text) is None]
