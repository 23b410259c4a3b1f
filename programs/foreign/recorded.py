"""Answers that were made elsewhere: the same metrics, judge and intervals for them, a file of JSON lines.

    {"id": "conv-26:17", "answer": "in Lisbon", "recalled": ["I moved to Lisbon.", {"id": "D3:11", "text": "..."}]}

`id` is that of the question; `part`, of a suite, the part whose question it is, since parts share ids. Optional:
`recalled`, as a search finds it (`searchable`); `calls`, `input_tokens`, `output_tokens`, `cost`, `seconds`, what the
answer took; `error` in the place of `answer`, for a question that failed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import dspy
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...engines.taken import Taken, note
from ...errors import DataError
from ...records import History, Query
from ...records.json_input import decode, read_text
from .own import Speaker
from .searchable import ForeignError

FIELD = "recorded"
"""The input under which a question carries its recorded answer."""
Count = Annotated[int, Field(ge=0, le=10**12)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class Recorded(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    part: str = ""
    answer: str | list[str] | None = None
    error: str | None = None
    recalled: tuple[str | dict[str, Any], ...] = ()
    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost: Amount | None = None
    seconds: Amount = 0.0


class Answers:
    """A file of answers.

    Args:
        path: The file.

    Raises:
        DataError: It is not such a file; the message has the line.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        text = read_text(self.path)
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        self.by_part: dict[str, dict[str, Recorded]] = {}
        """Lines by id, by the part of a suite that they name, "" for none."""
        lines: dict[tuple[str, str], int] = {}
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            found = _read(f"{self.path}: line {number}", line)
            first = lines.setdefault((found.part, found.id), number)
            if first != number:
                raise DataError(f"{self.path}: line {number}: id {found.id!r} was on line {first} already; keep one")
            self.by_part.setdefault(found.part, {})[found.id] = found

    def check_parts(self, parts: Sequence[str]) -> None:
        """Sees whether every answer is one to a part of a suite.

        Args:
            parts: Names of its parts, without the suite's.

        Raises:
            DataError: One names no part, or another one.
        """
        for part, rows in self.by_part.items():
            if part not in parts:
                told = f"part {part!r}" if part else "no part"
                wanted = f"`part` has to be one of {', '.join(parts)}, since they share ids"
                raise DataError(
                    f"{self.path}: id {next(iter(rows))!r} names {told}; in the answers to a suite {wanted}"
                )

    def given(self, examples: Sequence[dspy.Example], known: Iterable[str], part: str = "") -> list[dspy.Example]:
        """The questions with their answers.

        Args:
            examples: What is asked.
            known: Ids of all questions of the benchmark.
            part: The part of a suite that is asked; answers that name another one are passed over.

        Raises:
            DataError: A question has no answer, or an answer no question.
        """
        answers = {**self.by_part.get("", {}), **self.by_part.get(part, {})}
        ids = [str(example.id) for example in examples]
        missing = [id for id in ids if id not in answers]
        strange = sorted(answers.keys() - set(known))
        if strange:
            raise DataError(f"{self.path}: {_some(strange)} of no question; those of the benchmark are like {ids[0]!r}")
        if missing:
            raise DataError(f"{self.path}: {_some(missing)} missing; every question needs a line")
        return [
            example.copy(**{FIELD: answers[id]}).with_inputs(*example.inputs().keys(), FIELD)
            for id, example in zip(ids, examples, strict=True)
        ]


class RecordedReader(Speaker):
    """Gives the recorded answers."""

    def answered(self, history: History, query: Query) -> Any:
        found: Recorded | None = query.more.get(FIELD)
        if found is None:
            raise ForeignError("recorded answers answer the questions of an evaluation, no other ones")
        priced = found.cost is not None or not found.calls
        note(
            Taken(
                found.calls,
                found.input_tokens,
                found.output_tokens,
                found.cost or 0.0,
                0 if priced else found.calls,
                found.seconds,
            )
        )
        if found.answer is None:
            raise ForeignError(found.error or "no answer")
        return found.answer, found.recalled


def _read(where: str, line: str) -> Recorded:
    try:
        row = decode(line)
        if not isinstance(row, dict):
            raise DataError(f"{where}: is no JSON object")
        fields = cast("dict[str, Any]", row)
        found = Recorded.model_validate({**fields, "id": str(fields["id"])} if "id" in fields else fields)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not valid JSON ({error.msg}); is the line cut short?") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    if found.answer is None and found.error is None:
        raise DataError(f"{where}: has no answer; give `answer`, or `error` where the question failed")
    return found


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 1} more are" if len(ids) > 1 else " is"
    return f"id {ids[0]!r}{more}"
