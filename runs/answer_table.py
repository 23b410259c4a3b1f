"""The answers of language models in the store of a run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from ..programs.single_flight import SingleFlight
from ..records.shared_by_copies import SharedByCopies
from .json_rows import JsonRows

_TABLE = "answers"
_SHARED_NUMBER = "0"
"""The id of the one answer that equal calls share."""

AnswerRecord = dict[str, Any]
"""An answer as JSON."""


class AnswerTable(SharedByCopies):
    """Answers by the digest of their call.

    If DSPy's cache of a model is on, equal calls share one answer, here too. If it is off, each of
    several equal calls has an answer of its own: the first call is stored under the number 0, the
    second one under 1, and so on. Otherwise every sample of a model would be the same.

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
        self, key: str, compute: Callable[[], AnswerRecord], is_shared: bool = False
    ) -> tuple[AnswerRecord, bool]:
        """Return the answer to a call, and whether it was there before.

        It counts as there before, too, if an equal call that began earlier has just made it.

        Args:
            key: The digest of the call.
            compute: Makes the call and returns the answer.
            is_shared: Whether equal calls share one answer.
        """
        was_computed_here = False

        def make_call() -> AnswerRecord:
            nonlocal was_computed_here
            was_computed_here = True
            return compute()

        if is_shared:
            # Equal calls at the same time wait for the first of them and get its answer, so they
            # run neither `read_or_compute` nor `make_call`.
            read_or_compute = partial(self._read_or_compute, key, _SHARED_NUMBER, make_call)
            record = self._shared_answers.get_or_compute(key, read_or_compute)
        else:
            record = self._read_or_compute(key, self._number_next_call(key), make_call)
        return record, not was_computed_here

    def all(self, key: str) -> list[AnswerRecord]:
        """Return the answers to all calls of a digest, in the order of the calls."""
        return self._file.all(_TABLE, key)

    def _number_next_call(self, key: str) -> str:
        """Count one more of several equal calls; return the id of its answer, e.g. "2"."""
        with self._lock:
            number = self._next_numbers[key]
            self._next_numbers[key] += 1
        return f"{self._part}{number}"

    def _read_or_compute(
        self, key: str, row_id: str, compute: Callable[[], AnswerRecord]
    ) -> AnswerRecord:
        """Return the stored answer to a call; make the call and store its answer if there is none.

        Args:
            key: The digest of the call.
            row_id: Which of the answers to equal calls is wanted.
            compute: Makes the call and returns the answer.
        """
        stored = self._file.get(_TABLE, key, row_id)
        if stored is not None:
            return stored
        record = compute()
        self._file.put(_TABLE, key, row_id, record)
        return record
