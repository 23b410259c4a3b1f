"""The budget of a run while workers spend it: parts that are reserved, and given back.

What a worker takes of the budget, and what comes back:
    limits of the run ── Reservations ──> a part for each worker ── RecordingGuard ──> entry before each call
                                      <── what a worker did not spend: by its last word, or its last entry
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engines.limits import BudgetGuard, Limits
from ..engines.usage import Usage


class Reservations:
    """The parts of a run's budget that workers hold, by their numbers; driven by one thread.

    Args:
        guard: Of the run: counts a part as spent until it is settled.
        parts: What each worker may spend.
    """

    def __init__(self, guard: BudgetGuard, parts: Sequence[Limits]) -> None:
        self._guard = guard
        self._reserved: dict[int, Usage] = {}
        for worker, limits in enumerate(parts):
            reserved = _spending_of(limits)
            guard.add_usage(reserved)
            self._reserved[worker] = reserved

    @property
    def open(self) -> list[int]:
        """The workers whose parts are not settled."""
        return list(self._reserved)

    def settle(self, worker: int, spent: Usage) -> None:
        """Count what a worker has spent in the place of its part; the rest is the run's again."""
        reserved = self._reserved.pop(worker)
        self._guard.add_usage(spent - reserved)


class RecordingGuard(BudgetGuard):
    """The guard of a worker: says what may be spent before each call, so that it is known if the worker is killed.

    Args:
        limits: What the worker may spend.
        in_flight: Calls that one endpoint is asked at the same time.
        record: Takes the number of a call, and what is spent at most once it is made. A call is made when it returns.
    """

    def __init__(self, limits: Limits, in_flight: int, record: Callable[[int, Usage], None]) -> None:
        super().__init__(limits, in_flight)
        self._record = record
        self._recorded = 0

    def admit(self) -> None:
        """Called before a call that costs; as `BudgetGuard.admit`."""
        super().admit()
        with self._lock:
            self._recorded += 1
            number, at_most = self._recorded, self._committed()
        self._record(number, at_most)


def _spending_of(limits: Limits) -> Usage:
    """Return what is spent where limits are reached; nothing of those that are none."""
    return Usage(
        limits.max_calls or 0,
        limits.max_tokens or 0,
        cost=limits.max_usd or 0.0,
        seconds=60 * (limits.max_minutes or 0),
    )
