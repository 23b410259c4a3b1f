"""Turns of a dialogue lend one another their scores: an answer often shares no word with what is asked of it.

    "Did you get the job?"  <── asked words ── query        an answer is found by the question before it:
    "Yes, I start Monday!"  <── half of that score          it gets .5 of its score, the turn after that .2

A turn gets shares of the scores of the two turns before it and of the one after it, as far as these belong to the same
dialogue (`Entry.dialogue`). Neighbours are entries that follow one another within a dialogue in the order of the
index, whatever was added between them. Shares are of a turn's own score: what it was lent it does not lend on.

Measured at commit b9d2176 on two LoCoMo conversations, one entry per turn, by `perf/retrieval.py`: the shares that are
best on one of them help on the other too.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from ..records import Record


class Shares(Record):
    """Which part of their scores the neighbours of a turn lend it, the nearest first."""

    before: tuple[float, ...] = (0.5, 0.2)
    """Of the turn before it, the one before that, ..."""
    after: tuple[float, ...] = (0.2,)
    """Of the turn after it, ..."""


ALONE = Shares(before=(), after=())
"""Every turn stands for itself."""


class Neighbours:
    """Which row of an index comes before and after which within its dialogue; kept up to date, one link at a time."""

    def __init__(self) -> None:
        self._before: array[int] = array("q")
        self._after: array[int] = array("q")
        self._dialogues: dict[int, str] = {}
        self._last: dict[str, int] = {}

    def put(self, row: int, dialogue: str) -> None:
        """Places a row in a dialogue, by its number; "" is no dialogue. A row that is there is moved."""
        if row < len(self._before) and self._dialogues.get(row, "") == dialogue:
            return
        self.drop(row)
        while row >= len(self._before):
            self._before.append(-1)
            self._after.append(-1)
        if not dialogue:
            return
        before, after = self._last.get(dialogue, -1), -1
        while before > row:
            before, after = self._before[before], before
        self._dialogues[row] = dialogue
        self._join(dialogue, before, row)
        self._join(dialogue, row, after)

    def put_all(self, rows: Sequence[int], dialogues: Sequence[str]) -> None:
        """Places rows behind all that are there, ascending, each in its dialogue."""
        new = [-1] * (rows[-1] + 1 - len(self._before)) if rows else []
        self._before.extend(new)
        self._after.extend(new)
        for row, dialogue in zip(rows, dialogues, strict=True):
            if dialogue:
                before = self._last.get(dialogue, -1)
                self._dialogues[row], self._before[row], self._last[dialogue] = dialogue, before, row
                if before >= 0:
                    self._after[before] = row

    def drop(self, row: int) -> None:
        """Takes a row out; its neighbours become those of one another."""
        dialogue = self._dialogues.pop(row, None)
        if dialogue is None:
            return
        before, after = self._before[row], self._after[row]
        self._before[row] = self._after[row] = -1
        if before < 0 and after < 0:
            del self._last[dialogue]
        else:
            self._join(dialogue, before, after)

    def kept(self, rows: Iterable[int]) -> Neighbours:
        """The neighbours of some rows, which are numbered anew."""
        new, dialogues = Neighbours(), [self._dialogues.get(row, "") for row in rows]
        new.put_all(range(len(dialogues)), dialogues)
        return new

    def lent(self, scores: np.ndarray, shares: Shares) -> np.ndarray:
        """Adds to the scores of rows, in place, what neighbours lend them."""
        if not self._last or not (shares.before or shares.after):
            return scores
        rows = np.flatnonzero(scores != 0)
        lent = scores[rows]
        for links, weights in ((self._after, shares.before), (self._before, shares.after)):
            at, own = rows, lent
            for weight in weights:
                at = np.frombuffer(links, np.int64)[at]
                at, own = at[at >= 0], own[at >= 0]
                # No two rows have the same neighbour on one side, so that nothing is added to a place twice at once.
                scores[at] += weight * own
        return scores

    def _join(self, dialogue: str, before: int, after: int) -> None:
        if before >= 0:
            self._after[before] = after
        if after >= 0:
            self._before[after] = before
        else:
            self._last[dialogue] = before
