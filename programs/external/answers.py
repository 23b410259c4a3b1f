"""Answers that were made elsewhere, a file of JSON lines: the same metrics, judge and intervals for them.

{"id": "conv-26:17", "answer": "in Lisbon", "recalled": ["I moved to Lisbon.", {"id": "D3:11", "text": "..."}]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import dspy
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, ValidationError

from ...engines.taken import Taken, note
from ...errors import DataError, misfit
from ...records import History, Query
from ...records.json_input import decode, read_text
from ..failing import ExternalError

FIELD = "recorded"
"""The input under which a question carries its recorded answer."""
Count = Annotated[int, Field(ge=0, le=10**12)]


class Recorded(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    id: str
    """Of the question."""
    answer: str | list[str] | None = None
    error: str | None = None
    """Why the question failed, in the place of an answer."""
    recalled: tuple[str | dict[str, Any], ...] = ()
    """What it rests on, as a search finds it (`program.hits_of`)."""
    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost: NonNegativeFloat | None = None
    seconds: NonNegativeFloat = 0.0


class Answers:
    """A file of answers; called as whatever answers, it gives that of a question.

    Args:
        path: The file.

    Raises:
        DataError: It is not such a file; the message has the line. Of a method: it does not fit the benchmark.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        text = read_text(self.path)
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        self.rows: dict[str, Recorded] = {}
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                row = _row(f"{self.path}: line {number}", line)
                if self.rows.setdefault(row.id, row) is not row:
                    raise DataError(f"{self.path}: line {number}: id {row.id!r} was there already; keep one")

    def __call__(self, history: History, question: str, query: Query) -> Any:
        """The recorded answer to a question, and what was recalled for it."""
        found: Recorded | None = query.more.get(FIELD)
        if found is None:
            raise ExternalError("recorded answers answer the questions of an evaluation, no other ones")
        unpriced = found.calls if found.cost is None else 0
        tokens = found.input_tokens, found.output_tokens
        note(Taken(found.calls, *tokens, found.cost or 0.0, unpriced, found.seconds))
        if found.answer is None:
            raise ExternalError(found.error or "no answer")
        return found.answer, found.recalled

    def given(self, examples: Sequence[dspy.Example], known: Iterable[str]) -> list[dspy.Example]:
        """The questions with their answers.

        Args:
            examples: What is asked.
            known: Ids of all questions of the benchmark.
        """
        answers = self.rows
        ids = [str(example.id) for example in examples]
        strange, missing = sorted(answers.keys() - set(known)), [id for id in ids if id not in answers]
        if strange:
            wanted = f"those of the benchmark are like {ids[0]!r}"
            raise DataError(f"{self.path}: id {strange[0]!r} is of no question ({len(strange)} such); {wanted}")
        if missing:
            told = f"id {missing[0]!r} is missing ({len(missing)} such)"
            raise DataError(f"{self.path}: {told}; every question needs a line")
        return [
            example.copy(**{FIELD: answers[id]}).with_inputs(*example.inputs().keys(), FIELD)
            for id, example in zip(ids, examples, strict=True)
        ]


def _row(where: str, line: str) -> Recorded:
    try:
        found = Recorded.model_validate(decode(line))
    except ValidationError as error:
        raise DataError(f"{where}: {misfit(error)}") from None
    except ValueError as error:
        raise DataError(f"{where}: not valid JSON ({error}); is the line cut short?") from None
    if found.answer is None and found.error is None:
        raise DataError(f"{where}: has no answer; give `answer`, or `error` where the question failed")
    return found
