"""Number model calls in the order in which the program makes them.

Calls that run concurrently end in any order. Their numbers depend on the program alone, so the
recordings of two runs can be compared:

    first call                  (0,)
    three concurrent calls      (1, 0, 0), (1, 1, 0), (1, 2, 0)
    the call after them         (2,)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CallOrder:
    """Numbers the calls of one thread of work."""

    path: tuple[int, ...] = ()
    """The position of this work among concurrent work, () for the main thread of a recording."""

    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def next_position(self) -> tuple[int, ...]:
        """Return the position of the next call. Positions compare in program order."""
        return (*self.path, next(self._numbers))
