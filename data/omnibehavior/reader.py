"""Read the files of OmniBehavior, in either form, into the records of each user.

    raw         {"u01": {"user_profile": ..., "action_history": [RECORD, ...]}}
    prepared    {"users": [{"user_id": "u01", "user_profile": ..., "base_history": [RECORD, ...],
                            "test_time_all_actions": [RECORD, ...],
                            "test_actions": [{"test_time_index": 4}, ...]}]}

A raw file is cut and drawn from by `Periods`; a prepared one says itself what is asked.
"""

from __future__ import annotations

import random
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BeforeValidator, Field

from ...errors import DataError
from ...records import read_json
from ..dataset import FindingListener
from ..field_types import Text, read_date
from ..rows import Location, Row
from .periods import Periods
from .records import RawRecord, scene_of, was_seen

OFFSETS_FILE = "seed_offsets.json"
"""The name of the released file with the seed offsets of users."""
_EXPECTED = "OmniBehavior (hub set jiawei-ucas/OmniBehavior, or PraMem's experiment_data.json)"


def _check_time(value: Any) -> Any:
    if read_date(value) is None:
        raise ValueError(f"{reprlib.repr(value)} is not like '2025-09-01 20:15:00'")
    return value


class _Record(Row):
    """What every record must have."""

    timestamp: Annotated[Any, BeforeValidator(_check_time)]
    type: str
    context: dict[str, Any] | None = None


class _RawUser(Row):
    """A user of a raw file, who stands under an id."""

    action_history: tuple[Any, ...]
    user_profile: Any = None


class _TestAction(Row):
    """The index of an asked record in `test_time_all_actions`."""

    test_time_index: Annotated[int, Field(ge=0)]


class _PreparedUser(Row):
    """A user of a prepared file."""

    user_id: Text
    user_profile: Any = None
    base_history: tuple[Any, ...]
    test_time_all_actions: tuple[Any, ...]
    test_actions: tuple[_TestAction, ...]


@dataclass(frozen=True)
class UserRecords:
    """The records of one user that the user saw, in time order."""

    id: str
    profile: str
    """The profile in words; "" if there is none."""
    history: Sequence[RawRecord]
    """Records of the history period."""
    test: Sequence[RawRecord]
    """Records of the test period."""
    asked_indexes: Sequence[int]
    """Indexes in `test` of the records that are asked, ascending."""


def find_files(path: Path) -> tuple[Path, ...]:
    """Return the data files that a path means: itself, or all JSON files in the folder.

    Raises:
        DataError: There is no such path, or no file in it.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected {_EXPECTED}")
    if path.is_file():
        return (path,)
    files = [file for file in sorted(path.rglob("*.json")) if file.name != OFFSETS_FILE]
    if not files:
        raise DataError(f"{path}: holds no JSON file of a user; expected {_EXPECTED}")
    return tuple(files)


def find_offsets_file(path: Path) -> Path | None:
    """Return the file of seed offsets below a path's folder, or else in the folder above it."""
    folder = path if path.is_dir() else path.parent
    candidates = [*sorted(folder.rglob(OFFSETS_FILE)), *folder.parent.glob(OFFSETS_FILE)]
    return candidates[0] if candidates else None


def read_offsets(file: Path) -> dict[str, int]:
    """Read the seed offsets of users.

    Raises:
        DataError: The file cannot be read, or an offset is no whole number.
    """
    value = read_json(file)
    # `isinstance` would take true for a number.
    if not isinstance(value, dict) or not all(type(offset) is int for offset in value.values()):
        raise DataError(f"{file}: is not {{user: whole number}}; expected the file of {_EXPECTED}")
    return cast("dict[str, int]", value)


def read_users(
    files: Sequence[Path], periods: Periods, on_finding: FindingListener
) -> Iterator[UserRecords]:
    """Yield the users of some files, in the order of the files.

    Raises:
        DataError: A file cannot be read, or has neither form.
    """
    for file in files:
        content = read_json(file)
        if not isinstance(content, dict) or not content:
            raise DataError(
                f"{file}: is neither {{user: {{action_history}}}} nor {{users: [...]}}; "
                f"expected {_EXPECTED}"
            )

        prepared_users = content.get("users")
        if isinstance(prepared_users, list):
            for number, value in enumerate(prepared_users, 1):
                location = Location(on_finding, f"{file.name}, user {number}")
                user = _read_prepared_user(value, location)
                if user is not None:
                    yield user
        else:
            for user_id, value in content.items():
                location = Location(on_finding, f"user {user_id}")
                user = _read_raw_user(user_id, value, periods, location)
                if user is not None:
                    yield user


def draw_users(users: Sequence[UserRecords], count: int, periods: Periods) -> list[UserRecords]:
    """Return some of the users, in their order.

    Only users with a history and with at least `periods.test_actions` records to ask are drawn.
    """
    candidates: set[str] = set()
    for user in users:
        if user.history and len(user.asked_indexes) >= periods.test_actions:
            candidates.add(user.id)

    drawn_ids = candidates
    if len(candidates) > count:
        drawn_ids = set(random.Random(periods.seed).sample(sorted(candidates), count))
    return [user for user in users if user.id in drawn_ids]


def _read_raw_user(
    user_id: str, value: Any, periods: Periods, location: Location
) -> UserRecords | None:
    """Return a user of a raw file; report a row that does not fit, and return None."""
    row = location.validate(_RawUser, value)
    if row is None:
        return None
    seen_records = _read_seen_records(row.action_history, location)
    history, test = periods.cut([seen.record for seen in seen_records])
    return UserRecords(
        id=user_id,
        profile=_profile_text(row.user_profile),
        history=history,
        test=test,
        asked_indexes=periods.draw(user_id, test),
    )


def _read_prepared_user(value: Any, location: Location) -> UserRecords | None:
    """Return a user of a prepared file; report a row that does not fit, and return None."""
    row = location.validate(_PreparedUser, value)
    if row is None:
        return None
    test = _read_seen_records(row.test_time_all_actions, location)
    asked_indexes = _read_asked_indexes(row, test, location)
    history = _read_seen_records(row.base_history, location)
    return UserRecords(
        id=row.user_id,
        profile=_profile_text(row.user_profile),
        history=[seen.record for seen in history],
        test=[seen.record for seen in test],
        asked_indexes=asked_indexes,
    )


class _SeenRecord(NamedTuple):
    """A record that the user saw."""

    file_index: int
    """The index in the list of the file, which has the unseen records too."""
    record: RawRecord


def _read_seen_records(values: Sequence[Any], location: Location) -> list[_SeenRecord]:
    """Return the records of a list that the user saw; report those that are broken or odd."""
    unknown_types: set[str] = set()
    seen_records: list[_SeenRecord] = []
    for index, value in enumerate(values):
        record_location = location.at(f"record {index + 1}")
        row = record_location.validate(_Record, value)
        if row is None:
            continue
        if scene_of(row.type) is None and row.type not in unknown_types:
            unknown_types.add(row.type)
            problem = f"type {row.type!r} is none of the six; kept as history, never asked"
            record_location.warn("unknown scene", problem)
        if was_seen(value):
            seen_records.append(_SeenRecord(index, value))
    return seen_records


def _read_asked_indexes(
    row: _PreparedUser, test: Sequence[_SeenRecord], location: Location
) -> list[int]:
    """Return the indexes in `test` of the records that are asked, ascending.

    The file names a record by its index among all records. `test` has only those that the user
    saw, so the indexes differ, and a record that the user did not see is not asked. An index beyond
    the list is reported.
    """
    num_records = len(row.test_time_all_actions)
    file_indexes = {action.test_time_index for action in row.test_actions}
    for file_index in sorted(file_indexes):
        if file_index >= num_records:
            problem = f"test_time_index {file_index} is no place among {num_records} actions"
            location.reject("dangling test action", problem)
    return [index for index, seen in enumerate(test) if seen.file_index in file_indexes]


def _profile_text(profile: Any) -> str:
    """Return a profile that is a text, without blanks around it; "" for anything else."""
    return profile.strip() if isinstance(profile, str) else ""
