"""Which records of a raw OmniBehavior file are history, which are asked, and which questions are drawn.

    history 2025-09-01 .. 2025-09-30        test period 2025-10-01 .. 2025-11-30        30 records of it are asked

The released code compares raw texts with dates that have no clock, so that "2025-09-30 08:00:00" is after "2025-09-30":
all records ON the last day of either period belong to neither. That is the default here, for comparable numbers;
`last_day=True` takes these days in.

Drawing (released: ten buckets of time, scenes in turn in a shuffled order, half of high and half of low value): here
the test period is cut into ten buckets of as many records each, in each bucket scenes take turns, and records with a
reaction beyond watching take turns with those without.

Limits: the released draw is described, not copied, so that the same seed does not draw the same records. Who
needs them takes the prepared experiment file.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .scenes import fields_of, is_informative, reacted, scene_of

BUCKETS = 10


@dataclass(frozen=True)
class Periods:
    """How a raw file is cut."""

    history: tuple[str, str] = ("2025-09-01", "2025-09-30")
    test: tuple[str, str] = ("2025-10-01", "2025-11-30")
    last_day: bool = False
    """Whether the last day of each period belongs to it; as released, it does not."""
    test_actions: int = 30
    """Records asked per user."""
    seed: int = 42

    def cut(self, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The records of the history and of the test period, both in time order."""
        ordered = sorted(rows, key=lambda row: str(row.get("timestamp") or ""))
        return [row for row in ordered if self._within(row, self.history)], [
            row for row in ordered if self._within(row, self.test)
        ]

    def _within(self, row: Mapping[str, Any], period: tuple[str, str]) -> bool:
        time = str(row.get("timestamp") or "")
        # As texts: a moment of the last day is longer than the day and so greater.
        return period[0] <= (time[: len(period[1])] if self.last_day else time) <= period[1]

    def draw(self, user: str, rows: Sequence[Mapping[str, Any]]) -> list[int]:
        """The places of the records that are asked, ascending.

        Args:
            user: Their id; the draw does not depend on the other users of the file.
            rows: The test period.
        """
        seed = self.seed + int(hashlib.sha256(user.encode()).hexdigest()[:8], 16) % 10**9
        rng = random.Random(seed)
        places = [n for n, row in enumerate(rows) if is_informative(row) and fields_of(row)]
        if len(places) <= self.test_actions:
            return places
        size = len(places) / BUCKETS
        buckets = [places[round(n * size) : round((n + 1) * size)] for n in range(BUCKETS)]
        queues = [_in_turn(bucket, rows, rng) for bucket in buckets]
        longest = max(map(len, queues))
        taken = [queue[n] for n in range(longest) for queue in queues if n < len(queue)]
        return sorted(taken[: self.test_actions])


def is_active(row: Mapping[str, Any]) -> bool:
    """Whether a record is of high value: the user did more than watch."""
    fields = (field for field in fields_of(row) if field != "video_completed")
    return any(reacted(field, row) for field in fields)


def _in_turn(bucket: Sequence[int], rows: Sequence[Mapping[str, Any]], rng: random.Random) -> list[int]:
    """A bucket's places in the order in which they are drawn: scenes in turn, high and low value in turn."""
    kinds: dict[tuple[str, bool], list[int]] = {}
    for place in rng.sample(bucket, len(bucket)):
        kinds.setdefault((str(scene_of(rows[place].get("type"))), is_active(rows[place])), []).append(place)
    scenes = sorted({scene for scene, _ in kinds})
    rng.shuffle(scenes)
    order, wanted = [], True
    while any(kinds.values()):
        for scene in scenes:
            for value in (wanted, not wanted):
                if kinds.get((scene, value)):
                    order.append(kinds[scene, value].pop())
                    wanted = not wanted
                    break
    return order
