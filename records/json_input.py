"""Strict JSON for input: refuses what the standard library accepts and nothing later could store.

Refused beside what is no JSON: NaN and infinite numbers, whole numbers of more than `MAX_DIGITS` digits, a key that
one object holds twice, more than `MAX_DEPTH` levels of lists and objects, and half of a surrogate pair, which no UTF-8
file or hash can hold.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from ..errors import DataError
from .text_file import read_text

MAX_DEPTH = 100
"""Most levels of lists and objects in each other."""
MAX_DIGITS = 300
"""Most digits of a whole number: with more it could not be compared with any other kind of number."""

_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_TOO_DEEP = f"lists and objects are nested more than {MAX_DEPTH} levels deep; make it flatter"


def read_json(path: str | Path) -> Any:
    """Reads a JSON file.

    Raises:
        DataError: The file is missing, empty, unreadable or no strict JSON; the message says which and where.
    """
    return parse_json(read_text(Path(path)), str(path))


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text; `where` it is, a file, perhaps with a line, begins the message of a DataError."""
    try:
        return decode_json(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error


def decode_json(text: str) -> Any:
    """The value of a JSON text; for readers that have their own words for what is no JSON.

    Raises:
        json.JSONDecodeError: It is no JSON.
        ValueError: It is JSON, but no strict one; the message says what and how to mend it.
    """
    try:
        value = strict_decoder().decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    check_json_value(value, text)
    return value


def check_json_value(value: Any, text: str) -> None:
    """Raises ValueError for a value that is nested too deeply or holds half of a surrogate pair.

    Most texts that it was read from tell at a glance that nothing is wrong.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and not _is_flat(value):
        raise ValueError(_TOO_DEEP)
    if _HALF_PAIR.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}, half of a surrogate pair"
            raise ValueError(f"a text holds {half}; replace it by a whole character") from None


def strict_decoder() -> json.JSONDecoder:
    """A decoder that refuses what `decode_json` refuses, but for what `check_json_value` finds; raises ValueError."""
    return json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant)


def _is_flat(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a value has at most so many levels of lists and objects; looks no deeper than that."""
    if type(value) not in (dict, list):
        return True
    inner = value.values() if hasattr(value, "values") else value
    return levels > 0 and all(_is_flat(each, levels - 1) for each in inner)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"an object holds the key {twice[:100]!r} twice; keep one of them")
    return found


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:30]} is too large; write a smaller one")
    return value


def _int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits; write a smaller one, or a text")
    return int(text)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number; write null or a finite number")
