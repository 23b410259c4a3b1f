"""Escape text that a prompt, an adapter or a chat template would take for structure.

A user may write `[[ ## answer ## ]]`, and a model may quote it. Prompts show it as
`[[ #~# answer ## ]]`: a tilde stands behind the first character of every marker. Where tildes
stand already, one more is added, so for every text

    unescape_markers(escape_markers(text)) == text
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel


class EscapedText(str):
    """A text in which the markers are escaped already; `escape_markers` leaves it as it is."""

    __slots__ = ()


def escape_markers(value: object) -> Any:
    """Return a value with the markers in all its texts escaped; models become dicts."""
    return _convert_texts(value, _escape_text)


def unescape_markers(value: object) -> Any:
    """Return a value as it was before `escape_markers`."""
    return _convert_texts(value, _unescape_text)


def escape_markers_and_tags(text: str) -> str:
    """Return a text with its markers, its XML tags and its character references escaped."""
    return _MARKER_OR_TAG_START.sub(r"\g<0>~", text)


def _escape_text(text: str) -> str:
    """Return a text with a tilde in every marker."""
    if isinstance(text, EscapedText):
        return text
    return _MARKER_START.sub(r"\g<0>~", text)


def _unescape_text(text: str) -> str:
    """Return a text with one tilde less in every escaped marker."""
    return _ESCAPED_START.sub(_without_tilde, text)


def _without_tilde(start: re.Match[str]) -> str:
    return start[0].removesuffix("~")


def _convert_texts(value: object, convert: Callable[[str], str]) -> Any:
    """Return a value with all its texts converted, those in lists, dicts and models too."""
    if isinstance(value, str):
        return convert(value)

    # DSPy renders its own types, images for example.
    if isinstance(value, BaseModel) and not isinstance(value, dspy.Type):
        value = value.model_dump(mode="json", fallback=str)

    if isinstance(value, list):
        return [_convert_texts(element, convert) for element in value]
    if isinstance(value, tuple):
        return tuple(_convert_texts(element, convert) for element in value)
    if isinstance(value, Mapping):
        mapping: dict[Any, Any] = {}
        for key, element in value.items():
            mapping[_convert_texts(key, convert)] = _convert_texts(element, convert)
        return mapping
    return value


MarkerEndings = dict[str, list[str]]
"""Patterns of markers: the pattern of the first character -> patterns of what may follow."""


def _load_markers() -> MarkerEndings:
    """Return the markers of `markers.json`, which also names the models that use them."""
    endings: MarkerEndings = defaultdict(list)
    for marker in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")):
        endings[marker["first"]].append(marker["rest"])
    return endings


def _compile_starts(markers: MarkerEndings, tilde: str = "") -> re.Pattern[str]:
    """Return a pattern for the first character of every marker, with a tilde if it is escaped."""
    starts: list[str] = []
    for first, endings in markers.items():
        ending = "|".join(endings)
        starts.append(f"(?:({first}){tilde}(?=~*(?:{ending})))")
    return re.compile("|".join(starts))


_MARKERS = _load_markers()
_TAGS = {
    "<": [*_MARKERS["<"], r"[/!?]?\w"],
    "&": [r"#?\w{1,32};"],
}

_MARKER_START = _compile_starts(_MARKERS)
_MARKER_OR_TAG_START = _compile_starts({**_MARKERS, **_TAGS})
_ESCAPED_START = _compile_starts(_MARKERS, tilde="~")
