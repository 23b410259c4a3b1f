"""The range in which the optimizer `settings` looks for a better value of a number.

The type of the number is annotated with it:

    k: Annotated[int, Field(ge=1), TuningRange(1, 50, log=True)] = 10

It may be narrower than the range of allowed values: it says where good values can be expected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class TuningRange:
    """The numbers to try, from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """Whether numbers are drawn on a logarithmic scale: from 1 to 5 as often as from 10 to 50."""

    @classmethod
    def among(cls, metadata: Iterable[object]) -> TuningRange | None:
        """Return the last range in the metadata of a pydantic field; None if there is none."""
        ranges = [item for item in metadata if isinstance(item, TuningRange)]
        return ranges[-1] if ranges else None
