"""The count of what a run uses of language models."""

from __future__ import annotations

import threading
from collections import Counter

from ..records.shared_by_copies import SharedByCopies
from .usage import UsageReport


class Meter(SharedByCopies):
    """Count what a run uses; safe under threads, and shared by all copies of a model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage = UsageReport()
        self.longest = 0
        """Tokens of the longest answer so far."""

    def read(self) -> UsageReport:
        """Return the counts now; subtract two readings to get the usage between them."""
        return self._usage

    def include(self, usage: UsageReport) -> None:
        """Add what was used, here or in another process."""
        with self._lock:
            self._usage += usage

    def add_answer(self, predictor: str, outcome: str, faults: Counter[str]) -> None:
        """Count a predictor call by how it ended, and what was wrong with its answers."""
        answers = Counter({(predictor, outcome): 1})
        faults_of_predictor = Counter({(predictor, kind): n for kind, n in faults.items()})
        self.include(UsageReport(answers=answers, faults=faults_of_predictor))

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return Meter, ()
