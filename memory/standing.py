"""Filters that an index remembers: what one says of an entry is asked once, and not at every search.

A filter is any pure function of an entry. One that is a `Standing` is equal to another of the same meaning, so that an
index of ten thousand facts need not ask each of them again which speaker it is of.

Example:
    >>> from mempiler.memory.index import Entry
    >>> from mempiler.memory.standing import Spoken
    >>> Spoken("Ada")(Entry(id="1", text="I moved", speaker="Ada")), Spoken("Ada") == Spoken("Ada")
    (True, True)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .index import Entry

MOST = 32
"""Filters that an index remembers, those used last."""
UNKNOWN = -1


class Standing:
    """Base of filters that are compared by what they mean; subclasses are frozen dataclasses."""

    def __call__(self, entry: Entry) -> bool:
        """Whether an entry may be found."""
        raise NotImplementedError


@dataclass(frozen=True)
class Spoken(Standing):
    """Entries of one speaker, or of everybody else."""

    speaker: str
    same: bool = True

    def __call__(self, entry: Entry) -> bool:
        return (entry.speaker == self.speaker) is self.same


class Masks:
    """What filters said of the rows of an index; not locked."""

    def __init__(self) -> None:
        self._said: OrderedDict[Standing, np.ndarray] = OrderedDict()

    def passed(self, where: Standing, rows: np.ndarray, entry: Callable[[int], Entry]) -> np.ndarray:
        """The rows that a filter lets pass, of some that are in use.

        Args:
            where: The filter.
            rows: Numbers of rows, ascending.
            entry: The entry of a row.
        """
        said = self._said.pop(where, np.empty(0, np.int8))
        last = int(rows[-1]) if len(rows) else -1
        if last >= len(said):
            room = np.full(max(2 * len(said), last + 1), UNKNOWN, np.int8)
            room[: len(said)] = said
            said = room
        for row in map(int, rows[said[rows] == UNKNOWN]):
            said[row] = where(entry(row))
        self._said[where] = said
        if len(self._said) > MOST:
            self._said.popitem(last=False)
        return rows[said[rows] == 1]

    def changed(self, row: int) -> None:
        """Notes that a row has another entry."""
        for said in self._said.values():
            if row < len(said):
                said[row] = UNKNOWN

    def clear(self) -> None:
        """Notes that all rows are others."""
        self._said.clear()
