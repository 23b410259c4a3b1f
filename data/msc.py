"""MSC: questions about a handful of earlier chats of two strangers (Xu et al. 2022; questions by Packer et al. 2023).

The genuine file is `msc_self_instruct.jsonl` of the hub set MemGPT/MSC-Self-Instruct (`mempiler fetch msc`); its form
is taken from its documentation. The question is asked after the current dialogue, `dialog`. Personas and summaries are
not read: they would hand a memory what it has to find. A row only says how long before the current dialogue each
session was, so distances and order are right and the calendar is made up.

Limits: the questions and answers were written by a model and say "you" without saying who asks whom. There is no
evidence, hence no recall. The published tables use ROUGE-L and a judge (MemGPT) or token F1, BLEU-1 and a judge
(Memory-R2); here the score is SQuAD's token F1 with BLEU-1 beside it, or a judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ..records import History, Session, Turn
from .benchmark import Benchmark
from .common_scorers import Bleu1, Combined, JudgeScorer, TokenF1
from .dataset import Dataset, FindingListener
from .field_types import Listed, Text, Words
from .json_lines import json_rows
from .rows import Location, Row
from .scorer import Scorer
from .word_splitting import SQUAD

CURRENT = datetime(2024, 3, 1, 12)
"""When every current dialogue is said to take place."""

_SPAN = re.compile(r"(?<!\d)(\d{1,6})\s*(minute|hour|day|week|month|year)s?\b", re.IGNORECASE)
_LENGTH = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}
_LONGEST = timedelta(days=36_500)


class _Message(Row):
    id: Words = ""
    text: Words = ""


class _Earlier(Row):
    dialog: tuple[_Message, ...]
    time_back: Words = ""


class _Asked(Row):
    B: Text
    A: Text


class _Row(Row):
    self_instruct: _Asked
    previous_dialogs: tuple[_Earlier, ...]
    dialog: Listed[_Message] = ()
    metadata: Any = None


class Msc(Benchmark):
    """MSC-Self-Instruct's questions: token F1 or a judge."""

    name = "msc"
    sample = "msc.jsonl"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": lambda: Combined(TokenF1(SQUAD), Bleu1(SQUAD)),
        "judge": lambda: Combined(JudgeScorer(), TokenF1(SQUAD), Bleu1(SQUAD)),
    }

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        histories: dict[tuple[str, str], History] = {}
        examples: dict[str, dspy.Example] = {}
        for number, place, row in json_rows(path, _Row, on_finding):
            history = _history(row, number, place)
            if not history.items:
                place.reject("no turns", "no session has a turn with words")
                continue
            id = history.id
            if id in examples:
                id = f"{id}:{number}"
                place.warn("repeated conversation", f"{history.id!r} was there before; the question is {id!r}")
            histories.setdefault((history.id, history.digest), history)
            labels = {"answer": row.self_instruct.A, "category": "all", "evidence_ids": (), "evidence": ()}
            example = dspy.Example(id=id, history=history, question=row.self_instruct.B, **labels)
            examples[id] = example.with_inputs("history", "question", "evidence_ids")
        return Dataset(tuple(histories.values()), tuple(examples.values()))


def time_back(text: str) -> timedelta | None:
    """How long ago `12 days 4 hours ago` is: a month counts 30 days, a year 365.

    Returns:
        The span, or None where the text names none, or one over a hundred years.
    """
    spans = [int(number) * _LENGTH[unit.lower()] for number, unit in _SPAN.findall(text)]
    if not spans or max(spans) > _LONGEST:
        return None
    total = sum(spans, timedelta())
    return total if total <= _LONGEST else None


def _history(row: _Row, number: int, place: Location) -> History:
    times = [*_times(row, place), CURRENT]
    talks = [*(part.dialog for part in row.previous_dialogs), row.dialog]
    items = []
    for n, (talk, time) in enumerate(zip(talks, times, strict=True), 1):
        turns = tuple(
            Turn(id=f"D{n}:{k}", speaker=said.id or f"Speaker {(k - 1) % 2 + 1}", text=said.text)
            for k, said in enumerate(talk, 1)
            if said.text
        )
        if turns:
            items.append(Session(id=f"D{n}", time=time, turns=turns))
    id = row.metadata.get("initial_data_id") if isinstance(row.metadata, dict) else None
    return History(id=str(id or f"msc-{number}"), items=tuple(items))


def _times(row: _Row, place: Location) -> list[datetime | None]:
    """When the earlier sessions were; all None when their order and their distances disagree."""
    spans = [time_back(part.time_back) for part in row.previous_dialogs]
    for n, span in enumerate(spans):
        if span is None:
            place.field(f"previous_dialogs.{n}.time_back").warn("no time_back", "names no span; it stays undated")
    known = [span for span in spans if span is not None]
    if any(later >= earlier for earlier, later in pairwise(known)):
        message = "do not shrink from session to session; all but the current dialogue stay undated"
        place.warn("times out of order", message)
        return [None] * len(spans)
    return [None if span is None else CURRENT - span for span in spans]
