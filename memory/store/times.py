"""Times as columns of a database hold them: seconds since 1970, and 0 for an unknown time."""

from __future__ import annotations

from datetime import UTC, datetime


def to_timestamp(time: datetime | None) -> float:
    """Return a time of UTC in seconds since 1970; 0 stands for an unknown time."""
    if time is None:
        return 0.0
    return time.replace(tzinfo=UTC).timestamp()


def from_timestamp(seconds: float) -> datetime | None:
    """Return the time of UTC, without a zone, that `to_timestamp` has stored."""
    if seconds == 0:
        return None
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
