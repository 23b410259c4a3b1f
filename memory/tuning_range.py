"""The range in which a tuner looks for a better value of a number.

It is noted beside the type of the number:

    k: Annotated[int, Field(ge=1), TuningRange(1, 50, log=True)] = 10

The range says where good values may be. It may be narrower than what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class TuningRange:
    """The numbers that a tuner may try; both ends belong to them."""

    low: float
    high: float
    log: bool = False
    """Whether small numbers are tried as often as large ones: 1 to 5 as often as 10 to 50."""

    @classmethod
    def among(cls, metadata: Iterable[object]) -> TuningRange | None:
        """Return the range in the metadata of a pydantic field; the last one if there are several.

        None if the field has no range.
        """
        ranges = [item for item in metadata if isinstance(item, TuningRange)]
        return ranges[-1] if ranges else None
