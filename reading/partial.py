"""Read one output while the completion that holds it is still growing.

What is returned is certain, whatever follows. Held back is what may still change: blanks at the
end, and what may become a header, an escape sequence or an escaped marker. An answer in another
layout than the prompt asked for gives nothing before its end.
"""

from __future__ import annotations

import json
import re

import dspy

from .layouts import HEADER, Layout, parse_json_object, remove_thoughts, shorten_blanks
from .spelling import normalize_name
from .type_hints import field_type

MAX_PARTIAL_LENGTH = 50_000
"""Longest completion, in characters, that is read while it grows."""

_THOUGHT_TAGS = ("<think>", "<thinking>")

_HEADER_BEGINNING = re.compile(
    r"^[ \t]{0,9}[\[【#*]{0,6}\s{0,9}[\[【]{0,2}\s{0,9}(?:[#＃](?:[#＃]\s{0,9}(?:\w{1,99}\s{0,9}"
    r"(?:[#＃](?:[#＃]\s{0,9}[\]】]{0,2}[ \t]*)?)?)?)?)?\Z",
    re.MULTILINE,
)
"""`layouts.HEADER`, or a beginning of it, at the end of a text."""

_ESCAPED_MARKER = re.compile(r"[#＃<\[](?:~|\Z)")
"""An escaped marker (see `markers`), or what may become one."""

_JSON_VALUE_START = re.compile(r'\s*:\s*"')

_WHOLE_CHARACTERS = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""The beginning of a JSON text without an escape sequence that is cut."""


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
        self._certain_text = ""
        """What `add_piece` returned so far."""
        self._read_length = 0
        """Length of the completion when it was last read."""
        self._is_stopped = False

    def add_piece(self, piece: str) -> str:
        """Add the next piece of the completion and return the text that became certain."""
        self._completion += piece
        if len(self._completion) > MAX_PARTIAL_LENGTH:
            self.stop()
        if self._is_stopped:
            return ""

        # Reading starts at the beginning each time, so a long completion is read less often.
        new_length = len(self._completion) - self._read_length
        if new_length < len(self._completion) // 100:
            return ""
        self._read_length = len(self._completion)

        certain_text = self._read()
        if not certain_text.startswith(self._certain_text):
            self.stop()
            return ""
        new_text = certain_text.removeprefix(self._certain_text)
        self._certain_text = certain_text
        return new_text

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
    start = None
    for header in HEADER.finditer(answer):
        if start is not None:
            return answer[start : header.start()]
        if normalize_name(header[1]) == normalize_name(name):
            # "**Answer: tea**" loses the stars at its end, so its end must be known.
            if header[0].count("**") == 1:
                return ""
            start = header.end()

    if start is None:
        return ""
    beginning = _HEADER_BEGINNING.search(answer, start)
    end = beginning.start() if beginning else len(answer)
    return answer[start:end]


def _text_in_object(name: str, answer: str) -> str:
    """Return the text of an output in an unfinished JSON object.

    Of `{"reasoning": "She said so.", "answer": "To Lis`, the text of "answer" is "To Lis".
    """
    before_key, key, after_key = answer.partition(json.dumps(name))
    value_start = _JSON_VALUE_START.match(after_key)
    if value_start is None:
        return ""

    # What looks like the key may stand within a text or in an inner object. If it is a key of the
    # outermost object, an object that ends right after it, with any value, is complete.
    object_up_to_key = f"{before_key}{key}: 0}}"
    if parse_json_object(object_up_to_key) is None:
        return ""

    # An escaped character that has arrived in part, such as `\u00`, is left out.
    characters = _WHOLE_CHARACTERS.match(after_key, value_start.end())
    return json.loads(f'"{characters[0]}"') if characters else ""
