"""The two forms of OmniBehavior, and a reader for both.

    raw        a folder of JSON files, or one file:
               {user_id: {"user_profile": "...", "action_history": [{"type", "timestamp", "context", "action"}, ...]}}
    prepared   experiment_data.json: {"metadata": {...}, "users": [{"user_id", "user_profile", "base_history": [...],
               "test_time_all_actions": [...], "test_actions": [{"action": {...}, "test_time_index": 3}, ...]}]}

Of a raw file, `periods` says what is asked; a prepared one says so itself. Every yes-or-no field of
an asked record is one question. Memory is frozen at the first asked record of a user (as released): what came before,
test period included, is the history, and what came since is `recent`. Records that `filters.was_seen` drops are in
neither, and not asked; every other record carries the questions of its scene, which practice asks too.

Limits: the forms are taken from a description of the released code and from the data card, not from the files
themselves, which may not be passed on (CC BY-NC-SA 4.0, no re-identification).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError
from ...records import Action, History, read_json, read_time
from ..behavior import Since, asked, example, records
from ..dataset import Finding, Note, Reading
from .filters import says_enough, was_seen
from .labels import gold, questions_of
from .periods import Periods
from .scenes import QUESTIONS, fields_of, is_chinese, scene_of
from .text import DETAIL, reaction, scene_name, situation

OPTIONS = ("Yes", "No")
_OFFSETS = "seed_offsets.json"
_WANTED = "OmniBehavior (hub set jiawei-ucas/OmniBehavior, or PraMem's experiment_data.json)"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class User:
    """One user of either form."""

    id: str
    profile: str
    before: Sequence[Row]
    """Records of the history period."""
    since: Sequence[Row]
    """Records of the test period."""
    asked: Sequence[int]
    """Places in `since` that are asked, ascending."""


def read_omnibehavior(path: Path, note: Note, periods: Periods | None = None, detail: int = DETAIL) -> Reading:
    """Reads a folder or a file of either form, telling `note` everything that is odd about it.

    Args:
        path: The folder, or the file.
        note: What has a fatal finding is skipped if it does not raise.
        periods: How raw files are cut; prepared ones are cut already.
        detail: Most characters of one field of a situation.

    Raises:
        DataError: A file is missing, no JSON, or of neither form.
    """
    histories: list[History] = []
    examples: list[dspy.Example] = []
    known: set[str] = set()
    for user in _users(path, periods or Periods(), note):
        if user.id in known:
            note(Finding("duplicate user", f"user {user.id}", "is in the data twice", fatal=True))
            continue
        known.add(user.id)
        history, made = _questions(user, detail) if user.asked else (None, [])
        if history is None or not made:
            note(Finding("nothing asked", f"user {user.id}", "has no record in the test period that can be asked"))
            continue
        histories.append(history)
        examples += made
    return Reading(tuple(histories), tuple(examples))


def files_of(path: Path) -> list[Path]:
    """The JSON files of a folder (of its `raw_user_data` or language folders, if it has them), or the file itself.

    Raises:
        DataError: There is none.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected {_WANTED}")
    if path.is_file():
        return [path]
    places = (path, *(path / name for name in ("raw_user_data", "raw_user_data/zh", "raw_user_data/en", "zh", "en")))
    users = ([file for file in sorted(place.glob("*.json")) if file.name != _OFFSETS] for place in places)
    files = next((found for found in users if found), [])
    if not files:
        raise DataError(f"{path}: holds no JSON file of a user; expected {_WANTED}")
    return files


def offsets_file(path: Path) -> Path | None:
    """The file `seed_offsets.json` beside the raw files, or in the folder above or below them."""
    folder = path if path.is_dir() else path.parent
    places = (folder, folder / "raw_user_data", folder.parent)
    return next((file for place in places if (file := place / _OFFSETS).is_file()), None)


def _seed_offsets(file: Path | None) -> dict[str, int]:
    """What the file adds to the seed, by user."""
    raw = read_json(file) if file else {}
    if not isinstance(raw, dict) or not all(type(offset) is int for offset in raw.values()):
        raise DataError(f"{file}: is not {{user: whole number}}; expected the file of {_WANTED}")
    return raw


def _users(path: Path, periods: Periods, note: Note) -> Iterator[User]:
    periods = replace(periods, offsets={**_seed_offsets(offsets_file(path)), **periods.offsets})
    for file in files_of(path):
        raw = read_json(file)
        if isinstance(raw, dict) and isinstance(raw.get("users"), list):
            yield from (user for row in raw["users"] if (user := _prepared(row, note)))
        elif isinstance(raw, dict) and raw and all(_is_raw(value) for value in raw.values()):
            yield from (_raw(str(id), value, periods, note) for id, value in raw.items())
        else:
            raise DataError(f"{file}: is neither {{user: {{action_history}}}} nor {{users: [...]}}; expected {_WANTED}")


def _is_raw(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("action_history"), list)


def _raw(id: str, value: Row, periods: Periods, note: Note) -> User:
    before, since = periods.cut(_rows(value["action_history"], f"user {id}", note))
    return User(id, _profile(value), before, since, periods.draw(id, since))


def _prepared(value: Any, note: Note) -> User | None:
    row = value if isinstance(value, dict) else {}
    where = f"user {row.get('user_id')}"
    lists = [row.get(name) for name in ("base_history", "test_time_all_actions", "test_actions")]
    if not row.get("user_id") or not all(isinstance(part, list) for part in lists):
        message = f"lacks user_id, base_history, test_time_all_actions or test_actions: {reprlib.repr(value)}"
        note(Finding("malformed user", where, message, fatal=True))
        return None
    # Rows that cannot be read are kept here: the places of the asked ones count them.
    base, since = _rows(lists[0] or [], where, note), list(lists[1] or [])
    places = []
    for number, test in enumerate(lists[2] or [], 1):
        place = test.get("test_time_index") if isinstance(test, dict) else None
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(since):
            message = f"test_time_index {place!r} is no place among {len(since)} actions of the test period"
            note(Finding("dangling test action", f"{where} test action {number}", message, fatal=True))
            continue
        told = test.get("action")
        if (
            isinstance(told, dict)
            and isinstance(since[place], dict)
            and told.get("timestamp") != since[place].get("timestamp")
        ):
            message = "is another record than the one at its test_time_index; the latter is asked"
            note(Finding("other test action", f"{where} test action {number}", message))
        places.append(place)
    kept = {place: n for n, place in enumerate(n for n, row in enumerate(since) if not _fault(row) and was_seen(row))}
    readable = _rows(since, where, note)
    return User(
        str(row["user_id"]),
        _profile(row),
        base,
        readable,
        sorted({kept[place] for place in places if place in kept}),
    )


def _profile(value: Row) -> str:
    profile = value.get("user_profile")
    return profile.strip() if isinstance(profile, str) else ""


def _rows(values: Sequence[Any], where: str, note: Note) -> list[Row]:
    """The records that can be read and that the user saw."""
    rows, unknown = [], set()
    for number, row in enumerate(values, 1):
        fault = _fault(row)
        if fault:
            note(Finding("malformed record", f"{where} record {number}", fault, fatal=True))
            continue
        if scene_of(row.get("type")) is None and str(row.get("type")) not in unknown:
            unknown.add(str(row.get("type")))
            message = f"type {row.get('type')!r} is none of the six; kept as history, never asked"
            note(Finding("unknown scene", f"{where} record {number}", message))
        if was_seen(row):
            rows.append(row)
    return rows


def _fault(row: Any) -> str | None:
    if not isinstance(row, dict):
        return f"expected an object, got {reprlib.repr(row)}"
    if not _time(row):
        return f"timestamp {reprlib.repr(row.get('timestamp'))} is not like '2025-09-01 20:15:00'"
    if not isinstance(row.get("type"), str):
        return f"type is {reprlib.repr(row.get('type'))}, expected a scene such as 'Video Browsing'"
    if not isinstance(row.get("context"), dict | None):
        return f"context is {reprlib.repr(row['context'])}, expected an object"
    return None


def _time(row: Row) -> datetime | None:
    time = read_time(row.get("timestamp"))
    return time and time.replace(tzinfo=None)


def _questions(user: User, detail: int) -> tuple[History, list[dspy.Example]]:
    rows = [*user.before, *user.since]
    actions = [_action(user.id, number, row, detail) for number, row in enumerate(rows, 1)]
    anchor = len(user.before) + user.asked[0]
    history = records(user.id, user.profile, actions[:anchor])
    since = Since(user.id, actions[anchor:], anchor)
    made = []
    for place in (len(user.before) + n for n in user.asked):
        row, recent = rows[place], since.until(place - anchor)
        values = gold(row)
        for field in fields_of(row):
            question = asked(actions[place], QUESTIONS[field][is_chinese(row.get("type"))])
            answer = OPTIONS[not values[field]]
            id = f"{actions[place].id}:{field}"
            made.append(
                example(
                    history=history,
                    recent=recent,
                    id=id,
                    question=question,
                    options=OPTIONS,
                    answer=answer,
                    category=field,
                )
            )
    return history, made


def _action(user: str, number: int, row: Row, detail: int) -> Action:
    return Action(
        id=f"{user}:{number}",
        time=_time(row),
        scene=scene_name(row),
        situation=situation(row, detail),
        action=reaction(row),
        questions=questions_of(row) if says_enough(row) else (),
    )
