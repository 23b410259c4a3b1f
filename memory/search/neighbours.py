"""Turns of one dialogue share their scores with their neighbours.

An answer often lacks the words of the question before it ("Where did you go?" - "To Lisbon."). So
each turn gets a share of what the turns around it score by themselves:

    >>> import numpy as np
    >>> from mempiler.memory.search.neighbours import Neighbours
    >>> neighbours = Neighbours({1: 0.5, -1: 0.2})
    >>> for row, dialogue in enumerate(["monday", "monday", "monday", "friday"]):
    ...     neighbours.set_dialogue(row, dialogue)
    >>> scores = np.array([0.0, 10.0, 0.0, 0.0])
    >>> neighbours.smoothing().smoothed(scores).tolist()
    [2.0, 10.0, 5.0, 0.0]
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_NO_DIALOGUE = -1
"""The number that stands for no dialogue."""


class Neighbours:
    """Keeps of which dialogue each row of an index is a turn; threads need a lock.

    Args:
        shares: The share of its score that a turn gives to another one, by how many turns later
            the other one comes: {1: 0.5} gives half of it to the next turn, {-1: 0.2} a fifth to
            the one before. 0 is no distance.
    """

    def __init__(self, shares: Mapping[int, float]) -> None:
        self._shares = shares
        self._numbers: dict[str, int] = {}
        """The number of each dialogue."""
        self._dialogues: array[int] = array("q")
        """The number of the dialogue of each row."""
        self._smoothing: NeighbourSmoothing | None = None
        """The last smoothing that was returned; None if a row has changed since."""

    def set_dialogue(self, row: int, dialogue: str) -> None:
        """Set of which dialogue a row is a turn.

        Args:
            row: A row that exists, or the next one.
            dialogue: The name of the dialogue; "" for none. Its turns are in the order of their
            rows.
        """
        if row == len(self._dialogues):
            self._dialogues.append(_NO_DIALOGUE)

        number = _NO_DIALOGUE
        if dialogue:
            number = self._numbers.setdefault(dialogue, len(self._numbers))
        self._dialogues[row] = number
        self._smoothing = None

    def smoothing(self) -> NeighbourSmoothing:
        """Return a smoothing for the rows as they are now; later changes do not affect it."""
        if not self._numbers:
            return _NO_SMOOTHING
        if self._smoothing is None:
            self._smoothing = _smoothing(np.array(self._dialogues, np.int64), self._shares)
        return self._smoothing


class _Step(NamedTuple):
    """How turns share their scores with those that come a fixed number of turns later.

    The first of `receivers` gets a share of the first of `givers`, the second of the second, and so
    on. For turns that come one later, `receivers` are all but the first, `givers` all but the last.
    """

    receivers: slice
    """Slices scores that are sorted by dialogue, like `givers`."""
    givers: slice
    shares: np.ndarray
    """The share for each pair; 0 if the two turns are not of one dialogue."""


@dataclass(frozen=True, eq=False)
class NeighbourSmoothing:
    """Shares scores among the rows that an index had when this was made."""

    positions: np.ndarray
    """The position of each row when rows are sorted by dialogue, and within a dialogue by row."""
    steps: tuple[_Step, ...]
    """One for each distance between neighbours; () if no row is a turn of a dialogue."""

    def smoothed(
        self, scores: np.ndarray, rows: np.ndarray | None = None, factor: float = 1.0
    ) -> np.ndarray:
        """Return scores with the shares that neighbours give them, in an array of the same type.

        Args:
            scores: One score for each of `rows`.
            rows: The rows that share scores among one another; None for all rows.
            factor: What shares are multiplied with.
        """
        if not self.steps:
            return scores

        # Sort the scores by dialogue. Rows that are not among `rows` have nothing to share.
        positions = self.positions if rows is None else self.positions[rows]
        own_scores = np.zeros(len(self.positions))
        own_scores[positions] = scores

        # Shares are shares of the own scores: what a turn gets is not passed on to a third one.
        smoothed_scores = own_scores.copy()
        for step in self.steps:
            smoothed_scores[step.receivers] += factor * step.shares * own_scores[step.givers]
        return smoothed_scores[positions].astype(scores.dtype, copy=False)


_NO_SMOOTHING = NeighbourSmoothing(np.empty(0, np.int64), ())


def _smoothing(dialogues: np.ndarray, shares: Mapping[int, float]) -> NeighbourSmoothing:
    """Return the smoothing for rows of these dialogues.

    Args:
        dialogues: The number of the dialogue of each row, or `_NO_DIALOGUE`.
        shares: See `Neighbours`.
    """
    # A row of no dialogue gets a negative number of its own, so that it has no neighbours.
    unique_numbers = _NO_DIALOGUE - np.arange(len(dialogues))
    dialogues = np.where(dialogues == _NO_DIALOGUE, unique_numbers, dialogues)

    # A stable sort keeps the turns of a dialogue in the order of their rows.
    rows_by_dialogue = np.argsort(dialogues, kind="stable")
    positions = np.argsort(rows_by_dialogue)
    sorted_dialogues = dialogues[rows_by_dialogue]

    steps: list[_Step] = []
    for distance, share in shares.items():
        if distance > 0:
            receivers = slice(distance, None)
            givers = slice(None, -distance)
        else:
            receivers = slice(None, distance)
            givers = slice(-distance, None)
        is_same_dialogue = sorted_dialogues[receivers] == sorted_dialogues[givers]
        steps.append(_Step(receivers, givers, share * is_same_dialogue))
    return NeighbourSmoothing(positions, tuple(steps))
