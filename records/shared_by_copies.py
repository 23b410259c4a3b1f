"""A base class for objects that a program and its deep copies share."""

from __future__ import annotations

from typing import Self


class SharedByCopies:
    """An object whose deep copy is the object itself.

    DSPy deep-copies programs, for example once for every candidate of an optimizer. What a program
    holds besides its prompts must stay one object: a cache that copies fill and read together, a
    count of calls that covers all copies, or a lock or a connection, which cannot be copied at all.
    """

    def __deepcopy__(self, memo: object = None) -> Self:
        return self
