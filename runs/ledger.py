"""What the workers of a run may have spent, as each says before every call: known also of one that is killed.

This module imports little: Ray gives the ledger a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.usage import Usage, UsageReport


@dataclass(frozen=True)
class LedgerEntry:
    """What a worker says before a call."""

    number: int
    """Counts the entries of a worker: those of its threads may come in another order than they were made."""
    reserved_usage: Usage
    """At most what it has spent, the call and all others in flight included."""
    metered_usage: UsageReport
    """What its meter has counted."""


class Ledger:
    """The last entry of every worker, by the worker's number."""

    def __init__(self) -> None:
        self._entries: dict[int, LedgerEntry] = {}

    def record(self, worker: int, entry: LedgerEntry) -> None:
        """Keep the entry of a worker, unless a later one is here."""
        last = self._entries.get(worker)
        if last is None or entry.number > last.number:
            self._entries[worker] = entry

    def last_entry(self, worker: int) -> LedgerEntry | None:
        """Return the last entry of a worker; None if it has made no call."""
        return self._entries.get(worker)
