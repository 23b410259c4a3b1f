"""Parse JSON as models write it.

A model puts JSON in a fence or between sentences, writes one object per line, uses other quotes,
or makes slips. All of this is read. JSON that ends in the middle is not: the missing part would be
lost without notice.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import json_repair
from pydantic import JsonValue

from .repairs import UnreadableError

JsonObject: TypeAlias = dict[str, JsonValue]
JsonContainer: TypeAlias = JsonObject | list[JsonValue]

Slip = Literal["layout", "shape", "cut"]
"""The kinds of repairs that parsing makes; `repairs.RepairKind` explains them."""

MAX_REPAIR_LENGTH = 20_000
"""Longest text, in characters, that is given to json_repair."""

MAX_CHARACTER_READS = 250_000
"""How many characters json_repair may read for one answer.

For some texts it reads the square or the cube of their length.
"""

_FENCE = re.compile(r"```[\w-]{0,20}[ \t]{0,9}\n?(.*?)```", re.DOTALL)
_OPENING_BRACKET = re.compile(r"[{\[]")
_SEPARATOR = re.compile(r"[\s,;]*(?:(?:[-*•]|\d+[.)])\s+)?(?=[{\[])")
"""What may stand between two values, if a bracket follows: blanks, commas, the bullet of a list."""


def find_json(text: str) -> JsonContainer | None:
    """Return the object or list that a text holds, or None if there is none or it is cut off."""
    parser = LooseJsonParser(ReadBudget())
    try:
        return parser.find_value(text)
    except UnreadableError:
        return None


@dataclass
class ReadBudget:
    """How many characters json_repair may still read."""

    remaining: int = MAX_CHARACTER_READS


class BudgetExhaustedError(Exception):
    """Raised within json_repair when the budget is used up."""


class LooseJsonParser:
    """Parses the JSON of one text and notes the slips that it had to repair.

    Example:
        >>> from mempiler.reading.json_text import LooseJsonParser, ReadBudget
        >>> parser = LooseJsonParser(ReadBudget())
        >>> parser.parse_field("Here it is: [{'name': 'Rex',}]")
        [{'name': 'Rex'}]
        >>> parser.slips
        ['layout']

    Args:
        budget: Shared by all parsers of an answer.
    """

    def __init__(self, budget: ReadBudget) -> None:
        self._budget = budget
        self.slips: list[Slip] = []

    def parse_field(self, text: str) -> JsonValue:
        """Return the value that the text of a field writes; the text itself if it writes none.

        Raises:
            UnreadableError: The JSON ends in the middle, or has slips and is too long to repair.
        """
        fence = _FENCE.fullmatch(text.strip())
        content = fence[1].strip() if fence else text.strip()
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            pass

        has_several_fences = fence is not None and "```" in content
        if has_several_fences:
            # The text begins with one fence and ends with another, so `content` is no JSON.
            value = self.find_value(text)
        elif content.startswith(("[", "{", "(")):
            # It is JSON with slips, such as [{'name': 'Rex',}].
            value = self.parse_prefix(content)
        else:
            # JSON may stand between sentences.
            value = self.find_value(content)
        return content if value is None else value

    def find_value(self, text: str) -> JsonContainer | None:
        """Return the object or list that a text holds, or None.

        The last fence is read first, since an earlier one may hold a draft; the whole text, last.

        Raises:
            UnreadableError: The JSON ends in the middle, or has slips and is too long to repair.
        """
        fence_contents = _FENCE.findall(text)
        for candidate in [*reversed(fence_contents), text]:
            passage = candidate.strip()
            opening = _OPENING_BRACKET.search(passage)
            if opening is None:
                continue

            value = self.parse_prefix(passage[opening.start() :])
            if value is not None:
                return value
            # An empty value counts if nothing else stands there.
            if passage in ("[]", "{}"):
                return json.loads(passage)
        return None

    def parse_prefix(self, text: str) -> JsonContainer | None:
        """Return the object or list at the beginning of a text that begins with a bracket.

        Several objects in a row become a list. None stands for an empty object or list too.

        Raises:
            UnreadableError: The JSON ends in the middle, or has slips and is too long to repair.
        """
        text = text.rstrip()
        values = _decode_values(text)
        if len(values) > 1:
            self.slips.append("shape")
            return values

        self.slips.append("layout")
        value = values[0] if values else self._repair(text)
        if isinstance(value, dict | list) and value:
            return value
        return None

    def _repair(self, text: str) -> JsonValue:
        """Return the value of JSON with slips as json_repair reads it, or None if it cannot.

        Raises:
            UnreadableError: The text is too long, or ends in the middle of a value.
        """
        if len(text) > MAX_REPAIR_LENGTH:
            reason = (
                f"{len(text):,} characters that are no sound JSON, more than {MAX_REPAIR_LENGTH:,}"
            )
            raise UnreadableError("", reason)

        ending = _scan_ending(text)
        ends_with_bracket = text[-1] in "]})"

        # In `[{"name": "Rex"}, {"name": "Be` the last value is incomplete, and nobody knows how
        # many would have followed.
        if ending.is_open and not ends_with_bracket:
            raise UnreadableError("", "the answer ends in the middle of its JSON")

        # In `[{"name": "Rex"}` all values are complete, and only the last bracket is missing. An
        # open quote, as in `{"name": "Rex}`, is an ordinary slip.
        if ending.has_open_brackets and not ending.has_open_quote:
            self.slips.append("cut")

        try:
            value = json_repair.loads(_MeteredText(text, self._budget))
            return _plain_value(cast("JsonValue", value))
        except Exception:
            # json_repair raises errors of many types, an AssertionError for example. The text
            # raises a BudgetExhaustedError.
            return None


class _MeteredText(str):
    """A `str` that counts how often it is read, and raises an error once its budget is used up.

    json_repair reads its text by index and slice, so this limits how long it can work on one text.
    """

    _budget: ReadBudget

    def __new__(cls, text: str, budget: ReadBudget) -> _MeteredText:
        metered = super().__new__(cls, text)
        metered._budget = budget
        return metered

    def __getitem__(self, index: Any) -> str:
        self._budget.remaining -= 1
        if self._budget.remaining < 0:
            raise BudgetExhaustedError
        part = super().__getitem__(index)
        if isinstance(index, slice):
            return _MeteredText(part, self._budget)
        return part

    def __add__(self, other: str) -> str:
        return _MeteredText(super().__add__(other), self._budget)


def _plain_value(value: JsonValue) -> JsonValue:
    """Return a copy of a JSON value in which every `_MeteredText` is an ordinary text.

    json_repair returns pieces of the text that it was given. They would go on using up the budget.
    """
    if isinstance(value, dict):
        return {str(key): _plain_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain_value(part) for part in value]
    if isinstance(value, str):
        # `str` makes an ordinary text of one of a subclass.
        return str(value)
    return value


def _decode_values(text: str) -> list[JsonValue]:
    """Return the sound JSON values at the beginning of a text, one after the other.

    Several values count only if all of them are objects:

        {"a": 1} {"a": 2}       both objects
        [1, 2] See also [3].    the list [1, 2]; what follows is prose
        {"a": 1} {"a": 2,}      nothing: the whole text must be repaired, or an object would be lost
    """
    decoder = json.JSONDecoder()
    values: list[JsonValue] = []
    position = 0
    while separator := _SEPARATOR.match(text, position):
        start = separator.end()
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            follows_objects = bool(values) and isinstance(values[0], dict)
            is_object_with_slips = text[start] == "{"
            return [] if follows_objects and is_object_with_slips else values
        values.append(value)

    if all(isinstance(value, dict) for value in values):
        return values
    return values[:1]


@dataclass(frozen=True)
class _Ending:
    """What is still open at the end of a text."""

    has_open_brackets: bool
    has_open_quote: bool

    @property
    def is_open(self) -> bool:
        return self.has_open_brackets or self.has_open_quote


def _scan_ending(text: str) -> _Ending:
    """Return which brackets and quotes of a JSON text are open at its end."""
    depth = 0
    quote = ""
    is_escaped = False
    for letter in text:
        if is_escaped:
            is_escaped = False
        elif letter == "\\":
            is_escaped = quote != ""
        elif quote:
            if letter == quote:
                quote = ""
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
    return _Ending(has_open_brackets=depth > 0, has_open_quote=quote != "")
