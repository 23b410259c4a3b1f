"""Your own questions as a benchmark: one JSON object per line.

    {"user": "ada", "messages": [{"role": "user", "content": "I moved to Lisbon."}],
     "question": "Where does Ada live?", "answer": "Lisbon", "evidence": ["D1:1"]}          (on one line)

    history or messages  the past: Mempiler's own History form, or OpenAI-style messages, or a list of lists of
                         them (one per session); messages get the turn ids D1:1, D1:2, ... session by session
    question, answer     texts (a number is read as a text); evidence: ids of the turns that hold the answer, optional
    category, id, user   optional; a name to report under, a unique name of the row, whose past it is

Rows with equal pasts (and the same user) share one History, so its memory is written once. Splits cut no conversation,
which is named by its user, else by the id inside `history`, else by its digest.

A metric may be a function of one's own in a module that is imported: `--metric mymetrics:names_the_city`, in any form
that DSPy and GEPA take (`metric_functions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import dspy
from pydantic import ConfigDict

from ..errors import DataError, UnknownNameError
from ..records import History
from .benchmark import Benchmark
from .common_scorers import Combined, ExactMatch, JudgeScorer, TokenF1
from .dataset import Dataset, FindingListener
from .metric_functions import FunctionScorer
from .field_types import Listed, Text, Words
from .json_lines import json_rows
from .rows import Location, Row, describe_misnamed_fields
from .scorer import Scorer


class _Row(Row):
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
    """Questions of a JSON-lines file; see the module's docstring.

    Metrics: "f1" (token F1) or "exact" (exact match), both on the words of `word_splitting`, which for English are
    SQuAD's; "judge"; or `module:function` of one's own.
    """

    name = "jsonl"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": lambda: Combined(TokenF1(), ExactMatch()),
        "exact": lambda: Combined(ExactMatch(), TokenF1()),
        "judge": lambda: Combined(JudgeScorer(), TokenF1(), ExactMatch()),
    }

    @classmethod
    def make_scorer(cls, metric: str) -> Scorer:
        """The scorer of a metric, `module:function` among them."""
        if ":" in metric:
            return Combined(FunctionScorer(metric), TokenF1(), ExactMatch())
        if metric not in cls.metrics:
            raise UnknownNameError("metric", metric, [*cls.metrics, "module:function"])
        return super().make_scorer(metric)

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        histories: dict[tuple[str, str], History] = {}
        examples: list[dspy.Example] = []
        taken: dict[str, int] = {}
        for line, place, row in json_rows(path, _Row, on_finding):
            for column in row.model_extra or ():
                place.field(column).warn("unknown column", "is not read")
            history = _history(row, place)
            if history is None:
                continue
            history = histories.setdefault((history.id, history.digest), history)
            id = row.id or f"{history.id}:{line}"
            if id in taken:
                place.field("id").reject("duplicate id", f"{id!r} is already the id of line {taken[id]}")
                continue
            taken[id] = line
            examples.append(_example(row, id, history, place))
        return Dataset(tuple(histories.values()), tuple(examples))


def _example(row: _Row, id: str, history: History, place: Location) -> dspy.Example:
    evidence = dict.fromkeys(row.evidence)
    kept = tuple(turn for turn in evidence if turn in history.turns)
    for turn in evidence:
        if turn not in history.turns:
            place.field("evidence").warn("dangling evidence", f"{turn!r} is no turn of the history; dropped")
    labels = {"answer": row.answer, "category": row.category or "all", "evidence": kept}
    example = dspy.Example(id=id, history=history, question=row.question, evidence_ids=kept, **labels)
    return example.with_inputs("history", "question", "evidence_ids")


def _history(row: _Row, place: Location) -> History | None:
    given = [name for name in ("history", "messages") if getattr(row, name) is not None]
    if not given:
        misnamed = describe_misnamed_fields(_Row, row.model_dump(exclude_unset=True))
        if misnamed:
            place.reject("missing field", misnamed)
            return None
    if len(given) != 1:
        place.field("history").reject("wrong value", "give either 'history' or 'messages', and one of them")
        return None
    column = place.field(given[0])
    try:
        history = History.parse(getattr(row, given[0]), id="")
    except DataError as error:
        column.reject("malformed history", str(error).removeprefix("history '': "))
        return None
    turns = [turn.id for item in history.items for turn in item.turns]
    if not turns or len(turns) > len(set(turns)):
        column.reject("malformed history", "uses a turn id twice" if turns else "holds no turns")
        return None
    return History(id=row.user or history.id or history.digest[:12], items=history.items)
