"""JSON as models write it: in a fence, between sentences, one object a line, in other quotes, with slips, or cut off.

What ends in the middle cannot be read, since what is missing would be lost without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import json_repair

from .kinds import UnreadableError

Slip = Literal["layout", "shape", "cut"]
LOOSEST = 20_000
"""Most characters of a text that is read with repairs."""
LOOKS = 250_000
"""How often the repairs of one answer may look at a letter: of some texts they take the square, or the cube."""
_FENCE = re.compile(r"```[\w-]{0,20}[ \t]{0,9}\n?(.*?)```", re.DOTALL)
_BETWEEN = re.compile(r"[\s,;]*(?:(?:[-*•]|\d+[.)])\s+)?(?=[{\[])")


def bare_json(text: str) -> Any:
    """The JSON value that a text is, or holds in a fence; None where there is none, or only the beginning of one."""
    try:
        return _held(text, lambda slip: None, iter(range(LOOKS)))
    except UnreadableError:
        return None


def parsed(text: str, note: Callable[[Slip], None], looks: Iterator[int]) -> Any:
    """The value that the text of a field writes, or the text itself; `note` is called with what had to be put right.

    Raises:
        UnreadableError: The text ends in the middle of a value, or is no sound JSON and too long to be repaired.
    """
    fenced = _FENCE.fullmatch(text.strip())
    bare = fenced[1].strip() if fenced else text.strip()
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        pass
    # Of several fences the last counts: a draft may come first.
    several = fenced is not None and "```" in bare
    if bare[:1] in ("[", "{", "(") and not several:
        found = _loosely(bare, note, looks)
        return found if isinstance(found, dict | list | tuple | set) and found else bare
    held = _held(text if several else bare, note, looks)
    return bare if held is None else held


def _held(text: str, note: Callable[[Slip], None], looks: Iterator[int]) -> Any:
    for part in [*reversed(_FENCE.findall(text)), text]:
        part = part.strip()
        start = min((n for n in (part.find("{"), part.find("[")) if n >= 0), default=-1)
        if start < 0:
            continue
        found = _loosely(part[start:], note, looks)
        if isinstance(found, dict | list) and found:
            return found
        if part in ("[]", "{}"):
            return json.loads(part)
    return None


def _loosely(text: str, note: Callable[[Slip], None], looks: Iterator[int]) -> Any:
    """The value, or values, at the beginning of a text that begins with a bracket."""
    text = text.rstrip()
    values = _values(text)
    if values:
        note("shape" if len(values) > 1 else "layout")
        return values if len(values) > 1 else values[0]
    if len(text) > LOOSEST:
        raise UnreadableError("", f"{len(text):,} characters that are no sound JSON, more than {LOOSEST:,}")
    note("layout")
    open_at_end, in_text = _end(text)
    if open_at_end and text[-1] not in "]})":
        raise UnreadableError("", "the answer ends in the middle of its JSON")
    if open_at_end and not in_text:
        note("cut")
    try:
        return json_repair.loads(_Watched(text, looks))
    except Exception:  # It raises what it likes, an AssertionError for one; and `_Watched` a StopIteration.
        return None


class _Watched(str):
    """A text whose letters can be looked at so often only, which is how json_repair reads, and what is cut from it."""

    _looks: Iterator[int]

    def __new__(cls, text: str, looks: Iterator[int]) -> _Watched:
        new = super().__new__(cls, text)
        new._looks = looks
        return new

    def __getitem__(self, at: Any) -> str:
        next(self._looks)
        found = super().__getitem__(at)
        return _Watched(found, self._looks) if isinstance(at, slice) else found

    def __add__(self, other: str) -> str:
        return _Watched(super().__add__(other), self._looks)


def _values(text: str) -> list[Any]:
    """The JSON values that follow one another at the beginning of a text; of several only objects count."""
    found: list[Any] = []
    at, decoder = 0, json.JSONDecoder()
    while between := _BETWEEN.match(text, at):
        try:
            value, at = decoder.raw_decode(text, between.end())
        except (ValueError, RecursionError):
            # What follows is a value too, but not a sound one: the whole is read loosely.
            return [] if found and isinstance(found[0], dict) and text[between.end()] == "{" else found
        found.append(value)
    return found if all(isinstance(value, dict) for value in found) else found[:1]


def _end(text: str) -> tuple[bool, bool]:
    """Whether brackets are open at the end of a text, and whether it ends inside a quoted text."""
    depth, quote, escaped = 0, "", False
    for letter in text:
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = bool(quote)
        elif letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        elif not quote:
            depth += (letter in "[{") - (letter in "]}")
    return bool(quote) or depth > 0, bool(quote)
