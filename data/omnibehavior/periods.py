"""Cut the records of a raw file into history and test period, and draw those that are asked.

This is done as in the released code, which has three peculiarities:

- Times are compared as texts with dates that have no clock. All records ON the last day of either
  period belong to neither.
- The records of the test period that can be asked are cut into ten buckets of time.
- In each bucket the scenes take turns in a shuffled order, and a coin says whether a record of high
  or of low value is drawn.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .records import RawRecord, is_high_value, is_informative

MAX_BUCKETS = 10


class PeriodRecords(NamedTuple):
    """The records of both periods, each in time order."""

    history: list[RawRecord]
    test: list[RawRecord]


@dataclass(frozen=True)
class Periods:
    """The periods of a raw file, and how the records that are asked are drawn."""

    history: tuple[str, str] = ("2025-09-01", "2025-09-30")
    test: tuple[str, str] = ("2025-10-01", "2025-11-30")
    test_actions: int = 30
    """Records asked per user."""
    seed: int = 42
    offsets: Mapping[str, int] | None = None
    """What is added to the seed, by user; `seed_offset` is added for a user who is not named."""

    def cut(self, rows: Sequence[RawRecord]) -> PeriodRecords:
        """Return the records of the history and of the test period."""
        rows_in_order = sorted(rows, key=_timestamp)
        return PeriodRecords(
            history=_rows_within(self.history, rows_in_order),
            test=_rows_within(self.test, rows_in_order),
        )

    def draw(self, user: str, rows: Sequence[RawRecord]) -> list[int]:
        """Return the indexes in `rows` of the records that are asked, ascending.

        Args:
            user: The user's id. The draw does not depend on the other users of the file.
            rows: The records of the test period, in time order.
        """
        askable_indexes = [index for index, row in enumerate(rows) if is_informative(row)]
        if len(askable_indexes) <= self.test_actions:
            return askable_indexes

        # Each user has a random generator, so that other users do not change the draw.
        rng = random.Random(self.seed + self._seed_offset(user))
        buckets = self._time_buckets(askable_indexes)
        # Where the quota is no whole number, the first buckets have one record more.
        quota, remainder = divmod(self.test_actions, len(buckets))
        drawn_indexes: list[int] = []
        for number, bucket in enumerate(buckets):
            bucket_quota = quota + 1 if number < remainder else quota
            if len(bucket) <= bucket_quota:
                drawn_indexes.extend(bucket)
            else:
                drawn_indexes.extend(_draw_scenes_in_turn(bucket, rows, bucket_quota, rng))
        return sorted(drawn_indexes)

    def _seed_offset(self, user: str) -> int:
        """Return what is added to the seed for a user."""
        if self.offsets is not None and user in self.offsets:
            return self.offsets[user]
        return seed_offset(user)

    def _time_buckets(self, indexes: Sequence[int]) -> list[Sequence[int]]:
        """Cut indexes in time order into buckets of one size; the last takes the remainder too."""
        num_buckets = max(1, min(MAX_BUCKETS, len(indexes) // 2, self.test_actions))
        size = len(indexes) // num_buckets
        buckets: list[Sequence[int]] = []
        for number in range(num_buckets - 1):
            buckets.append(indexes[number * size : (number + 1) * size])
        buckets.append(indexes[(num_buckets - 1) * size :])
        return buckets


def seed_offset(user: str) -> int:
    """Return what a user's id adds to the seed."""
    digest = hashlib.sha256(user.encode()).digest()
    return int.from_bytes(digest[:8]) % 10**9


def _timestamp(row: RawRecord) -> str:
    return str(row.get("timestamp") or "")


def _rows_within(period: tuple[str, str], rows: Sequence[RawRecord]) -> list[RawRecord]:
    """Return the records of a period.

    As a text, a moment of the last day is longer than the day, and so greater: it is left out.
    """
    first_day, last_day = period
    return [row for row in rows if first_day <= _timestamp(row) <= last_day]


@dataclass(frozen=True)
class _ScenePool:
    """The indexes of one scene's records in a bucket that are not drawn yet."""

    high_value: list[int]
    low_value: list[int]

    @property
    def is_empty(self) -> bool:
        """Return whether all records are drawn."""
        return not self.high_value and not self.low_value

    def draw(self, rng: random.Random) -> int:
        """Remove and return one index.

        A coin decides between a record of high and of low value, if there are both.
        """
        takes_high_value = bool(self.high_value)
        if self.high_value and self.low_value:
            takes_high_value = rng.random() < 0.5
        indexes = self.high_value if takes_high_value else self.low_value
        return indexes.pop(rng.randrange(len(indexes)))


def _draw_scenes_in_turn(
    bucket: Sequence[int], rows: Sequence[RawRecord], quota: int, rng: random.Random
) -> list[int]:
    """Draw records of a bucket, one of each scene in turn, and return their indexes in `rows`.

    A scene is left out as soon as all its records are drawn.

    Args:
        bucket: Indexes in `rows`; more than `quota`.
        rows: The records of the test period.
        quota: How many records are drawn.
        rng: The random generator.
    """
    pools: dict[str, _ScenePool] = {}
    for index in bucket:
        scene_name = str(rows[index].get("type")).strip().lower()
        pool = pools.setdefault(scene_name, _ScenePool([], []))
        # Kept apart, since a coin decides from which of the two a draw is.
        if is_high_value(rows[index]):
            pool.high_value.append(index)
        else:
            pool.low_value.append(index)

    scene_names = list(pools)
    rng.shuffle(scene_names)
    drawn_indexes: list[int] = []
    turn = 0
    while len(drawn_indexes) < quota:
        pool = pools[scene_names[turn]]
        if pool.is_empty:
            # The next scene moves up to this turn; after the last one comes the first.
            scene_names.pop(turn)
            turn %= len(scene_names)
            continue
        drawn_indexes.append(pool.draw(rng))
        turn = (turn + 1) % len(scene_names)
    return drawn_indexes
