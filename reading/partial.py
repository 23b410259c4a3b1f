r"""Read one output while the completion that holds it is still growing.

A program shows the text of an output to its user as it arrives, and cannot take it back. So only
*certain* text is returned: text that `answer.read_answer` will return too, whatever follows. Held
back is what may still change:

    "tea   "             the blanks, which are removed at the end of an output
    "tea\n[[ ## comp"    the last line, which may become the header of the next output
    "tea\u00"            the escape sequence of JSON, which has arrived in part
    "tea #"              the last sign, which may become an escaped marker (see `markers`)

An answer in another layout than the prompt asked for gives nothing before its end.
"""

from __future__ import annotations

import json
import re

import dspy

from .layouts import (
    HEADER,
    Layout,
    opens_bold_type,
    parse_json_object,
    remove_thoughts,
    shorten_blanks,
)
from .spelling import normalize_name
from .type_hints import field_type

MAX_PARTIAL_LENGTH = 50_000
"""Longest completion, in characters, that is read while it grows."""

_READS_PER_LENGTH = 100
"""A completion is read again once it has grown by its length divided by this number."""

_THOUGHT_TAGS = ("<think>", "<thinking>")

_HEADER_BEGINNING = re.compile(
    r"^[ \t]{0,9}[\[【#*]{0,6}\s{0,9}[\[【]{0,2}\s{0,9}(?:[#＃](?:[#＃]\s{0,9}(?:\w{1,99}\s{0,9}"
    r"(?:[#＃](?:[#＃]\s{0,9}[\]】]{0,2}[ \t]*)?)?)?)?)?\Z",
    re.MULTILINE,
)
"""A last line that is `layouts.HEADER`, or may become one: `[[`, `[[ ## comp`."""

_ESCAPED_MARKER = re.compile(r"[#＃<\[](?:~|\Z)")
"""An escaped marker (see `markers`), or what may become one."""

_COLON_AND_QUOTE = re.compile(r'\s*:\s*"')
"""What stands between the key of a JSON object and a text."""

_WHOLE_CHARACTERS = re.compile(
    r"""
    (?:
        [^"\\\x00-\x1f]                         # a character that is not escaped
      | \\["\\/bfnrt]                           # a short escape sequence, such as a line break
      | \\u (?![dD][89a-fA-F]) [0-9a-fA-F]{4}   # a character by its number: \u00e9
      | \\u [dD][89abAB][0-9a-fA-F]{2}          # a character in two halves: \ud83d\ude00
        \\u [dD][c-fC-F][0-9a-fA-F]{2}
    )*
    """,
    re.VERBOSE,
)
"""The characters of a JSON text up to its closing quote, or to one that has arrived in part."""


class PartialAnswer:
    r"""One output of an answer that a model is writing.

    Example:
        >>> from mempiler.reading.partial import PartialAnswer
        >>> partial = PartialAnswer("answer")
        >>> partial.add_piece("[[ ## answer ## ]]\nGreen tea, pl")
        'Green tea, pl'
        >>> partial.add_piece("ease.\n\n[[ ## comp")
        'ease.'

    Args:
        name: The output; `is_text_output` must be true of it.
        layout: The layout that the prompt asked for.
    """

    def __init__(self, name: str, layout: Layout = "headers") -> None:
        self._name = name
        self._layout = layout
        self._completion = ""
        self._returned_text = ""
        """All text that `add_piece` has returned."""
        self._read_length = 0
        """Length of the completion when it was last read."""
        self._is_stopped = False

    def add_piece(self, piece: str) -> str:
        """Add the next piece of the completion and return the text that became certain."""
        self._completion += piece
        if len(self._completion) > MAX_PARTIAL_LENGTH:
            self.stop()
        if self._is_stopped or not self._has_grown_enough():
            return ""

        self._read_length = len(self._completion)
        certain_text = self._read()
        if not certain_text.startswith(self._returned_text):
            # This is not expected: the text changed where it was certain. What was returned cannot
            # be taken back, and the continuation of another text would make no sense behind it.
            self.stop()
            return ""

        new_text = certain_text.removeprefix(self._returned_text)
        self._returned_text = certain_text
        return new_text

    def _has_grown_enough(self) -> bool:
        """Say whether the completion should be read again.

        Each reading starts at the beginning. If it followed every piece, the time for a completion
        would grow with the square of its length.
        """
        new_length = len(self._completion) - self._read_length
        return new_length >= len(self._completion) // _READS_PER_LENGTH

    def stop(self) -> None:
        """Return no more text."""
        self._is_stopped = True
        self._completion = ""

    def _read(self) -> str:
        """Return the text of the output that is certain so far."""
        answer = _after_thoughts(shorten_blanks(self._completion.rstrip()))
        if self._layout == "json" and answer.lstrip().startswith("{"):
            return _before_escaped_marker(_text_in_object(self._name, answer))

        text = _text_under_header(self._name, answer).lstrip()
        return _before_escaped_marker(text).rstrip()


def is_text_output(signature: type[dspy.Signature], name: str) -> bool:
    """Say whether a signature has an output of this name that is a text and nothing else."""
    info = signature.output_fields.get(name)
    return info is not None and field_type(info) is str


def _after_thoughts(completion: str) -> str:
    """Return what follows the thoughts; an empty text as long as the model may be thinking."""
    beginning = completion.lstrip()
    # So far "<thi" of "<think>" may have arrived, or nothing.
    may_be_opening_tag = any(tag.startswith(beginning) for tag in _THOUGHT_TAGS)
    if may_be_opening_tag:
        return ""

    answer = remove_thoughts(completion)
    # Only thoughts whose closing tag has arrived are removed.
    is_thinking = answer == completion and beginning.startswith(_THOUGHT_TAGS)
    return "" if is_thinking else answer


def _before_escaped_marker(text: str) -> str:
    """Return a text up to the first escaped marker, which `read_answer` will unescape."""
    marker = _ESCAPED_MARKER.search(text)
    return text[: marker.start()] if marker else text


def _text_under_header(name: str, answer: str) -> str:
    """Return the text under the header of an output, up to a next header or its beginning."""
    header = _find_header(name, answer)
    if header is None:
        return ""
    # Of "**## answer ## tea**" the stars at the end are removed. Before the end is known, stars may
    # be those or a part of the text, so no text is certain.
    if opens_bold_type(header):
        return ""

    start = header.end()
    next_header = HEADER.search(answer, start) or _HEADER_BEGINNING.search(answer, start)
    end = next_header.start() if next_header else len(answer)
    return answer[start:end]


def _find_header(name: str, answer: str) -> re.Match[str] | None:
    """Return the first header of an output, or None."""
    for header in HEADER.finditer(answer):
        if normalize_name(header[1]) == normalize_name(name):
            return header
    return None


def _text_in_object(name: str, answer: str) -> str:
    """Return the text of an output in an unfinished JSON object.

    Of `{"reasoning": "She said so.", "answer": "To Lis`, the text of "answer" is "To Lis".
    """
    key = json.dumps(name)
    before_key, _, after_key = answer.partition(key)
    separator = _COLON_AND_QUOTE.match(after_key)
    if separator is None or not _is_key_of_outermost_object(before_key, key):
        return ""

    characters = _WHOLE_CHARACTERS.match(after_key, separator.end())
    return json.loads(f'"{characters[0]}"') if characters else ""


def _is_key_of_outermost_object(before_key: str, key: str) -> bool:
    """Say whether what looks like a key is a key of the outermost object.

    It may also be a key of an inner object, or stand within a text. To find out, give the key any
    value and close one object behind it. The result is JSON only if nothing else was open:

        {"reasoning": "Hm.", "answer": 0}       JSON
        {"reasoning": {"answer": 0}             the outer object is open
        {"reasoning": "The "answer": 0}         the key ended a text
    """
    object_up_to_key = f"{before_key}{key}: 0}}"
    return parse_json_object(object_up_to_key) is not None
