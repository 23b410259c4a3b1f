"""The answered questions in the store of a run."""

from __future__ import annotations

from collections.abc import Sequence

from .json_rows import JsonRows
from .rows import Row

_TABLE = "rows"


class RowTable:
    """Rows of answered questions by the phase of the run.

    Args:
        file: The file with the rows.
        part: Stands before the phase in scopes of a part of the run.
    """

    def __init__(self, file: JsonRows, part: str = "") -> None:
        self._file = file
        self._part = part

    def answered_rows(self, phase: str, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of those questions that were answered, by their ids."""
        scope = self._part + phase
        rows: dict[str, Row] = {}
        for question_id in self._file.ids(_TABLE, scope, ids):
            record = self._file.get(_TABLE, scope, question_id)
            if record is not None:
                rows[question_id] = Row.model_validate(record)
        return rows

    def put(self, phase: str, row: Row) -> None:
        """Write the row of a question, unless it failed.

        Failed questions are asked again when the run is resumed.
        """
        if row.failure is None:
            self._file.put(_TABLE, self._part + phase, row.id, row.model_dump(mode="json"))
