"""Repairs of an answer, and the error for what cannot be repaired."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

RepairKind = Literal[
    "layout",
    "shape",
    "cast",
    "spelling",
    "id",
    "unknown id",
    "null",
    "field",
    "element",
    "cut",
]
"""What was repaired:

    layout      other headings, a fence, JSON between sentences or with slips of the pen
    shape       one object in place of a list, one object per line, a list inside an object
    cast        a number in place of a text, a text of digits in place of a number, "yes" for true
    spelling    one of the allowed values, spelled differently
    id          an id of the prompt with decoration, or as a bare number
    unknown id  an id that the prompt did not show; left out of lists
    null        null for a field that has a default; the default was taken
    field       a field that was missing or unreadable; its default was taken
    element     an unreadable element of a list; left out
    cut         an answer that ended too early, or brackets that nobody closed; read up to its end
"""

_PREVIEW_LENGTH = 60


@dataclass(frozen=True)
class Repair:
    """One thing that was repaired or left out."""

    kind: RepairKind

    path: str
    """Where the value stands in the answer, e.g. "facts[2].type"; empty for the whole answer."""


class RepairLog:
    """The repairs of one answer, in the order in which they were made."""

    def __init__(self) -> None:
        self.entries: list[Repair] = []

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, kind: RepairKind, path: str) -> None:
        """Count a repair."""
        self.entries.append(Repair(kind, path))

    def has_unknown_id(self, path: str) -> bool:
        """Say whether the last repair was an unknown id at this path."""
        return bool(self.entries) and self.entries[-1] == Repair("unknown id", path)

    def truncate(self, length: int) -> None:
        """Keep only the first repairs: those after them concern a value that is not used."""
        del self.entries[length:]


class UnreadableError(ValueError):
    """Raised if a value cannot be read and nothing may take its place."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}" if path else reason)


def preview(value: object) -> str:
    """Return the beginning of a value as JSON, short enough for an error message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= _PREVIEW_LENGTH:
        return text
    return f"{text[: _PREVIEW_LENGTH - 3]}..."
