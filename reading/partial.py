"""Parses one output field while the completion that holds it is still growing.

What is given is certain, whatever follows: blanks at the end are held back, and what may become a header, an escape or
a mended marker. An answer in another form than was asked for gives nothing before its end.
"""

from __future__ import annotations

import json
import re

import dspy

from .answer import HEADER, THOUGHT, Layout, json_object, without_blanks
from .kinds import annotated, plain

MOST = 50_000
"""Characters of a completion that are followed."""
_THOUGHTS = ("<think>", "<thinking>")
_PART_OF_HEADER = re.compile(
    r"^[ \t]{0,9}[\[【#*]{0,6}\s{0,9}[\[【]{0,2}\s{0,9}(?:[#＃](?:[#＃]\s{0,9}(?:\w{1,99}\s{0,9}"
    r"(?:[#＃](?:[#＃]\s{0,9}[\]】]{0,2}[ \t]*)?)?)?)?)?\Z",
    re.MULTILINE,
)
"""`answer.HEADER`, or a beginning of it, at the end of a text."""
_MENDED = re.compile(r"[#＃<\[](?:~|\Z)")
"""A mended marker, see `markers`, or what may become one."""
_VALUE = re.compile(r'\s*:\s*"')
_UNITS = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""The beginning of a JSON text that holds whole letters only."""


class PartialAnswer:
    """One output, which `followed` allows, of an answer that is being written."""

    def __init__(self, name: str, layout: Layout = "headers") -> None:
        self._name, self._layout = name, layout
        self._text = self._given = ""
        self._looked = 0
        self._stopped = False

    def read(self, piece: str) -> str:
        """What is certain of the output with the next piece of the completion, beyond what was given before."""
        self._text += piece
        if len(self._text) > MOST:
            self.stop()
        if self._stopped or len(self._text) - self._looked < len(self._text) // 100:
            return ""
        self._looked = len(self._text)
        certain = self._certain(_spoken(without_blanks(self._text.rstrip())))
        given, self._given = self._given, certain
        self._stopped = not certain.startswith(given)
        return "" if self._stopped else certain[len(given) :]

    def stop(self) -> None:
        """Gives nothing more."""
        self._stopped, self._text = True, ""

    def _certain(self, said: str) -> str:
        written = self._layout == "json" and said.lstrip()[:1] == "{"
        text = _written(self._name, said) if written else _headed(self._name, said).lstrip()
        mended = _MENDED.search(text)
        text = text[: mended.start()] if mended else text
        return text if written else text.rstrip()


def followed(signature: type[dspy.Signature], name: str) -> bool:
    """Whether an output is a text that is given as it was written."""
    field = signature.output_fields.get(name)
    return field is not None and annotated(field) is str


def _spoken(text: str) -> str:
    """The text after what the model thinks before it speaks; nothing as long as it may be thinking."""
    start = text.lstrip()
    if any(mark.startswith(start) for mark in _THOUGHTS):
        return ""
    said = THOUGHT.sub("", text)
    return "" if said == text and start.startswith(_THOUGHTS) else said


def _headed(name: str, text: str) -> str:
    """What stands behind the header of an output, up to the next header, or to what may become one."""
    begin = None
    for header in HEADER.finditer(text):
        if begin is not None:
            return text[begin : header.start()]
        if plain(header[1]) == plain(name):
            # **Answer: tea** loses the stars of its end.
            if header[0].count("**") == 1:
                return ""
            begin = header.end()
    if begin is None:
        return ""
    part = _PART_OF_HEADER.search(text, begin)
    return text[begin : part.start() if part else len(text)]


def _written(name: str, text: str) -> str:
    """The text that is the value of a key of the one JSON object; the first key of the name decides."""
    before, key, after = text.partition(json.dumps(name))
    value = _VALUE.match(after)
    # Of the object itself, and not of one inside it or of a text.
    if value is None or json_object(f"{before}{key}: 0}}") is None:
        return ""
    units = _UNITS.match(after, value.end())
    return json.loads(f'"{units[0]}"') if units else ""
