"""Cells and names that hold more than a text: literals, numbers.

Example:
    >>> from mempiler.data.cells import literal, whole_number
    >>> literal("['(a) tea', '(b) coffee']"), literal('{"content": null}'), literal("tea"), whole_number("12")
    (['(a) tea', '(b) coffee'], {'content': None}, None, 12)
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from ..records.json_input import decode

_MOST_DIGITS = 18


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


def natural(name: str) -> list[tuple[int, str]]:
    """What names are sorted by so that user2 comes before user10."""
    return [(len(part), part) if part.isdecimal() else (-1, part) for part in re.split(r"0*(\d+)", name)]


def last_number(name: str) -> tuple[int, str]:
    """The last number in a name, for sorting: turn_2 comes before turn_10, and what has none before both."""
    digits = (re.findall(r"\d+", name) or [""])[-1].lstrip("0")
    return len(digits), digits
