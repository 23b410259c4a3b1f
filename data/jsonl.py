"""Your own questions as a benchmark: one JSON object per line.

    {"user": "ada", "messages": [{"role": "user", "content": "I moved to Lisbon."}],
     "question": "Where does Ada live?", "answer": "Lisbon", "evidence": ["D1:1"]}   (on one line)

docs/questions.md describes every field. Rows with equal pasts and the same user share one History,
so its memory is written once. Splits keep a conversation whole. A conversation is named by its
user, else by the id inside `history`, else by its digest.

A metric may be a function of one's own in a module that can be imported, in any form that DSPy and
GEPA take (`metric_functions`): `--metric mymetrics:names_the_city`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import dspy
from pydantic import ConfigDict

from ..errors import DataError, UnknownNameError
from ..records import History
from .benchmark import Benchmark
from .common_scorers import Combined, ExactMatch, TokenF1
from .dataset import Dataset, FindingListener
from .field_types import Listed, Text, Words
from .json_lines import json_rows
from .metric_functions import FunctionScorer
from .rows import Location, Row, describe_misnamed_fields
from .scorer import Scorer


class _QuestionRow(Row):
    """One line of the file. Other fields are kept, so that they can be reported."""

    model_config = ConfigDict(extra="allow")
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("history", "messages"),)

    question: Text
    answer: Text
    history: Any = None
    messages: list[Any] | None = None
    evidence: Listed[str] = ()
    category: Words = ""
    id: Words = ""
    user: Words = ""


class JsonlBenchmark(Benchmark):
    """Questions of a file of JSON lines; see the docstring of the module.

    Metrics: "f1" (token F1), "exact" (exact match), "judge", or `module:function` of one's own.
    Words are those of `word_splitting`, which for English are SQuAD's.
    """

    name = "jsonl"

    @classmethod
    def make_scorer(cls, metric: str) -> Scorer:
        """Return a new scorer of a metric; `module:function` names one too."""
        if ":" in metric:
            return Combined(FunctionScorer(metric), TokenF1(), ExactMatch())
        if metric not in cls.metrics:
            raise UnknownNameError("metric", metric, [*cls.metrics, "module:function"])
        return super().make_scorer(metric)

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        """Read a file of JSON lines."""
        histories: dict[tuple[str, str], History] = {}
        examples: list[dspy.Example] = []
        lines_by_id: dict[str, int] = {}
        for line, location, row in json_rows(path, _QuestionRow, on_finding):
            for column in row.model_extra or ():
                location.field(column).warn("unknown column", "is not read")

            history = _read_history(row, location)
            if history is None:
                continue
            # Rows with equal histories of one user share one object.
            history = histories.setdefault((history.id, history.digest), history)

            example_id = row.id or f"{history.id}:{line}"
            if example_id in lines_by_id:
                first_line = lines_by_id[example_id]
                problem = f"{example_id!r} is already the id of line {first_line}"
                location.field("id").reject("duplicate id", problem)
                continue
            lines_by_id[example_id] = line

            # A label for scorers, and an input by which recall is measured.
            evidence = _read_evidence(row, history, location)
            example = dspy.Example(
                id=example_id,
                history=history,
                question=row.question,
                evidence_ids=evidence,
                answer=row.answer,
                category=row.category or "all",
                evidence=evidence,
            )
            examples.append(example.with_inputs("history", "question", "evidence_ids"))
        return Dataset(tuple(histories.values()), tuple(examples))


def _read_history(row: _QuestionRow, location: Location) -> History | None:
    """Return the history that a row is about; report what is wrong with it, and return None.

    A row has its history in one of two fields, `history` or `messages`.
    """
    has_history = row.history is not None
    has_messages = row.messages is not None
    if not has_history and not has_messages:
        # The row may have it under another name.
        misnamed = describe_misnamed_fields(_QuestionRow, row.model_dump(exclude_unset=True))
        if misnamed:
            location.reject("missing field", misnamed)
            return None

    has_one_of_them = has_history != has_messages
    if not has_one_of_them:
        problem = "give one of 'history' and 'messages', not none or both"
        location.field("history").reject("wrong value", problem)
        return None

    column = location.field("history" if has_history else "messages")
    try:
        history = History.parse(row.history if has_history else row.messages, id="")
    except DataError as error:
        # The history has no id yet, so the messages begin with "history '': ".
        column.reject("malformed history", str(error).removeprefix("history '': "))
        return None

    turn_ids = [turn.id for item in history.items for turn in item.turns]
    if not turn_ids:
        column.reject("malformed history", "holds no turns")
        return None
    if len(turn_ids) > len(set(turn_ids)):
        column.reject("malformed history", "uses a turn id twice")
        return None
    return History(id=row.user or history.id or history.digest[:12], items=history.items)


def _read_evidence(row: _QuestionRow, history: History, location: Location) -> tuple[str, ...]:
    """Return the ids of the turns that hold the answer; report ids that no turn has."""
    evidence: list[str] = []
    for turn_id in dict.fromkeys(row.evidence):
        if turn_id in history.turns:
            evidence.append(turn_id)
        else:
            problem = f"{turn_id!r} is no turn of the history; dropped"
            location.field("evidence").warn("dangling evidence", problem)
    return tuple(evidence)
