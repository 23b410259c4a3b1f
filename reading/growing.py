"""The text of one output while the completion that holds it grows.

    "[[ ## reasoning ## ]] She sa"       nothing
    "id so. [[ ## answer ## ]] I mo"     "I mo"
    "ved. [["                            "ved. [", for the last bracket may be part of a mended marker

What is given is certain, whatever follows: put together it is the beginning of what `answer.read_answer` reads in the
end. Blanks at the end are held back, and what may become a header, an escape or a mended marker.

The same layouts are followed as are asked for: headers, one JSON object. An answer in another form gives nothing before
its end, and neither does one that says what it has to say in an odd way: a second object, an output twice. Of a JSON
object the beginning holds as long as the object is sound; who sends what is given on has to
compare it with what was read.
"""

from __future__ import annotations

import json
import re
from typing import Protocol

import dspy

from .answer import HEADER, THOUGHT, Layout, without_blanks
from .kinds import annotated

_LONG_RUN = 40
"""Blanks that become one, see `answer.without_blanks`; more need not be kept."""
_THOUGHTS = ("<think>", "<thinking>")
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>")
_PART_OF_HEADER = re.compile(
    r"^[ \t]{0,9}[\[【#*]{0,6}\s{0,9}[\[【]{0,2}\s{0,9}(?:[#＃](?:[#＃]\s{0,9}(?:\w{1,99}\s{0,9}"
    r"(?:[#＃](?:[#＃]\s{0,9}[\]】]{0,2}[ \t]*)?)?)?)?)?\Z",
    re.MULTILINE,
)
"""`answer.HEADER`, or a beginning of it, at the end of a text."""
_SIGNS = "#＃<["
"""What a mended marker begins with, see `markers`; a tilde follows."""
_UNITS = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
_PART_OF_UNIT = re.compile(r"\\(?:u(?:[0-9a-fA-F]{0,4}|[dD][89abAB][0-9a-fA-F]{2}\\(?:u[0-9a-fA-F]{0,4})?))?")


class _Reader(Protocol):
    """Finds the text of an output in a completion."""

    done: bool
    """Whether nothing more is given: the text has ended, or what follows is uncertain."""

    def read(self, said: str) -> str:
        """The further text, without escapes; the completion so far never ends with a blank."""
        ...


class Growing:
    """One output of an answer that is being written.

    Args:
        name: The output; one that `followed` allows.
        layout: How the outputs were asked for.
    """

    def __init__(self, name: str, layout: Layout = "headers") -> None:
        self._name, self._layout = name, layout
        self._blanks = ""
        self._before: str | None = ""
        self._reader: _Reader | None = None
        self._held = ""
        self._given = self._stuck = False

    def read(self, piece: str) -> str:
        """Takes the next piece of the completion.

        Returns:
            What is certain now of the output, beyond what was given before.
        """
        if self._stuck:
            return ""
        said = self._spoken(self._solid(piece))
        if not said:
            return ""
        if self._reader is None:
            self._reader = self._chosen(said)
        found = self._certain(self._reader.read(said))
        self._stuck = self._stuck or self._reader.done
        return found

    def stop(self) -> None:
        """Gives nothing more."""
        self._stuck = True

    def _solid(self, piece: str) -> str:
        """The text without long runs of blanks, up to its last letter."""
        text = self._blanks + piece
        solid = text.rstrip()
        run = text[len(solid) :]
        self._blanks = run if len(run) < _LONG_RUN else ("\n" if "\n" in run else " ") * _LONG_RUN
        return without_blanks(solid)

    def _spoken(self, text: str) -> str:
        """The text after what the model thinks before it speaks."""
        if self._before is None:
            return text
        self._before += text
        start = self._before.lstrip()
        if start and any(start.startswith(mark) for mark in _THOUGHTS):
            if not _THOUGHT_ENDS.search(self._before[-len(text) - len("</thinking>") :]):
                return ""
        elif any(mark.startswith(start) for mark in _THOUGHTS):
            return ""
        said, self._before = THOUGHT.sub("", self._before), None
        return said

    def _chosen(self, said: str) -> _Reader:
        return _Written(self._name) if self._layout == "json" and said.lstrip()[:1] == "{" else _Headed(self._name)

    def _certain(self, text: str) -> str:
        """What no mend of a marker, and no cutting of blanks at the ends, can change."""
        text = self._held + text
        strips = not isinstance(self._reader, _Written)
        if strips and not self._given:
            text = text.lstrip()
        mended = re.search(f"[{re.escape(_SIGNS)}]~", text)
        end = mended.start() if mended else len(text) - (text[-1:] in _SIGNS and bool(text))
        self._stuck = mended is not None
        certain = text[:end].rstrip() if strips else text[:end]
        self._held = text[len(certain) :]
        self._given = self._given or bool(certain)
        return certain


def followed(signature: type[dspy.Signature], name: str) -> bool:
    """Whether an output is a text that is given as it was written."""
    field = signature.output_fields.get(name)
    return field is not None and annotated(field) is str


class _Headed:
    """What stands behind the header of the output, up to the next header."""

    def __init__(self, name: str) -> None:
        self.done = False
        self._name = name.casefold()
        self._text, self._at = "", 0
        self._own = False

    def read(self, said: str) -> str:
        text, at, found = self._text + said, self._at, ""
        # A header at the very end may have more brackets to come.
        while not self.done and (header := HEADER.search(text, at)) and header.end() < len(text):
            if self._own:
                self.done, found = True, text[at : header.start()]
            elif header[1].casefold() == self._name:
                # **Answer: tea** loses the stars of its end.
                self._own, self.done = True, header[0].count("**") == 1
            at = header.end()
        if not self.done:
            part = _PART_OF_HEADER.search(text, at)
            end = part.start() if part else len(text)
            found = text[at:end] if self._own else ""
            # One letter more: a line begins where a line break stands before.
            kept = max(0, end - 1)
            self._text, self._at = text[kept:], end - kept
        return found


class _Written:
    """The text that is the value of a key of the one JSON object."""

    def __init__(self, name: str) -> None:
        self.done = False
        self._key = json.dumps(name)
        self._text, self._at = "", 0
        self._own = False

    def read(self, said: str) -> str:
        self._text += said
        if not self._own and not self._begins():
            return ""
        run = _UNITS.match(self._text, self._at)
        found = json.loads(f'"{run[0]}"') if run else ""
        self._text, self._at = self._text[run.end() if run else 0 :], 0
        self.done = bool(self._text) and not _PART_OF_UNIT.fullmatch(self._text)
        return found

    def _begins(self) -> bool:
        """Whether the value is being written; the first key of the name decides."""
        start = self._text.find(self._key, self._at)
        if start < 0:
            self._at = max(0, len(self._text) - len(self._key))
            return False
        self._at = start
        value = re.compile(r"\s*(:\s*(\"?))?").match(self._text, start + len(self._key))
        if value is None or (value.end() == len(self._text) and not value[2]):
            return False
        # Of the object itself, and not of one inside it or of a text.
        self._own = bool(value[2]) and _is_object(f"{self._text[:start]}{self._key}: 0}}")
        self.done, self._at = not self._own, value.end()
        return self._own


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
