"""The answers of language models in the store of a run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..programs.single_flight import SingleFlight
from ..records.shared_by_copies import SharedByCopies
from .json_rows import JsonRows

_TABLE = "answers"
_SHARED_NUMBER = "0"
"""The number of an answer that equal calls share."""

AnswerRecord = dict[str, Any]
"""An answer as JSON."""


class AnswerTable(SharedByCopies):
    """Answers by the digest of their call.

    If DSPy's cache of a model is on, equal calls are one call and share one answer, here too. If it
    is off, each of several equal calls has an answer of its own, under its number. Otherwise every
    sample of a model would be the same.

    Numbers are counted within a part of the run: if the run is resumed, a part that is done does
    not make its calls again, so they could not be counted.

    Args:
        file: The file with the answers.
        part: Stands before the numbers in ids of a part of the run.
    """

    def __init__(self, file: JsonRows, part: str = "") -> None:
        self._file = file
        self._part = part
        self._lock = threading.Lock()
        self._next_numbers: Counter[str] = Counter()
        self._shared_answers: SingleFlight[str, AnswerRecord] = SingleFlight(capacity=10_000)

    def get_or_compute(
        self, key: str, compute: Callable[[], AnswerRecord], merged: bool = False
    ) -> tuple[AnswerRecord, bool]:
        """Return the answer to a call, and whether it was there before.

        Args:
            key: The digest of the call.
            compute: Makes the call and returns the answer.
            merged: Whether equal calls share one answer.
        """
        if not merged:
            return self._read_or_compute(key, self._next_number(key), compute)

        was_stored = True

        def read_or_compute() -> AnswerRecord:
            nonlocal was_stored
            record, was_stored = self._read_or_compute(key, _SHARED_NUMBER, compute)
            return record

        # Equal calls at the same time wait for the first of them.
        record = self._shared_answers.get_or_compute(key, read_or_compute)
        return record, was_stored

    def all(self, key: str) -> list[AnswerRecord]:
        """Return the answers to all calls of a digest, in the order of the calls."""
        return self._file.all(_TABLE, key)

    def _next_number(self, key: str) -> str:
        """Count a call; return its number as an id."""
        with self._lock:
            number = self._next_numbers[key]
            self._next_numbers[key] += 1
        return f"{self._part}{number}"

    def _read_or_compute(
        self, key: str, number: str, compute: Callable[[], AnswerRecord]
    ) -> tuple[AnswerRecord, bool]:
        """Return the answer with a number, and whether it was there before."""
        stored = self._file.get(_TABLE, key, number)
        if stored is not None:
            return stored, True
        record = compute()
        self._file.put(_TABLE, key, number, record)
        return record, False
