"""Cells and names that hold more than a text: literals, numbers, dates.

Example:
    >>> from mempiler.data.cells import literal, whole_number
    >>> literal("['(a) tea', '(b) coffee']"), literal('{"content": null}'), literal("tea"), whole_number("12")
    (['(a) tea', '(b) coffee'], {'content': None}, None, 12)
"""

from __future__ import annotations

import ast
import json
import re
from datetime import date, datetime
from typing import Any

from ..records.json_input import decode

_MOST_DIGITS = 18
_DATES = ("%B %d, %Y", "%d %B %Y", "%b %d, %Y", "%d %b %Y", "%Y/%m/%d", "%m/%d/%Y")


def literal(text: str) -> Any:
    """The value of a cell that is JSON or a Python literal of texts, numbers, lists and dicts; None if it is neither.

    What no UTF-8 file could hold is neither.
    """
    for parse in (decode, ast.literal_eval):
        try:
            value = parse(text)
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return value
    return None


def whole_number(text: str) -> int | None:
    """The number of a text of digits, 0 to 18 of them; None for any other text."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def read_date(value: Any) -> datetime | None:
    """The moment that a date means, its time zone left out; None if unknown.

    ISO dates, "March 5, 2024", "5 March 2024" and "2024/03/05" are known; "03/05/2024" is read as in the US.
    """
    text = str(value or "").strip()
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        pass
    for form in _DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None


def day(text: str) -> date | None:
    """The day that YYYY-MM-DD means, None if it is none."""
    try:
        return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def natural(name: str) -> list[tuple[int, str]]:
    """What names are sorted by so that user2 comes before user10."""
    return [(len(part), part) if part.isdecimal() else (-1, part) for part in re.split(r"0*(\d+)", name)]


def last_number(name: str) -> tuple[int, str]:
    """The last number in a name, for sorting: turn_2 comes before turn_10, and what has none before both."""
    digits = (re.findall(r"\d+", name) or [""])[-1].lstrip("0")
    return len(digits), digits
