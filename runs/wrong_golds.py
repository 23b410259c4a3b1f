"""Questions whose gold answer is known to be wrong, by files of the user's: a comparison can leave them out.

A file is a JSON list, or JSON lines, of objects with `id` or `question`. Other fields, such as the right answer, are
for people; of an audit's findings (`error_type`), those of citations alone do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..records.json_input import decode, read_text
from .compare import Recorded
from .rows import Row

NO_ERROR_OF_THE_GOLD = frozenset({"WRONG_CITATION"})
"""Kinds of findings of audits that leave the gold answer right."""


@dataclass(frozen=True)
class WrongGolds:
    """Questions by their ids or their words."""

    ids: frozenset[str]
    questions: frozenset[str]

    def left_out(self, run: Recorded) -> Recorded:
        """A run without these questions."""
        phases = {
            name: found.model_copy(update={"rows": tuple(row for row in found.rows if not self._names(row))})
            for name, found in run.phases.items()
        }
        return replace(run, phases=phases)

    def _names(self, row: Row) -> bool:
        return row.id in self.ids or _plain(row.question) in self.questions


def read_wrong_golds(paths: Sequence[str | Path]) -> WrongGolds:
    """Reads files of wrong golds.

    Raises:
        DataError: One is no such file.
    """
    ids, questions = set[str](), set[str]()
    for path in map(Path, paths):
        for row in _objects(path):
            if row.get("error_type") in NO_ERROR_OF_THE_GOLD:
                continue
            if isinstance(row.get("id"), str):
                ids.add(row["id"])
            elif isinstance(row.get("question"), str):
                questions.add(_plain(row["question"]))
            else:
                raise DataError(f"{path}: an entry has neither a text `id` nor `question`")
    return WrongGolds(frozenset(ids), frozenset(questions))


def _objects(path: Path) -> list[dict[str, Any]]:
    text = read_text(path)
    try:
        whole = text.lstrip().startswith("[")
        found = decode(text) if whole else [decode(line) for line in text.split("\n") if line.strip()]
    except ValueError as error:
        raise DataError(f"{path}: is neither a JSON list nor JSON lines: {error}") from None
    if not all(isinstance(row, dict) for row in found):
        raise DataError(f"{path}: holds what is no object; expected {{id}} or {{question}}")
    return found


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
