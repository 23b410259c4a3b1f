"""What PAL-Set holds per user, apart for the history and for the sessions that are asked about (Mem-PAL, Table 1).

    input.json ──> users ──> sessions, logs, dialogue turns, topics, months of history and query ──> means over users

Limits: a turn is an utterance of the user with its reply; a month is a calendar month in which a dialogue takes
place. The paper says neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...errors import DataError
from ...records import read_json
from ..probe import read_date
from ..samples import given_or_sample
from .reader import ALIASES, files_of, samples_in

PARTS: tuple[Literal["history", "query"], ...] = ("history", "query")


@dataclass(frozen=True)
class PartStatistics:
    """Means over users of one part of their record."""

    part: Literal["history", "query"]
    users: int
    sessions: float
    logs: float
    turns: float
    topics: float
    months: float


def statistics_of(path: str | Path | None = None, language: str | None = None) -> tuple[PartStatistics, ...]:
    """Counts data files as they are.

    Args:
        path: As `PalBench.load` takes it; None for the bundled sample.
        language: "zh", "en" or "all", for a folder; of the sample all if None.

    Returns:
        The history, then the query part.

    Raises:
        DataError: A file is missing, no JSON, or holds no user.
    """
    with given_or_sample(path, "palset") as (where, sample):
        files = files_of(where, language or "all" if sample else language)
        users = [user for file in files for user in _users(file)]
        if not users:
            raise DataError(f"{files[0]}: holds no user")
        return tuple(_part(part, users) for part in PARTS)


def _users(file: Path) -> list[Mapping[str, Any]]:
    value = read_json(file)
    if not isinstance(value, dict):
        raise DataError(f"{file}: expected an object with user ids")
    return [record for record in value.values() if isinstance(record, dict)]


def _part(part: Literal["history", "query"], users: list[Mapping[str, Any]]) -> PartStatistics:
    found = [_of_user([row for row in samples_in(user.get(part)) if isinstance(row, dict)]) for user in users]
    sessions, logs, turns, topics, months = (sum(column) / len(users) for column in zip(*found, strict=True))
    return PartStatistics(part, len(users), sessions, logs, turns, topics, months)


def _of_user(rows: list[Mapping[str, Any]]) -> tuple[int, int, int, int, int]:
    dates = [read_date(_field(row, "dialogue_timestamp")) for row in rows]
    months = {(date.year, date.month) for date in dates if date is not None}
    sizes = [[_size(_field(row, name)) for row in rows] for name in ("logs", "dialogue", "topics")]
    return (len(rows), *(sum(found) for found in sizes), len(months))  # pyright: ignore[reportReturnType]


def _field(row: Mapping[str, Any], name: str) -> Any:
    return next((row[each] for each in (name, *ALIASES["sample"][name]) if each in row), None)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0
