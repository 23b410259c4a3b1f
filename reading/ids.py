"""Ids that a prompt shows, and what a model makes of them: "[D1:3]", "d1:3", "turn D1:3" or 3.

A field that names something of an input is marked with the input that shows the ids:

    turn_ids: list[Annotated[str, IdFrom("dialogue")]]
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue

from .spelling import to_text

_BRACKETS = re.compile(r"\[([^\[\]\n]{1,200})\]")

# Python refuses to convert thousands of digits, so their number is limited. No id has so many.
_DIGITS = re.compile(r"\d{1,100}")

# These match the positions where a word may start or end, and no characters.
_WORD_START = re.compile(r"(?<!\w)")
_WORD_END = re.compile(r"(?!\w)")

_DECORATION = " \t\n[](){}<>\"'`*#.,;:"

_MAX_NUMBERS = 8
"""How many numbers at the end of an id may stand for the id."""

_MAX_EXTRA_CHARACTERS = 2
"""How many characters besides digits a text may have to count as numbers, e.g. "1:2"."""


@dataclass(frozen=True, init=False)
class IdFrom:
    """Mark a text as an id that certain inputs show.

    An input is a text with ids in brackets, a list of texts that begin with their ids, or a list
    of objects. The id of an object is its first field whose name ends with "id"; `input.field`
    names another field.

    Args:
        *inputs: Names of the inputs.
        allow_new: Whether a model may also invent ids.
    """

    inputs: tuple[str, ...]
    allow_new: bool

    def __init__(self, *inputs: str, allow_new: bool = False) -> None:
        # The class is frozen, and a dataclass has no arguments of the form `*inputs`.
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "allow_new", allow_new)

    def matcher(self, inputs: Mapping[str, object]) -> IdMatcher:
        """Return a matcher for the ids that the inputs of a prompt show."""
        ids: list[str] = []
        for name in self.inputs:
            input_name, _, field = name.partition(".")
            ids.extend(_shown_ids(inputs.get(input_name), field or None))
        return IdMatcher(ids)


class IdMatcher:
    """Finds the id that a model means.

    Example:
        >>> from mempiler.reading.ids import IdMatcher
        >>> matcher = IdMatcher(["D1:1", "D1:2", "m7"])
        >>> matcher.match('turn "D1:2".')
        'D1:2'
        >>> matcher.match(7)
        'm7'
        >>> matcher.match("D9:9")
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids_by_name: dict[str, list[str]] = defaultdict(list)
        self._ids_by_numbers: dict[tuple[int, ...], list[str]] = defaultdict(list)

        unique_ids = dict.fromkeys(filter(None, ids))
        for shown_id in unique_ids:
            self._ids_by_name[shown_id.casefold()].append(shown_id)

            # "D1:2" may be given as 1:2 or as 2.
            numbers = _numbers(shown_id)[-_MAX_NUMBERS:]
            for start in range(len(numbers)):
                self._ids_by_numbers[numbers[start:]].append(shown_id)

        self._name_lengths = sorted({len(name) for name in self._ids_by_name})

    def match(self, raw: JsonValue) -> str | None:
        """Return the id that a text or a number means; None if no id fits, or several fit."""
        text = to_text(raw)
        name = text.casefold()

        # Two ids may differ in upper and lower case alone, so an exact match comes first.
        if text in self._ids_by_name.get(name, ()):
            return text

        # `**d1:2**` is an id with decoration around it.
        stripped_name = name.strip(_DECORATION)
        ids = self._ids_by_name.get(stripped_name, [])

        # `turn D1:2 of Ann` has an id among its words.
        if not ids:
            ids = self._ids_within(name)

        # `1:2` and `#2` are the numbers of an id.
        is_almost_a_number = len(_DIGITS.sub("", stripped_name)) <= _MAX_EXTRA_CHARACTERS
        if not ids and is_almost_a_number:
            ids = self._ids_by_numbers.get(_numbers(stripped_name), [])

        return ids[0] if len(ids) == 1 else None

    def _ids_within(self, text: str) -> list[str]:
        """Return the ids that stand as whole words in a text: "D1:1" is not a part of "D1:12".

        At each start of a word, only texts as long as some id are looked up. So the time does not
        depend on the number of ids, of which a prompt may show thousands.
        """
        word_starts = [match.start() for match in _WORD_START.finditer(text)]
        word_ends = {match.start() for match in _WORD_END.finditer(text)}

        names: set[str] = set()
        for start in word_starts:
            for length in self._name_lengths:
                end = start + length
                if end in word_ends:
                    names.add(text[start:end])

        ids: list[str] = []
        for name in names:
            ids.extend(self._ids_by_name.get(name, ()))
        return ids


def id_field_name(names: Iterable[str]) -> str | None:
    """Return the first field name that ends with "id", else the first name, if there is one."""
    first_name = None
    for name in names:
        if name.endswith("id"):
            return name
        if first_name is None:
            first_name = name
    return first_name


def _shown_ids(value: object, id_field: str | None) -> Iterator[str]:
    """Yield the ids that the value of an input shows.

    Args:
        value: A text such as "[a1] Ann: Hello.", an object such as {"id": "a1", "text": "Hello."},
            or a list of objects or of lines such as "a1: Hello.".
        id_field: The field that holds the id of an object; None for the first that ends with "id".
    """
    if isinstance(value, str):
        yield from _ids_in_brackets(value)
    elif isinstance(value, BaseModel | Mapping):
        fields = dict(value)
        name = id_field or id_field_name(fields)
        if name is not None:
            # An id that is missing becomes an empty text, which the matcher leaves out.
            yield str(fields.get(name) or "")
    elif isinstance(value, Sequence):
        for element in value:
            if isinstance(element, str):
                yield from _ids_of_line(element)
            else:
                yield from _shown_ids(element, id_field)


def _ids_of_line(line: str) -> Iterator[str]:
    """Yield the ids of a text that begins with them, in brackets or before a colon."""
    if line.startswith("["):
        yield from _ids_in_brackets(line)
    else:
        yield line.partition(":")[0].strip()


def _ids_in_brackets(text: str) -> Iterator[str]:
    """Yield the ids in the brackets of a text; commas separate ids in the same brackets."""
    for content in _BRACKETS.findall(text):
        for part in content.split(","):
            if part.strip():
                yield part.strip()


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text."""
    return tuple(int(digits) for digits in _DIGITS.findall(text))
