"""Read JSON strictly: refuse what Python's `json` accepts but no later step could store.

Besides text that is not JSON, these are refused:

- NaN and infinite numbers;
- whole numbers of more than `MAX_DIGITS` digits;
- an object that has the same key twice;
- more than `MAX_DEPTH` levels of lists and objects inside one another;
- half of a surrogate pair, which has no form in UTF-8.

As with `json.loads`, the type of a value is not known: callers check what they read.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ..errors import DataError
from .text_file import read_text

MAX_DEPTH = 100
"""Most levels of lists and objects inside one another."""

MAX_DIGITS = 300
"""Most digits of a whole number: a longer one cannot be compared with a float."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Half of a surrogate pair, escaped or not. Two of them may form one valid character."""

_TOO_DEEP = f"lists and objects are nested more than {MAX_DEPTH} levels deep; make it flatter"


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: The file cannot be read, is empty, or is not strict JSON; the message says where.
    """
    return parse_json(read_text(Path(path)), str(path))


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text.
        where: The file it is from, perhaps with a line. Error messages begin with it.

    Raises:
        DataError: The text is not strict JSON.
    """
    try:
        return decode_json(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{where}: not valid JSON at {place}: {error.msg}") from error
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error


def decode_json(text: str) -> Any:
    """Return the value of a JSON text. `parse_json` does the same with a DataError.

    Raises:
        json.JSONDecodeError: The text is not JSON.
        ValueError: It is JSON, but not strict JSON; the message says how to fix it.
    """
    try:
        value: JsonValue = strict_decoder().decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None

    check_json_value(value, text)
    return value


def strict_decoder() -> json.JSONDecoder:
    """Return a decoder that raises ValueError for numbers and keys that are refused.

    It does not see the depth and surrogates: `check_json_value` does.
    """
    return json.JSONDecoder(
        object_pairs_hook=_object_with_unique_keys,
        parse_float=_parse_float,
        parse_int=_parse_int,
        parse_constant=_refuse_constant,
    )


def check_json_value(value: JsonValue, text: str) -> None:
    """Refuse a value that is nested too deeply or holds half of a surrogate pair.

    Args:
        value: The value.
        text: The JSON text that it was read from. Most texts rule both problems out at a glance.

    Raises:
        ValueError: The message says what is wrong and how to fix it.
    """
    bracket_count = text.count("[") + text.count("{")
    if bracket_count > MAX_DEPTH and _exceeds_depth(value, MAX_DEPTH):
        raise ValueError(_TOO_DEEP)

    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            code = ord(error.object[error.start])
            raise ValueError(
                f"a text holds \\u{code:04x}, half of a surrogate pair; "
                "replace it by a whole character"
            ) from None


def _exceeds_depth(value: JsonValue, max_depth: int) -> bool:
    """Say whether a value has more levels of lists and objects; look no deeper than needed."""
    # The values of each level together, from the outermost on: for a large file this is several
    # times as fast as a function that calls itself for each value.
    level: list[JsonValue] = [value]
    for _ in range(max_depth + 1):
        containers = [entry for entry in level if isinstance(entry, dict | list)]
        if not containers:
            return False
        level = []
        for container in containers:
            level.extend(container.values() if isinstance(container, dict) else container)
    return True


def _object_with_unique_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return a JSON object.

    Raises:
        ValueError: A key stands in it twice.
    """
    values = dict(pairs)
    if len(values) == len(pairs):
        return values

    seen_keys: set[str] = set()
    for key, _ in pairs:
        if key in seen_keys:
            raise ValueError(f"an object holds the key {key[:100]!r} twice; keep one of them")
        seen_keys.add(key)
    return values


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:30]} is too large; write a smaller one")
    return value


def _parse_int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits; write a smaller one, or a text")
    return int(text)


def _refuse_constant(name: str) -> float:
    """Refuse NaN, Infinity and -Infinity."""
    raise ValueError(f"{name} is no JSON number; write null or a finite number")
