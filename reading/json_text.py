"""JSON as models write it: in a fence, between sentences, one object a line, in other quotes, with slips, or cut off.

{"speaker": "Ann"}          two values, one a line: a list of both
{"speaker": "Bob"}
[{“speaker”: “Ann”}]        quotes of print
[{'speaker': 'Ann'},]       what Python writes
[{"speaker": "Ann", "fa     ends in the middle: cannot be read, since what is missing would be lost without a word
"""

from __future__ import annotations

import ast
import json
import re
import threading
from collections.abc import Callable
from typing import Any, Literal

import json_repair

from .mends import UnreadableError

Slip = Literal["layout", "shape", "cut"]
PARSING = threading.Lock()
"""Held while Python text is parsed: Python 3.11 fails with a SystemError where two threads do that at once."""
_FENCE = re.compile(r"```[\w-]{0,20}[ \t]{0,9}\n?(.*?)```", re.DOTALL)
DEEPEST = 100
"""Most brackets inside one another; an answer of more is not read."""
_PRINTED = re.compile(r"(?<=[\[{,:])(\s*)[“”„]|[“”](?=\s*[\]},:])")
_BETWEEN = re.compile(r"[\s,;]*(?:(?:[-*•]|\d+[.)])\s+)?(?=[{\[])")


def bare_json(text: str) -> Any:
    """The JSON value that a text is, or holds in a fence; None where there is none, or only the beginning of one."""
    try:
        return _held(text, lambda slip: None)
    except UnreadableError:
        return None


def parsed(text: str, note: Callable[[Slip], None]) -> Any:
    """The value that a text writes, or the text itself.

    Args:
        text: Text of a field.
        note: Called with what had to be put right.

    Raises:
        UnreadableError: The text ends in the middle of a value.
    """
    fenced = _FENCE.fullmatch(text.strip())
    bare = fenced[1].strip() if fenced else text.strip()
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        pass
    if fenced and "```" in bare:
        bare = text.strip()
    if bare[:1] in ("[", "{", "("):
        found = _loosely(bare, note)
        return found if isinstance(found, dict | list | tuple | set) and found else bare
    held = _held(bare, note)
    return bare if held is None else held


def literal(text: str) -> Any:
    """The value of a Python literal.

    Raises:
        ValueError, SyntaxError, TypeError, MemoryError, RecursionError: It is none.
    """
    with PARSING:
        return ast.literal_eval(text)


def _held(text: str, note: Callable[[Slip], None]) -> Any:
    for part in [*reversed(_FENCE.findall(text)), text]:
        part = part.strip()
        start = min((n for n in (part.find("{"), part.find("[")) if n >= 0), default=-1)
        if start < 0:
            continue
        found = _loosely(part[start:], note)
        if isinstance(found, dict | list) and found:
            return found
        if part in ("[]", "{}"):
            return json.loads(part)
    return None


def _loosely(text: str, note: Callable[[Slip], None]) -> Any:
    """The value, or values, at the beginning of a text that begins with a bracket."""
    text = text.rstrip()
    if _deepest(text) > DEEPEST:
        raise UnreadableError("", f"more than {DEEPEST} brackets inside one another")
    for written in dict.fromkeys((text, _PRINTED.sub(r'\1"', text))):
        values = _values(written)
        if values:
            note("shape" if len(values) > 1 else "layout")
            return values if len(values) > 1 else values[0]
    note("layout")
    try:
        return literal(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    text = _PRINTED.sub(r'\1"', text)
    open_at_end, in_text = _end(text)
    if open_at_end and text[-1] not in "]})":
        raise UnreadableError("", "the answer ends in the middle of its JSON")
    if open_at_end and not in_text:
        note("cut")
    try:
        return json_repair.loads(text)
    except (ValueError, RecursionError):
        return None


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


def _deepest(text: str) -> int:
    """How many brackets stand inside one another at most, those in quoted texts included."""
    depth = deepest = 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        deepest = max(deepest, depth)
    return deepest


def _end(text: str) -> tuple[bool, bool]:
    """Whether brackets are open at the end of a text, and whether it ends inside a quoted text."""
    depth, quoted, escaped = 0, False, False
    for letter in text:
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = quoted
        elif letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in "[{") - (letter in "]}")
    return quoted or depth > 0, quoted
