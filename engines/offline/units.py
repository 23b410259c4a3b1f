"""Units: the pieces an input field is made of, one per line, list item or record, with what its head says.

A line such as `[D1:3] (8 May 2023) Ann: I moved` is a unit with an id, a date, a speaker and a body. A JSON record
is read by the form of its values, not by their names: the longest text is the body, a short unique token the id, a
value that is a date the date, a capitalised short text the speaker. A line that is little more than a date is a
heading and dates the lines below it.

Example:
    >>> unit = read_units("[D1:3] (8 May 2023) Ann: I moved")[0]
    >>> unit.id, unit.speaker, unit.body
    ('D1:3', 'Ann', 'I moved')
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any

from .dates import parse_date
from .text import Stems, sentences, stems

_BULLET = re.compile(r"\s*(?:[-*•]\s+|#+\s+|(\d{1,3})[.)]\s+)")
_BRACKET = re.compile(r"\s*(?:\[([^\[\]]{1,60})\]|\(([^()]{1,60})\))\s*")
_STAMP = re.compile(r"\s*(\d{4}[-/]\d{1,2}[-/]\d{1,2}(?:[ T]\d{1,2}:\d\d(?::\d\d)?)?)(?:[:,|]\s*|\s+(?=\S))")
_SPEAKER = re.compile(r"\s*([^\W\d_][\w.'#-]*(?: [\w.'#-]+){0,2})(?: ?\(([^()]{6,60})\))?[:：]\s+(?=\S)")
_ID = re.compile(r"(?=[^\s]*\d)[\w.:#/-]{1,40}$")
_ARROW = re.compile(r"\s*(?:=>|->|→|⇒)\s*")
_QUOTED_ITEM = re.compile(r"^\[\d+\] (?=«)", re.M)


@dataclass(frozen=True)
class Unit:
    """One line, list item or record of an input."""

    body: str
    id: str | None = None
    speaker: str | None = None
    when: str = ""
    """The date of its head as written there."""
    item: Mapping[str, Any] | None = None
    """The record it was read from, if it was one."""
    cites: tuple[str, ...] = ()
    """Ids of the units that it was made from, if it was made from several."""

    @cached_property
    def date(self) -> date | None:
        """The day of its head."""
        return parse_date(self.when) if self.when else None

    @cached_property
    def stems(self) -> Stems:
        """Stems of the speaker and the body."""
        return stems(f"{self.speaker or ''} {self.body}")

    @cached_property
    def sentences(self) -> tuple[tuple[str, Stems], ...]:
        """The sentences of the body with their stems."""
        return tuple((sentence, stems(sentence)) for sentence in sentences(self.body))

    @cached_property
    def case(self) -> tuple[str, str]:
        """A case and what came of it, where an arrow stands between them: `rain => took the bus`; else the body, ""."""
        parts = _ARROW.split(self.body)
        return (" ".join(parts[:-1]), parts[-1]) if len(parts) > 1 else (self.body, "")

    @cached_property
    def case_stems(self) -> Stems:
        """Stems of the case, without what came of it."""
        return stems(self.case[0])

    @cached_property
    def outcome_stems(self) -> Stems:
        """Stems of what came of the case."""
        return stems(self.case[1])

    @property
    def said(self) -> str:
        """The body, with its speaker in front if there is one."""
        return f"{self.speaker}: {self.body}" if self.speaker else self.body


@dataclass(frozen=True)
class Source:
    """An input field cut into units."""

    name: str
    text: str
    units: tuple[Unit, ...]
    is_list: bool
    """A JSON list, or lines that begin like items (an id, a date, a speaker, a bullet)."""


def read_source(name: str, text: str) -> Source:
    """Cuts one input field into units."""
    units = tuple(read_units(text))
    lines = [line for line in text.splitlines() if line.strip()]
    heads = sum(bool(_BULLET.match(line) or _head(line).body != line.strip()) for line in lines)
    is_list = (
        isinstance(_json(text), list) or bool(_QUOTED_ITEM.match(text)) or (len(lines) > 0 and heads == len(lines))
    )
    return Source(name, text.strip(), units, is_list or (len(lines) > 2 and heads * 2 > len(lines)))


def read_units(text: str) -> list[Unit]:
    """The units of a text: items of a JSON list, records, or lines."""
    parsed = _json(text)
    if isinstance(parsed, dict):
        lists = [value for value in parsed.values() if isinstance(value, list) and value]
        parsed = lists[0] if lists else [parsed]
    if isinstance(parsed, list):
        return [unit for unit in map(_from_value, parsed) if unit.body]
    if _QUOTED_ITEM.match(text):
        items = (part.strip().strip("«»").strip() for part in _QUOTED_ITEM.split(text))
        return [_head(item) for item in items if item]
    return _from_lines(text.strip().strip("«»") if text.lstrip().startswith("«") else text)


def plain_text(text: str) -> str:
    """A text as it is, or, if it is JSON, the strings in it, one per line."""
    parsed = _json(text)
    return text if parsed is None else "\n".join(_leaves(parsed))


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _from_lines(text: str) -> list[Unit]:
    units: list[Unit] = []
    heading = ""
    for line in text.splitlines():
        unit = _head(line)
        if not (unit.id or unit.speaker or unit.when) and parse_date(line) and len(line.split()) <= 7:
            heading = line.strip()
        elif unit.body:
            units.append(unit if unit.when or not heading else replace(unit, when=heading))
    return units or ([Unit(body=text.strip())] if text.strip() else [])


@functools.lru_cache(maxsize=20_000)
def _head(line: str) -> Unit:
    """Peels bullet, id, date and speaker off the front of a line; what is left is the body.

    Kept, since prompts about one memory repeat their lines: a unit is read, and its words are stemmed, once.
    """
    at, found = 0, {"id": "", "when": "", "speaker": ""}
    if bullet := _BULLET.match(line):
        at, found["id"] = bullet.end(), bullet[1] or ""
    while match := (_STAMP.match(line, at) or _BRACKET.match(line, at)):
        inside = next(group for group in match.groups() if group)
        if parse_date(inside) and not found["when"]:
            found["when"] = inside
        elif match.re is _BRACKET and match[1] and " " not in inside and not found["speaker"]:
            found["id"] = inside
        else:
            break
        at = match.end()
    if (speaker := _SPEAKER.match(line, at)) and (not speaker[2] or parse_date(speaker[2])):
        at, found["speaker"] = speaker.end(), speaker[1]
        found["when"] = found["when"] or speaker[2] or ""
    return Unit(line[at:].strip(), found["id"] or None, found["speaker"] or None, found["when"])


def _from_value(value: Any) -> Unit:
    if isinstance(value, dict):
        return _from_record(value)
    return _head(value) if isinstance(value, str) else Unit(body=" ".join(_leaves(value)) or json.dumps(value))


def _from_record(record: dict[str, Any]) -> Unit:
    texts = {key: str(value) for key, value in record.items() if isinstance(value, (str, int)) and str(value)}
    when = next((key for key, text in texts.items() if len(text) <= 40 and parse_date(text)), "")
    named = [key for key in texts if key.split("_")[-1].lower() == "id"]
    identity = next(iter(named), "") or next(
        (key for key, text in texts.items() if _ID.match(text) and key != when), ""
    )
    rest = {key: text for key, text in texts.items() if key not in (when, identity)}
    body = max(rest, key=lambda key: len(rest[key]), default=identity)
    speaker = next((key for key in rest if key != body and _is_name(rest[key])), "")
    head = _head(texts.get(body) or " ".join(_leaves(record)))
    return Unit(
        body=head.body,
        id=texts.get(identity) or head.id,
        speaker=texts.get(speaker) or head.speaker,
        when=texts.get(when) or head.when,
        item=record,
    )


def _leaves(value: Any) -> list[str]:
    if isinstance(value, (dict, list)):
        parts = value.values() if isinstance(value, dict) else value
        return [text for part in parts for text in _leaves(part)]
    return [value] if isinstance(value, str) else []


def _is_name(text: str) -> bool:
    return text[:1].isupper() and len(text.split()) <= 3 and not any(c.isdigit() for c in text)
