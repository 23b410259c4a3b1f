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
        """Return the places in `rows` of the records that are asked, ascending.

        Args:
            user: The user's id. The draw does not depend on the other users of the file.
            rows: The records of the test period.
        """
        places = [place for place, row in enumerate(rows) if is_informative(row)]
        if len(places) <= self.test_actions:
            return places

        rng = random.Random(self.seed + self._offset(user))
        buckets = self._buckets(places)
        quota, num_larger_quotas = divmod(self.test_actions, len(buckets))
        drawn: list[int] = []
        for number, bucket in enumerate(buckets):
            bucket_quota = quota + 1 if number < num_larger_quotas else quota
            if len(bucket) <= bucket_quota:
                drawn.extend(bucket)
            else:
                drawn.extend(_draw_scenes_in_turn(bucket, rows, bucket_quota, rng))
        return sorted(drawn)

    def _offset(self, user: str) -> int:
        """Return what is added to the seed for a user."""
        if self.offsets is not None and user in self.offsets:
            return self.offsets[user]
        return seed_offset(user)

    def _buckets(self, places: Sequence[int]) -> list[Sequence[int]]:
        """Cut places in time order into buckets of one size; the last takes the remainder too."""
        num_buckets = max(1, min(MAX_BUCKETS, len(places) // 2, self.test_actions))
        size = len(places) // num_buckets
        buckets = [places[number * size : (number + 1) * size] for number in range(num_buckets - 1)]
        buckets.append(places[(num_buckets - 1) * size :])
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
    """The places of one scene's records in a bucket that are not drawn yet."""

    high_value: list[int]
    low_value: list[int]

    def draw(self, rng: random.Random) -> int:
        """Remove and return one place; a coin chooses the value if there are both."""
        takes_high_value = bool(self.high_value)
        if self.high_value and self.low_value:
            takes_high_value = rng.random() < 0.5
        places = self.high_value if takes_high_value else self.low_value
        return places.pop(rng.randrange(len(places)))


def _draw_scenes_in_turn(
    bucket: Sequence[int], rows: Sequence[RawRecord], quota: int, rng: random.Random
) -> list[int]:
    """Draw places of a bucket, one of each scene in turn.

    Args:
        bucket: The places; more than `quota`.
        rows: The records of the test period.
        quota: How many places are drawn.
        rng: Draws them.
    """
    pools: dict[str, _ScenePool] = {}
    for place in bucket:
        scene_name = str(rows[place].get("type")).strip().lower()
        pool = pools.setdefault(scene_name, _ScenePool([], []))
        if is_high_value(rows[place]):
            pool.high_value.append(place)
        else:
            pool.low_value.append(place)

    scene_names = list(pools)
    rng.shuffle(scene_names)
    drawn: list[int] = []
    turn = 0
    while len(drawn) < quota:
        pool = pools[scene_names[turn]]
        if pool.high_value or pool.low_value:
            drawn.append(pool.draw(rng))
            turn = (turn + 1) % len(scene_names)
        else:
            scene_names.pop(turn)
            turn %= len(scene_names)
    return drawn
