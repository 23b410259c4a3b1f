"""What had to be mended to read an answer, and what could not be mended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MendKind = Literal["layout", "shape", "cast", "spelling", "id", "unknown id", "null", "field", "element", "cut"]
"""Mends by kind:

    layout      fields given as JSON, in a fence or under other headings than asked for; JSON between sentences, with
                slips of writing
    shape       one object where a list is due, objects line by line, a list inside an object, a dict keyed by id
    cast        a number where a text is due, a number in words of digits, yes for true
    spelling    a defined value in another spelling
    id          a shown id with decoration, or as a bare number
    unknown id  an id that was not shown; dropped
    null        nothing where a value is due; the field's default
    field       a field that cannot be read, or is not there; its default
    element     an element of a list that cannot be read; dropped
    cut         a text that ended for want of room, also with more room; brackets that nobody
                closed; kept as far as it goes
"""


@dataclass(frozen=True)
class Mend:
    """One thing that was put right, or left out."""

    kind: MendKind
    where: str
    """Path of the value, e.g. "facts[2].type"."""


class UnreadableError(ValueError):
    """Raised if a value cannot be read and nothing may stand in for it."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        super().__init__(f"{where}: {why}" if where else why)
