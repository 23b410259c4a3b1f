"""Which users of raw OmniBehavior files are taken, which records are history, and which are asked.

The released code compares raw texts with dates that have no clock: all records ON the last day of either period belong
to neither. Drawing, as released: records that can be predicted are cut into ten buckets of time; in each, scenes take
turns in a shuffled order, and a coin says whether a record of high or of low value comes next. A user's own seed comes
from their id, or from `seed_offsets.json` beside the raw files, which is there because their ids were changed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .records import is_high_value, is_informative

BUCKETS = 10


@dataclass(frozen=True)
class Periods:
    """How a raw file is cut."""

    history: tuple[str, str] = ("2025-09-01", "2025-09-30")
    test: tuple[str, str] = ("2025-10-01", "2025-11-30")
    test_actions: int = 30
    """Records asked per user."""
    seed: int = 42
    offsets: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """What is added to the seed, by user; a user who is not named adds what `seed_offset` makes of the id."""

    def chosen(self, asked: Mapping[str, int], count: int) -> list[str]:
        """So many users, drawn as released from those of whom `test_actions` records can be asked.

        Args:
            asked: By user, how many of their records can be asked; 0 for one without a history.
            count: Most users.
        """
        fit = sorted(user for user, found in asked.items() if found >= self.test_actions)
        return fit if len(fit) <= count else sorted(random.Random(self.seed).sample(fit, count))

    def cut(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The records of the history and of the test period, both in time order."""
        ordered = sorted((str(row.get("timestamp") or ""), n) for n, row in enumerate(rows))
        # As texts: a moment of the last day is longer than the day and so greater.
        before, since = (
            [rows[n] for time, n in ordered if begin <= time <= end] for begin, end in (self.history, self.test)
        )
        return before, since

    def draw(self, user: str, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """The places of the records that are asked, ascending.

        Args:
            user: Their id; the draw does not depend on the other users of the file.
            rows: The test period.
        """
        places = [n for n, row in enumerate(rows) if is_informative(row)]
        if len(places) <= self.test_actions:
            return places
        rng = random.Random(self.seed + self.offsets.get(user, seed_offset(user)))
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


def _in_turn(bucket: Sequence[int], rows: Sequence[Mapping[str, Any]], quota: int, rng: random.Random) -> list[int]:
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
