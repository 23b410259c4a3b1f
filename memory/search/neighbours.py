"""Turns of one dialogue give shares of their scores to the turns around them (smoothing).

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
    """Knows to which dialogue each row of an index belongs; threads need a lock.

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
        """Note to which dialogue a row belongs, so that it shares scores with the turns around it.

        A row is the number of an entry in an index. Rows of one dialogue are turns, in the order of
        these numbers.

        Args:
            row: A row that exists, or the next one.
            dialogue: The name of the dialogue; "" if the row belongs to none.
        """
        if row == len(self._dialogues):
            self._dialogues.append(_NO_DIALOGUE)

        number = _NO_DIALOGUE
        if dialogue:
            number = self._numbers.setdefault(dialogue, len(self._numbers))
        self._dialogues[row] = number
        self._smoothing = None

    def smoothing(self) -> NeighbourSmoothing:
        """Return an object that gives each turn shares of the scores of the turns around it.

        It is for the rows as they are now; later changes do not affect it.
        """
        # It is computed once, and kept until a row changes.
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
    """Selects from scores that are sorted by dialogue, like `givers`."""
    givers: slice
    shares: np.ndarray
    """The share for each pair; 0 if the two turns belong to different dialogues."""


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
        """Return scores to which each turn of a dialogue adds shares of the scores around it.

        The answer to a question often lacks the words of the question. With a share of the score of
        the question it is found as well.

        Args:
            scores: One score for each of `rows`.
            rows: The rows that share scores among one another; None for all rows.
            factor: Every share is multiplied with this number.

        Returns:
            The new scores, in the type and the order of `scores`.
        """
        # Without steps no row belongs to a dialogue.
        if not self.steps:
            return scores

        # Sort the scores by dialogue, so that neighbours stand side by side. Rows that are not
        # among `rows` score 0, and so have nothing to share.
        positions = self.positions if rows is None else self.positions[rows]
        own_scores = np.zeros(len(self.positions))
        own_scores[positions] = scores

        # Each step is a distance, e.g. from a turn to the next one. Shares are taken of the scores
        # before smoothing, so that what a turn gets is not passed on to a third turn.
        smoothed_scores = own_scores.copy()
        for step in self.steps:
            smoothed_scores[step.receivers] += factor * step.shares * own_scores[step.givers]

        # Back to the order of `scores`.
        return smoothed_scores[positions].astype(scores.dtype, copy=False)


_NO_SMOOTHING = NeighbourSmoothing(np.empty(0, np.int64), ())


def _smoothing(dialogues: np.ndarray, shares: Mapping[int, float]) -> NeighbourSmoothing:
    """Prepare the arrays by which each turn of a dialogue gets shares of the scores around it.

    Args:
        dialogues: The number of the dialogue to which each row belongs, or `_NO_DIALOGUE`.
        shares: The share of its score that a turn gives to another one, by how many turns later the
            other one comes: {1: 0.5, -1: 0.2} gives half to the next turn, a fifth back.
    """
    # Rows without a dialogue must not be neighbours of one another. So each of them gets a dialogue
    # of its own: -1, -2, -3 and so on.
    unique_numbers = _NO_DIALOGUE - np.arange(len(dialogues))
    dialogues = np.where(dialogues == _NO_DIALOGUE, unique_numbers, dialogues)

    # A stable sort keeps the turns of a dialogue in the order of their rows.
    rows_by_dialogue = np.argsort(dialogues, kind="stable")
    # The position of each row in this order: argsort of an order inverts it.
    positions = np.argsort(rows_by_dialogue)
    sorted_dialogues = dialogues[rows_by_dialogue]

    steps: list[_Step] = []
    for distance, share in shares.items():
        if distance > 0:
            # From each turn to a later one. For distance 1, the row at position 1 receives from the
            # one at 0, that at 2 from the one at 1, and so on.
            receivers = slice(distance, None)
            givers = slice(None, -distance)
        else:
            # From each turn to an earlier one.
            receivers = slice(None, distance)
            givers = slice(-distance, None)
        is_same_dialogue = sorted_dialogues[receivers] == sorted_dialogues[givers]
        steps.append(_Step(receivers, givers, share * is_same_dialogue))
    return NeighbourSmoothing(positions, tuple(steps))
