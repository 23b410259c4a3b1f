"""The budget of a run that several workers spend.

Each worker gets a part of the budget, which counts as spent until the worker has ended. What the
worker did not spend then goes back:

    limits of the run -> Reservations -> a part for each worker -> RecordingGuard -> its calls
                                      <- what the worker did not spend

What it has spent is known by its reply or, if it was killed, by its last entry in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engines.limits import BudgetGuard, Limits
from ..engines.usage import Usage


class Reservations:
    """The parts of a run's budget that its workers hold; used by one thread.

    Args:
        guard: The guard of the run, for which a part counts as spent until it is settled.
        parts: What each worker may spend, by the worker's number.
    """

    def __init__(self, guard: BudgetGuard, parts: Sequence[Limits]) -> None:
        self._guard = guard
        self._reserved: dict[int, Usage] = {}
        for worker, limits in enumerate(parts):
            reserved = _usage_at_limits(limits)
            guard.add_usage(reserved)
            self._reserved[worker] = reserved

    @property
    def open_workers(self) -> list[int]:
        """The workers whose parts are not settled."""
        return list(self._reserved)

    def settle(self, worker: int, spent: Usage) -> None:
        """Replace the part of a worker by what it has spent; the rest goes back to the run."""
        reserved = self._reserved.pop(worker)
        self._guard.add_usage(spent - reserved)


class RecordingGuard(BudgetGuard):
    """The guard of a worker: before each call, it has recorded what may be spent.

    So if the worker is killed, the record says how much of its part it may have used up.

    Args:
        limits: What the worker may spend.
        in_flight: Most calls in flight at one endpoint.
        record: Called before each call with the number of the call, and with the most that is spent
            once this call and all others in flight have ended. The call is made when `record` has
            returned.
    """

    def __init__(
        self, limits: Limits, in_flight: int, record: Callable[[int, Usage], None]
    ) -> None:
        super().__init__(limits, in_flight)
        self._record = record
        self._recorded_calls = 0

    def admit(self) -> None:
        """Count and record a request that is about to be made, or refuse it."""
        super().admit()
        with self._lock:
            self._recorded_calls += 1
            number = self._recorded_calls
            # What was spent, and what the calls in flight may spend; this call is one of them.
            most_usage = self._committed()
        # Not under the lock: recording may take a request to another machine, and other threads
        # need the lock meanwhile. Records may therefore arrive out of order, which is why they are
        # numbered.
        self._record(number, most_usage)


def _usage_at_limits(limits: Limits) -> Usage:
    """Return the usage at which all limits are reached.

    It is 0 in what has no limit: nothing of that has to be reserved.
    """
    # `max_tokens` limits input and output together, so all tokens may stand as input.
    return Usage(
        calls=limits.max_calls or 0,
        input_tokens=limits.max_tokens or 0,
        cost=limits.max_usd or 0.0,
        seconds=60 * (limits.max_minutes or 0),
    )
