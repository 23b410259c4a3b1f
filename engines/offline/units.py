"""The pieces of an input: items of a JSON list, lines with a head, or sentences.

The line `[D1:3] (8 May 2023) Ann: I moved` has an id, a time, a speaker and a body.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .words import sentences

_BULLET_OR_NUMBER = r"(?:[-*•#]+\s+|(\d+)[.)]\s+)?"
_ID = r"(?:\[([^\s\[\]]+)\]\s*)?"
_TIME = r"(?:\(([^()]{0,99}\b(?:19|20)\d\d\b[^()]{0,99})\)\s*)?"
_SPEAKER = r"(?:([^\W\d_][\w.'#-]*(?: [\w.'#-]+){0,2})[:：]\s+(?=\S))?"
_LINE = re.compile(rf"\s*{_BULLET_OR_NUMBER}{_ID}{_TIME}{_SPEAKER}(.*)", re.DOTALL)


@dataclass(frozen=True)
class Unit:
    """A piece of an input; what its head does not say is ""."""

    body: str
    id: str = ""
    speaker: str = ""
    time: str = ""

    @property
    def has_head(self) -> bool:
        """Whether anything but the body is known."""
        return bool(self.id or self.speaker or self.time)

    @property
    def text(self) -> str:
        """The body, with the speaker in front if there is one."""
        if self.speaker:
            return f"{self.speaker}: {self.body}"
        return self.body


def read_units(text: str) -> list[Unit]:
    """Cut an input into units.

    They are the items of a JSON list; else the lines, if most of them begin with an id, a time or a
    speaker (a head); else the sentences.
    """
    if text.startswith(("[", "{")):
        value = parse_json(text)
        if not isinstance(value, str):  # a text that only begins like JSON is read as lines
            return _units_of_json(value)

    # DSPy sets texts of several lines between the quotation marks « and ».
    lines = [line.strip() for line in text.strip("«»").splitlines()]
    units = [_read_line(line) for line in lines if line]
    headed_units = [unit for unit in units if unit.has_head]
    if 2 * len(headed_units) > len(units):
        return units
    return [Unit(sentence) for sentence in sentences(text)]


def parse_json(text: str) -> Any:
    """Return the value that a text is in JSON, or the text itself if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def clear_line_cache() -> None:
    """Drop the lines that this process keeps."""
    _read_line.cache_clear()


def _units_of_json(value: Any) -> list[Unit]:
    """Return the units of a JSON list, or the one of any other value."""
    items = value if isinstance(value, list) else [value]
    units: list[Unit] = []
    for item in items:
        if isinstance(item, dict):
            units.append(_unit_of_record(item))
        else:
            units.append(_read_line(str(item)))
    return units


@functools.lru_cache(maxsize=20_000)
def _read_line(line: str) -> Unit:
    """Split a line into its head and its body."""
    match = _LINE.match(line)
    assert match is not None, "every part of the pattern may be empty"
    number, unit_id, time, speaker, body = match.groups(default="")
    return Unit(body.strip(), unit_id or number, speaker, time)


def _unit_of_record(record: Mapping[str, Any]) -> Unit:
    """Return a JSON object as a unit.

    Keys that end in `id`, `speaker`, `time` or `date` hold the head. The longest other text is the
    body.
    """
    texts: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, str):
            role = key.rpartition("_")[2]
            texts[role] = value

    unit_id = texts.pop("id", "")
    speaker = texts.pop("speaker", "")
    time = texts.pop("time", "")
    date = texts.pop("date", "")
    body = max(texts.values(), key=len, default=json.dumps(record))
    return Unit(body, unit_id, speaker, time or date)
