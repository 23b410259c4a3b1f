"""The ledger of a run with several workers: what each worker may have spent so far.

A worker records an entry before every call. So what a worker may have spent is known also if it is
killed. This module imports little, because Ray gives the ledger a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.usage import Usage, UsageReport


@dataclass(frozen=True)
class LedgerEntry:
    """What a worker records before a call."""

    number: int
    """Counts the entries of the worker. Its threads may deliver them in another order."""
    reserved_usage: Usage
    """What it has spent at most, with this call and all others in flight."""
    metered_usage: UsageReport
    """What its meter has counted."""


class Ledger:
    """The last entry of every worker, by the worker's number."""

    def __init__(self) -> None:
        self._entries: dict[int, LedgerEntry] = {}

    def record(self, worker: int, entry: LedgerEntry) -> None:
        """Store the entry of a worker, unless a later one is here."""
        last = self._entries.get(worker)
        if last is None or entry.number > last.number:
            self._entries[worker] = entry

    def last_entry(self, worker: int) -> LedgerEntry | None:
        """Return the last entry of a worker; None if it has made no call."""
        return self._entries.get(worker)
