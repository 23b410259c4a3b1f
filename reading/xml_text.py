"""Outputs in tags, as `dspy.XMLAdapter` asks for them: `<answer>text</answer>`, nested values as elements.

<facts><item><speaker>Ann</speaker></item></facts>     a list with one object
<answer>Tom &amp; Ann                                   without an end: up to the next output, or the end
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any, get_origin
from xml.sax.saxutils import unescape

import dspy

DEEPEST = 50
"""Most elements inside one another; deeper ones are left out."""
_NAMED = {"&quot;": '"', "&apos;": "'"}


def tagged(signature: type[dspy.Signature], text: str) -> dict[str, Any]:
    """The text, or nested value, of each output that has a tag, in any case; the first of a name counts."""
    plain = {name.casefold(): name for name in signature.output_fields}
    opening = opening_of(signature)
    found: dict[str, Any] = {}
    at = 0
    while (start := opening.search(text, at)) is not None:
        name = plain[start[1].casefold()]
        if name in found:
            at = start.end()
            continue
        closing = re.compile(rf"</{name}>", re.IGNORECASE).search(text, start.end())
        end = closing.start() if closing else -1
        if end < 0:
            following = opening.search(text, start.end())
            end = following.start() if following else len(text)
        inside = "" if start[2] else text[start.end() : end]
        at = start.end() if start[2] else end
        found[name] = _value(inside.strip(), signature.output_fields[name].annotation)
    return found


def opening_of(signature: type[dspy.Signature]) -> re.Pattern[str]:
    """What opens an output: its name, and whether it is closed at once."""
    names = "|".join(map(re.escape, signature.output_fields))
    return re.compile(rf"<({names})(?:\s[^<>]{{0,200}})?(/?)>", re.IGNORECASE)


def unescaped(text: str) -> str:
    """A text without XML's escapes."""
    return unescape(text, _NAMED)


def _value(inside: str, annotation: Any) -> Any:
    if annotation is not str and "<" in inside:
        try:
            return _parts(ET.fromstring(f"<all>{inside}</all>"))
        except ET.ParseError:
            pass
    if not inside and get_origin(annotation) in (list, tuple, set):
        return []
    return unescaped(inside)


def _parts(element: ET.Element, depth: int = 0) -> Any:
    children = list(element) if depth < DEEPEST else []
    if not children:
        return (element.text or "").strip()
    values = [_parts(child, depth + 1) for child in children]
    names = [child.get("key", child.tag) if child.tag == "entry" else child.tag for child in children]
    if set(names) == {"item"} or len(names) > len(set(names)):
        return values
    return dict(zip(names, values, strict=True))
