"""Convert times to and from the numbers that a database column holds.

Such a number is seconds since 1970. 0 means that the time is unknown.
"""

from __future__ import annotations

from datetime import UTC, datetime


def to_timestamp(time: datetime | None) -> float:
    """Return a time in UTC, without a zone, as seconds since 1970; None becomes 0."""
    if time is None:
        return 0.0
    return time.replace(tzinfo=UTC).timestamp()


def from_timestamp(seconds: float) -> datetime | None:
    """Return seconds since 1970 as a time in UTC, without a zone; 0 becomes None."""
    if seconds == 0:
        return None
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
