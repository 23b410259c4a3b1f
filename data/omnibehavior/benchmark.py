"""OmniBehavior: what users of a platform did with videos, live streams, advertisements and products (Chen et al. 2026).

    raw        a folder of JSON files, or one file, of the hub set jiawei-ucas/OmniBehavior: by user profile and actions
    prepared   PraMem's experiment_data.json, which says itself what is asked

The forms are taken from their documentation (card and released code); the sample is our own, no real user is in it.

Every yes-or-no field of an asked record is one question, e.g. whether the user follows the author of a video. What came
before the first asked record of a user, test period included, is the history, and what came since is `recent`. The
experience of practice ends with the history (as released), every other memory has both. Records that `was_seen` drops
are in neither, and not asked.

Limits: OmniBehavior's own final score also rates watch seconds and replies to customer service, which are no yes-or-no
questions and not asked here. Nothing is rounded, where the released code rounds before it takes means: by .006 %.
"""

from __future__ import annotations

import hashlib
import random
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import dspy
from pydantic import BeforeValidator, Field

from ...errors import DataError
from ...records import Action, History, read_json
from ...records.token_counts import count_fitting_lines
from ..behavior import OptionAccuracy, RecentRecords, example, format_question, records
from ..benchmark import Benchmark
from ..confusion import Confusion
from ..dataset import Dataset, FindingListener
from ..field_types import Text, read_date
from ..rows import Location, Row
from ..scorer import ScoredAnswer, Scorer
from .records import (
    QUESTIONS,
    TABLE_NAMES,
    fields_of,
    gold,
    is_chinese,
    is_high_value,
    is_informative,
    questions_of,
    says_enough,
    scene_of,
    was_seen,
)
from .text import reaction, situation

OPTIONS = ("Yes", "No")
METRICS = ("ACC", "F1")
_OFFSETS = "seed_offsets.json"
_WANTED = "OmniBehavior (hub set jiawei-ucas/OmniBehavior, or PraMem's experiment_data.json)"
BUCKETS = 10
Raw = Mapping[str, Any]
Many = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Periods:
    """How a raw file is cut, and whose and which records are asked, as in the released code.

    Its texts are compared with dates that have no clock: all records ON the last day of either period belong to
    neither. Of the records that can be predicted ten buckets of time are made; in each, scenes take turns in a shuffled
    order, and a coin says whether a record of high or of low value comes next.
    """

    history: tuple[str, str] = ("2025-09-01", "2025-09-30")
    test: tuple[str, str] = ("2025-10-01", "2025-11-30")
    test_actions: int = 30
    """Records asked per user."""
    seed: int = 42
    offsets: Mapping[str, int] | None = None
    """What is added to the seed, by user; a user who is not named adds what `seed_offset` makes of the id."""

    def chosen(self, users: Sequence[_User], count: int) -> list[_User]:
        """At most so many users, drawn from those with a history of whom `test_actions` records can be asked."""
        fit = sorted({user.id for user in users if user.before and len(user.asked) >= self.test_actions})
        drawn = fit if len(fit) <= count else random.Random(self.seed).sample(fit, count)
        return [user for user in users if user.id in drawn]

    def cut(self, rows: Sequence[Raw]) -> tuple[list[Raw], list[Raw]]:
        """The records of the history and of the test period, both in time order."""
        ordered = sorted((str(row.get("timestamp") or ""), n) for n, row in enumerate(rows))
        # As texts: a moment of the last day is longer than the day and so greater.
        before, since = (
            [rows[n] for time, n in ordered if begin <= time <= end] for begin, end in (self.history, self.test)
        )
        return before, since

    def draw(self, user: str, rows: Sequence[Raw]) -> list[int]:
        """The places of the records that are asked, ascending.

        Args:
            user: Their id; the draw does not depend on the other users of the file.
            rows: The test period.
        """
        places = [n for n, row in enumerate(rows) if is_informative(row)]
        if len(places) <= self.test_actions:
            return places
        rng = random.Random(self.seed + (self.offsets or {}).get(user, seed_offset(user)))
        count = max(1, min(BUCKETS, len(places) // 2, self.test_actions))
        size, drawn = len(places) // count, []
        for n in range(count):
            bucket = places[n * size : (n + 1) * size if n + 1 < count else None]
            quota = self.test_actions // count + (n < self.test_actions % count)
            drawn += bucket if len(bucket) <= quota else _in_turn(bucket, rows, quota, rng)
        return sorted(drawn)


def seed_offset(user: str) -> int:
    """What a user's id adds to the seed."""
    return int.from_bytes(hashlib.sha256(user.encode()).digest()[:8]) % 10**9


def _in_turn(bucket: Sequence[int], rows: Sequence[Raw], quota: int, rng: random.Random) -> list[int]:
    """So many places of a bucket: scenes in turn, high or low value by a coin."""
    pools: dict[str, dict[bool, list[int]]] = {}
    for place in bucket:
        pool = pools.setdefault(str(rows[place].get("type")).strip().lower(), {True: [], False: []})
        pool[is_high_value(rows[place])].append(place)
    scenes, taken, turn = list(pools), [], 0
    rng.shuffle(scenes)
    while len(taken) < quota:
        pool = pools[scenes[turn]]
        if any(pool.values()):
            high = rng.random() < 0.5 if all(pool.values()) else bool(pool[True])
            taken.append(pool[high].pop(rng.randrange(len(pool[high]))))
            turn = (turn + 1) % len(scenes)
        else:
            scenes.pop(turn)
            turn %= len(scenes)
    return taken


class FieldAccuracy(OptionAccuracy):
    """The share of fields predicted right, and the table by field and scene."""

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """ACC and F1 of every field, scene and overall, and the number of failed parses.

        They leave failed parses out, as the released evaluator does; those overall are also there with them as wrong.
        """
        official, whole = self._table(rows), self._table(rows, every=True)
        strict = {f"{name}, failed parses wrong": whole[name] for name in whole if name.startswith("Overall")}
        answered = sum(row.failure is None for row in rows)
        return {**official, **strict, "failed parses": answered - len(self.label_pairs(rows, OPTIONS))}

    def _table(self, rows: Sequence[ScoredAnswer], every: bool = False) -> dict[str, float]:
        matrices = {
            field: Confusion.of(
                OPTIONS, self.label_pairs([row for row in rows if row.category == field], OPTIONS, every)
            )
            for field in QUESTIONS
        }
        fields = {field: (found.accuracy, found.f1("Yes")) for field, found in matrices.items() if found.n}
        scenes: dict[str, tuple[float, float]] = {}
        for scene, name in TABLE_NAMES.items():
            own = [pair for field, pair in fields.items() if field.partition("_")[0] == scene]
            scenes |= {name: _means(own)} if own else {}
        table = {field.replace("_", " "): pair for field, pair in fields.items()} | scenes
        table |= {"Overall": _means(scenes.values())} if scenes else {}
        return {
            f"{name} {each}": value for name, pair in table.items() for each, value in zip(METRICS, pair, strict=True)
        }


def _means(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    accuracies, f1s = zip(*pairs, strict=True)
    return sum(accuracies) / len(accuracies), sum(f1s) / len(f1s)


class OmniBehavior(Benchmark):
    """The share of yes-or-no fields predicted right; ACC and F1 by scene beside it."""

    name = "omnibehavior"
    task = "behavior-prediction"
    sample = "omnibehavior"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": FieldAccuracy}
    categories: ClassVar[Mapping[str, str]] = {field: field.replace("_", " ") for field in QUESTIONS}

    @classmethod
    def resolve_category(cls, name: str) -> set[str]:
        """A field, or all fields of a scene, e.g. "video"."""
        return {field for field in QUESTIONS if name in (field, field.partition("_")[0])}

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        test_actions: Many = Periods.test_actions,
        seed: int = Periods.seed,
        users: Many | None = None,
        history_tokens: Many | None = None,
    ) -> Dataset:
        """Reads a folder of raw files, one raw file, or a prepared experiment file.

        Args:
            path: The folder or file.
            on_finding: What findings are told to.
            test_actions: Records asked per user, for raw files.
            seed: Draws them, and the users.
            users: So many of the users of raw files with `test_actions` records to ask (released: 200); None for all.
            history_tokens: Of every history the newest records in so many tokens (released: 32,000); None for all.
        """
        files, offsets = _files(path), _offsets_file(path)
        periods = Periods(test_actions=test_actions, seed=seed, offsets=_offsets(offsets))
        histories: list[History] = []
        examples: list[dspy.Example] = []
        known: set[str] = set()
        found: Iterable[_User] = _users(files, periods, on_finding)
        if users:
            found = periods.chosen(list(found), users)
        for user in found:
            place = Location(on_finding, f"user {user.id}")
            if user.id in known:
                place.reject("duplicate user", "is in the data twice")
                continue
            known.add(user.id)
            past, made = _questions(user, history_tokens) if user.asked else (None, [])
            if past is None or not made:
                place.warn("nothing asked", "has no record in the test period that can be asked")
                continue
            histories.append(past)
            examples += made
        return Dataset(tuple(histories), tuple(examples), (*files, *([offsets] if offsets else ())))


class _Record(Row):
    timestamp: Annotated[Any, BeforeValidator(lambda text: _moment(text))]
    type: str
    context: dict[str, Any] | None = None


class _Tested(Row):
    test_time_index: Annotated[int, Field(ge=0)]


class _Prepared(Row):
    user_id: Text
    user_profile: Any = None
    base_history: tuple[Any, ...]
    test_time_all_actions: tuple[Any, ...]
    test_actions: tuple[_Tested, ...]


class _RawUser(Row):
    action_history: tuple[Any, ...]
    user_profile: Any = None


@dataclass(frozen=True)
class _User:
    id: str
    profile: Any
    before: Sequence[Raw]
    """Records of the history period."""
    since: Sequence[Raw]
    """Records of the test period."""
    asked: Sequence[int]
    """Places in `since` that are asked, ascending."""


def _moment(text: Any) -> Any:
    if read_date(text) is None:
        raise ValueError(f"{reprlib.repr(text)} is not like '2025-09-01 20:15:00'")
    return text


def _files(path: Path) -> tuple[Path, ...]:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected {_WANTED}")
    if path.is_file():
        return (path,)
    files = [file for file in sorted(path.rglob("*.json")) if file.name != _OFFSETS]
    if not files:
        raise DataError(f"{path}: holds no JSON file of a user; expected {_WANTED}")
    return tuple(files)


def _offsets_file(path: Path) -> Path | None:
    folder = path if path.is_dir() else path.parent
    return next(iter([*sorted(folder.rglob(_OFFSETS)), *folder.parent.glob(_OFFSETS)]), None)


def _offsets(file: Path | None) -> dict[str, int]:
    raw = read_json(file) if file else {}
    if not isinstance(raw, dict) or not all(type(offset) is int for offset in raw.values()):
        raise DataError(f"{file}: is not {{user: whole number}}; expected the file of {_WANTED}")
    return raw


def _users(files: Sequence[Path], periods: Periods, on_finding: FindingListener) -> Iterator[_User]:
    for file in files:
        raw = read_json(file)
        if not isinstance(raw, dict) or not raw:
            raise DataError(f"{file}: is neither {{user: {{action_history}}}} nor {{users: [...]}}; expected {_WANTED}")
        prepared = raw.get("users")
        if isinstance(prepared, list):
            made = (
                _prepared(value, Location(on_finding, f"{file.name}, user {n}")) for n, value in enumerate(prepared, 1)
            )
        else:
            made = (_raw(id, value, periods, Location(on_finding, f"user {id}")) for id, value in raw.items())
        yield from (user for user in made if user is not None)


def _raw(id: str, value: Any, periods: Periods, place: Location) -> _User | None:
    row = place.validate(_RawUser, value)
    if row is None:
        return None
    before, since = periods.cut([row for _, row in _seen(row.action_history, place)])
    return _User(id, row.user_profile, before, since, periods.draw(id, since))


def _prepared(value: Any, place: Location) -> _User | None:
    row = place.validate(_Prepared, value)
    if row is None:
        return None
    # Places count all records, also those that are dropped.
    since = list(_seen(row.test_time_all_actions, place))
    kept = {place: n for n, (place, _) in enumerate(since)}
    places = {tested.test_time_index for tested in row.test_actions}
    for index in sorted(places):
        if index >= len(row.test_time_all_actions):
            message = f"test_time_index {index} is no place among {len(row.test_time_all_actions)} actions"
            place.reject("dangling test action", message)
    base = [each for _, each in _seen(row.base_history, place)]
    asked_of = sorted(kept[index] for index in places if index in kept)
    return _User(row.user_id, row.user_profile, base, [each for _, each in since], asked_of)


def _seen(values: Sequence[Any], place: Location) -> Iterator[tuple[int, Raw]]:
    unknown: set[str] = set()
    for number, value in enumerate(values):
        at = place.at(f"record {number + 1}")
        row = at.validate(_Record, value)
        if row is None:
            continue
        if scene_of(row.type) is None and row.type not in unknown:
            unknown.add(row.type)
            at.warn("unknown scene", f"type {row.type!r} is none of the six; kept as history, never asked")
        if was_seen(value):
            yield number, value


def _questions(user: _User, history_tokens: int | None) -> tuple[History, list[dspy.Example]]:
    rows = [*user.before, *user.since]
    actions = [_action(user.id, number, row) for number, row in enumerate(rows, 1)]
    anchor = len(user.before) + user.asked[0]
    profile = user.profile.strip() if isinstance(user.profile, str) else ""
    lines = (action.turn().line() for action in reversed(actions[:anchor]))
    begin = 0 if history_tokens is None else anchor - count_fitting_lines(lines, history_tokens)
    history = records(user.id, profile, actions[begin:anchor])
    since = RecentRecords(user.id, actions[anchor:], anchor)
    made = []
    for place in (len(user.before) + n for n in user.asked):
        row, recent = rows[place], since.until(place - anchor)
        values = gold(row)
        for field in fields_of(row):
            question = format_question(actions[place], QUESTIONS[field][is_chinese(row.get("type"))])
            answer = OPTIONS[not values[field]]
            told = {"id": f"{actions[place].id}:{field}", "question": question, "answer": answer, "category": field}
            made.append(example(history=history, recent=recent, options=OPTIONS, **told))
    return history, made


def _action(user: str, number: int, row: Raw) -> Action:
    return Action(
        id=f"{user}:{number}",
        time=read_date(row.get("timestamp")),
        scene=str(row.get("type") or "unknown").strip(),
        situation=situation(row),
        action=reaction(row),
        questions=questions_of(row) if says_enough(row) else (),
    )
