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
        """Return the JSON value that stands in the text of a field.

        If there is no JSON in it, return the text itself, without a fence around it:

            ```json [1, 2] ```      the list [1, 2]
            I choose [1, 2].        the list [1, 2]
            ``` green tea ```       the text "green tea"

        Raises:
            UnreadableError: The JSON ends in the middle, or has slips and is too long to repair.
        """
        stripped_text = text.strip()
        fence = _FENCE.fullmatch(stripped_text)
        content = fence[1].strip() if fence else stripped_text
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            # It is JSON with slips, JSON between sentences, or no JSON.
            pass

        has_several_fences = fence is not None and "```" in content
        if has_several_fences:
            # In "```[1]``` No: ```[2]```" the match reaches from the first fence to the last, and
            # `content` is "[1]``` No: ```[2]". So the fences must be found one by one.
            value = self.find_value(stripped_text)
        elif content.startswith(("[", "{", "(")):
            # For example [{'name': 'Rex',}], or ('S2', 'S7') as Python writes it.
            value = self.parse_prefix(content)
        else:
            value = self.find_value(content)
        return content if value is None else value

    def find_value(self, text: str) -> JsonContainer | None:
        """Return the object or list that a text holds, or None.

        The fences are searched first, the last one before the others: a model that corrects itself
        writes its draft in one fence and its answer in the next. The text as a whole comes after
        them, for JSON without a fence.

        Raises:
            UnreadableError: The JSON ends in the middle, or has slips and is too long to repair.
        """
        fence_contents = _FENCE.findall(text)
        for passage in [*reversed(fence_contents), text]:
            value = self._find_in_passage(passage.strip())
            if value is not None:
                return value
        return None

    def _find_in_passage(self, passage: str) -> JsonContainer | None:
        """Return the object or list at the first bracket of a passage, or None.

        Empty brackets count only if they are the whole passage. "[]" is a list without elements,
        but the brackets of "I tick [] for none" mean nothing.
        """
        if passage in ("[]", "{}"):
            self.slips.append("layout")
            return json.loads(passage)

        opening = _OPENING_BRACKET.search(passage)
        if opening is None:
            return None
        return self.parse_prefix(passage[opening.start() :])

    def parse_prefix(self, text: str) -> JsonContainer | None:
        """Return the object or list at the beginning of a text that begins with a bracket.

        Several objects in a row become a list: some models write one object per line where a list
        is due. Return None if the object or list is empty, or nothing can be read.

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
        is_container = isinstance(value, dict | list)
        return value if is_container and value else None

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

    Only objects form a series. Behind a list, further values are taken for a part of the prose:

        {"a": 1} {"a": 2}       both objects
        [1, 2] [3] is no hit    the list [1, 2]
        {"a": 1} {"a": 2,}      nothing: the second object has a slip, so the text must be repaired
        [1, 2,]                 nothing, for the same reason
    """
    decoder = json.JSONDecoder()
    values: list[JsonValue] = []
    position = 0
    while True:
        separator = _SEPARATOR.match(text, position)
        if separator is None:
            # Prose follows, or the text ends.
            break

        start = separator.end()
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            is_series_of_objects = bool(values) and isinstance(values[0], dict)
            if is_series_of_objects and text[start] == "{":
                # This object has a slip. Without it the series would be incomplete.
                return []
            # Other brackets that are no JSON belong to prose: "[1, 2] [see above]".
            return values
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
            # Outside of texts a backslash escapes nothing.
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
