"""Types of the fields of rows, and the readers of values that files write in different ways."""

from __future__ import annotations

import ast
import json
import re
from datetime import date, datetime
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, StringConstraints

from ..records import read_time
from ..records.json_input import decode_json

MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
"""English months in their order, whatever the locale."""


def parse_literal(cell: Any) -> Any:
    """Return the value of a cell that is JSON or a Python literal; anything else as it is.

    A value that no JSON file in UTF-8 could hold counts as neither, e.g. a set, NaN, or half of a
    surrogate pair.
    """
    if not isinstance(cell, str):
        return cell
    for parse in (decode_json, ast.literal_eval):
        try:
            value = parse(cell.strip())
            # This fails for such values.
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return value
    return cell


def read_date(value: Any) -> datetime | None:
    """Return the moment that an ISO text means, without its time zone; None for anything else."""
    time = read_time(value)
    if time is None:
        return None
    return time.replace(tzinfo=None)


def parse_day(text: str) -> date | None:
    """Return the day that a text of the form YYYY-MM-DD means; None if it means none."""
    # `date.fromisoformat` also takes 20250305 and weeks.
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts user2 before user10.

    The key of user10 is [(-1, "user"), (2, "10"), (-1, "")]: a number is compared by its length
    first, a text by its letters alone.
    """
    key: list[tuple[int, str]] = []
    # Only the group is returned, so leading zeros are gone. Of two numbers without leading zeros,
    # the longer one is greater.
    for part in re.split(r"0*(\d+)", name):
        length = len(part) if part.isdecimal() else -1
        key.append((length, part))
    return key


def _empty_text_for_null(value: Any) -> Any:
    return "" if value is None else value


def _empty_list_for_null(value: Any) -> Any:
    return () if value is None else value


Part = TypeVar("Part")

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""A text with words; blanks around it are removed."""
Verbatim = Annotated[str, StringConstraints(pattern=r"\S")]
"""A text with words, as it is."""
Words = Annotated[
    str, StringConstraints(strip_whitespace=True), BeforeValidator(_empty_text_for_null)
]
"""A text that may be empty or null."""
Date = Annotated[datetime | None, BeforeValidator(read_date)]
"""A moment as `read_date` reads it."""
Listed = Annotated[tuple[Part, ...], BeforeValidator(_empty_list_for_null)]
"""A list that may be null."""
Parsed = BeforeValidator(parse_literal)
"""Marks a CSV cell that holds a list or an object, in the notation of JSON or of Python."""
