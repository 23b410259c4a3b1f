"""Read values that hold no other values: texts, numbers, truth values and choices."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from pydantic import JsonValue

from .repairs import RepairLog, UnreadableError, preview
from .spelling import normalize_name, to_text

ChoiceT = TypeVar("ChoiceT")
NumberT = TypeVar("NumberT", int, float)

_MIN_SIMILARITY = 0.8
"""How similar a misspelled value must be to an allowed one, as `difflib` measures it."""

_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?\s*%?")

_CLAUSE_END = re.compile(r"[,.;:!?\n]")

_TRUTH_VALUES = {
    "yes": True,
    "true": True,
    "1": True,
    "no": False,
    "false": False,
    "0": False,
}


def read_text(raw: JsonValue, path: str, repairs: RepairLog, max_length: int | None) -> str:
    """Return a text: the value itself, a number, the only value of an object, or a joined list.

    Raises:
        UnreadableError: The value is no text, or longer than `max_length` characters.
    """
    if isinstance(raw, str):
        if max_length is not None and len(raw) > max_length:
            reason = f"the text has {len(raw):,} characters, more than {max_length:,}"
            raise UnreadableError(path, reason)
        return raw

    if isinstance(raw, Mapping) and len(raw) == 1:
        repairs.add("shape", path)
        (value,) = raw.values()
        return read_text(value, path, repairs, max_length)

    if isinstance(raw, list) and raw and all(isinstance(part, str | int | float) for part in raw):
        repairs.add("shape", path)
        return ", ".join(str(part) for part in raw)

    if isinstance(raw, int | float) and not isinstance(raw, bool):
        repairs.add("cast", path)
        return to_text(raw)

    raise UnreadableError(path, f"a text is due, not {preview(raw)}")


def read_number(
    raw: JsonValue, number_type: type[NumberT], path: str, repairs: RepairLog
) -> NumberT:
    """Return a finite number of a type; a text such as "80%" is read too.

    Raises:
        UnreadableError: The value is no such number.
    """
    number = raw
    if isinstance(raw, str) and _NUMBER.fullmatch(raw.strip()):
        repairs.add("cast", path)
        number = float(raw.strip(" %\t\n"))

    if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
        is_whole = isinstance(number, int) or number.is_integer()
        if is_whole or number_type is float:
            return number_type(number)

    kind = "a whole number" if number_type is int else "a number"
    raise UnreadableError(path, f"{kind} is due, not {preview(number)}")


def read_bool(raw: JsonValue, path: str, repairs: RepairLog) -> bool:
    """Return a truth value, written as JSON or as "yes", "no", "1" or "0".

    Raises:
        UnreadableError: The value is neither true nor false.
    """
    if isinstance(raw, bool):
        return raw

    word = str(raw).strip(" .\"'`*").casefold()
    if word not in _TRUTH_VALUES:
        raise UnreadableError(path, f"true or false is due, not {preview(raw)}")
    repairs.add("cast", path)
    return _TRUTH_VALUES[word]


def read_choice(
    raw: JsonValue, allowed: Sequence[ChoiceT], path: str, repairs: RepairLog
) -> ChoiceT:
    """Return the allowed value that is meant, for example by "ANIMALS." or "No: the dates differ".

    Raises:
        UnreadableError: No allowed value is meant, or several are.
    """
    # To Python, True equals 1.
    if not isinstance(raw, bool):
        for value in allowed:
            if value == raw:
                return value

    values_by_name = {normalize_name(value): value for value in allowed}
    name = _similar_name(raw, values_by_name)
    if name is None and isinstance(raw, str):
        name = _leading_name(raw, values_by_name)
    if name is None:
        choices = ", ".join(map(str, allowed))
        raise UnreadableError(path, f"{preview(raw)} is none of: {choices}")

    repairs.add("spelling", path)
    return values_by_name[name]


def _similar_name(raw: JsonValue, names: Collection[str]) -> str | None:
    """Return the normalized name that a value spells, exactly or nearly."""
    spelling = normalize_name(raw) if isinstance(raw, str | int | float) else ""
    if spelling in names:
        return spelling
    if not spelling:
        return None
    matches = get_close_matches(spelling, names, n=1, cutoff=_MIN_SIMILARITY)
    return matches[0] if matches else None


def _leading_name(sentence: str, values_by_name: Mapping[str, object]) -> str | None:
    """Return the name that is the first clause of a sentence, if the rest names no other value."""
    end = _CLAUSE_END.search(sentence)
    if end is None:
        return None
    name = normalize_name(sentence[: end.start()])
    if name not in values_by_name:
        return None

    rest = sentence[end.end() :]
    for other_name, other_value in values_by_name.items():
        if other_name != name and _contains_word(rest, str(other_value)):
            return None
    return name


def _contains_word(text: str, word: str) -> bool:
    """Say whether a word or phrase stands in a text, in upper or lower case."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None
