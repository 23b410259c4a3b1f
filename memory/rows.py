"""Rows of a growing table: each key has one, in the order of first addition, whatever came and went between.

The row of a key that is taken out stays empty, so that no other row moves; when most rows are empty, they are numbered
anew. So a change costs the same at any size.

Example:
    >>> from mempiler.memory.rows import Rows
    >>> rows = Rows()
    >>> [rows.add(key) for key in ("a", "b", "c")], rows.drop("b"), rows.live()
    ([0, 1, 2], 1, array([0, 2]))
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

SPARE = 1000
"""Empty rows that are kept beyond those in use before rows are numbered anew."""


class Rows:
    """Which row a key has, and which key a row; not locked.

    Args:
        keys: Keys of the first rows, each once.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys: list[str | None] = list(keys)
        """The key of each row, None where a key was taken out."""
        self._rows: dict[str, int] = {key: row for row, key in enumerate(self.keys) if key is not None}
        self._used = bytearray(b"\x01" * len(self.keys))
        self._live: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> int:
        return self._rows[key]

    def add(self, key: str) -> int:
        """Gives a new key the next row."""
        row = self._rows[key] = len(self.keys)
        self.keys.append(key)
        self._used.append(1)
        self._live = None
        return row

    def drop(self, key: str) -> int:
        """Empties the row of a key and returns its number."""
        row = self._rows.pop(key)
        self.keys[row] = None
        self._used[row] = 0
        self._live = None
        return row

    @property
    def gaps(self) -> bool:
        """Whether a row is empty."""
        return len(self.keys) > len(self._rows)

    @property
    def sparse(self) -> bool:
        """Whether it is time to number rows anew."""
        return len(self.keys) > 2 * len(self._rows) + SPARE

    def live(self) -> np.ndarray:
        """The rows in use, ascending; not to be changed."""
        if self._live is None:
            self._live = np.flatnonzero(np.frombuffer(self._used, bool))
        return self._live
