"""Answers that were made elsewhere, a file of JSON lines: the same metrics, judge and intervals for them.

{"id": "conv-26:17", "answer": "in Lisbon", "recalled": ["I moved to Lisbon.", {"id": "D3:11", "text": "..."}]}
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import dspy
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

from ..data.benchmark import Benchmark
from ..data.dataset import refuse_fatal
from ..data.rows import json_rows
from ..engines.spending import Spending, note
from ..errors import DataError, UserError
from ..programs.failing import ExternalError
from ..records import History, Query

ANSWERS = ".jsonl"
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
    """What it rests on, as a search finds it (`programs.external.program.hits_of`)."""
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
        DataError: It is not such a file; the message has the line. Of `given`: it does not fit the benchmark.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.rows = Path(path), dict[str, Recorded]()
        for number, _, row in json_rows(self.path, Recorded, refuse_fatal(self.path)):
            if row.answer is None and row.error is None:
                told = "has no answer; give `answer`, or `error` where the question failed"
                raise DataError(f"{path}: line {number}: {told}")
            if self.rows.setdefault(row.id, row) is not row:
                raise DataError(f"{path}: line {number}: id {row.id!r} was there already; keep one")
        self.version = {"sha256": hashlib.sha256(self.path.read_bytes()).hexdigest()}
        """Setting of a program of these answers: those of another file are another program's."""

    def __call__(self, history: History, question: str, query: Query) -> Any:
        """The recorded answer to a question, and what was recalled for it."""
        found: Recorded | None = query.more.get(FIELD)
        if found is None:
            raise ExternalError("recorded answers answer the questions of an evaluation, no other ones")
        unpriced = found.calls if found.cost is None else 0
        tokens = found.input_tokens, found.output_tokens
        note(Spending(found.calls, *tokens, found.cost or 0.0, unpriced, found.seconds))
        if found.answer is None:
            raise ExternalError(found.error or "no answer")
        return found.answer, found.recalled

    def given(self, benchmark: Benchmark, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """The questions with their answers; every line has to be of a question of the benchmark.

        Raises:
            UserError: The benchmark's answers are conversations, which cannot be recorded so.
        """
        if benchmark.interaction is not None:
            raise UserError(f"{benchmark.name} is a simulated conversation: there is nothing to record one answer of")
        ids = [str(example.id) for example in examples]
        strange = sorted(self.rows.keys() - {str(each.id) for each in benchmark.examples})
        missing = [id for id in ids if id not in self.rows]
        if strange:
            wanted = f"those of the benchmark are like {ids[0]!r}"
            raise DataError(f"{self.path}: id {strange[0]!r} is of no question ({len(strange)} such); {wanted}")
        if missing:
            told = f"id {missing[0]!r} is missing ({len(missing)} such)"
            raise DataError(f"{self.path}: {told}; every question needs a line")
        return [
            example.copy(**{FIELD: self.rows[id]}).with_inputs(*example.inputs().keys(), FIELD)
            for id, example in zip(ids, examples, strict=True)
        ]
