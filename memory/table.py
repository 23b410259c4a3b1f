"""A table of vectors that grows in place: a row is added, changed or read without touching the others.

Example:
    >>> import numpy as np
    >>> from mempiler.memory.table import Table
    >>> table = Table()
    >>> table.extend(np.eye(2))
    >>> table.put(0, np.array([3, 4]))
    >>> table.rows
    array([[3., 4.],
           [0., 1.]], dtype=float32)
"""

from __future__ import annotations

import numpy as np


class Table:
    """Vectors of one length in single precision, by row; not locked."""

    def __init__(self) -> None:
        self._room = np.empty((0, 0), np.float32)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def dimension(self) -> int:
        """The length of a vector; 0 until the first one came."""
        return self._room.shape[1]

    @property
    def rows(self) -> np.ndarray:
        """All vectors, shape [rows, dimension]; to be read until the next change."""
        return self._room[: self._used]

    def extend(self, vectors: np.ndarray) -> None:
        """Adds rows; room is doubled when it is used up, so that this costs the same at any size."""
        if not len(vectors):
            return
        used = self._used + len(vectors)
        if used > len(self._room):
            room = np.empty((max(2 * len(self._room), used), vectors.shape[1]), np.float32)
            room[: self._used] = self.rows if self._used else 0
            self._room = room
        self._room[self._used : used] = vectors
        self._used = used

    def put(self, row: int, vectors: np.ndarray) -> None:
        """Changes one row, or several from that one on."""
        self._room[row : row + len(np.atleast_2d(vectors))] = vectors

    def keep(self, rows: np.ndarray) -> None:
        """Forgets all rows but these, which are numbered anew in the order given."""
        self._room, self._used = self._room[rows], len(rows)
