"""MSC: questions about some earlier chats of two strangers (Xu et al. 2022; Packer et al. 2023).

The genuine file is `msc_self_instruct.jsonl` of the hub set MemGPT/MSC-Self-Instruct (`mempiler
fetch msc`); its form is taken from its documentation. Xu et al. collected the chats, Packer et al.
the questions. A question is asked after the current dialogue, `dialog`. Personas and summaries are
not read: they would hand a memory what it has to find. A row only says how long before the current
dialogue each session was, so distances and order are right and the calendar is made up.

Limits: the questions and answers were written by a model and say "you" without saying who asks
whom. There is no evidence, hence no recall. The published tables use ROUGE-L and a judge (MemGPT)
or token F1, BLEU-1 and a judge (Memory-R2); here the score is SQuAD's token F1 with BLEU-1 beside
it, or a judge.
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
from .support import SUPPORT, Support
from .word_splitting import SQUAD

CURRENT = datetime(2024, 3, 1, 12)
"""When every current dialogue is said to take place."""

_SPAN = re.compile(r"(?<!\d)(\d{1,6})\s*(minute|hour|day|week|month|year)s?\b", re.IGNORECASE)
_UNITS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}
_MAX_SPAN = timedelta(days=36_500)


class _Message(Row):
    """A turn of a dialogue."""

    id: Words = ""
    text: Words = ""


class _EarlierDialogue(Row):
    """A dialogue before the current one."""

    dialog: tuple[_Message, ...]
    time_back: Words = ""
    """How long before the current dialogue it was."""


class _QuestionAndAnswer(Row):
    """The question, `B`, and its answer, `A`."""

    B: Text
    A: Text


class _MscRow(Row):
    """A line of the file."""

    self_instruct: _QuestionAndAnswer
    previous_dialogs: tuple[_EarlierDialogue, ...]
    dialog: Listed[_Message] = ()
    metadata: Any = None


class Msc(Benchmark):
    """MSC-Self-Instruct's questions: token F1 or a judge."""

    name = "msc"
    sample = "msc.jsonl"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": lambda: Combined(TokenF1(SQUAD), Bleu1(SQUAD)),
        "judge": lambda: Combined(JudgeScorer(), TokenF1(SQUAD), Bleu1(SQUAD)),
        SUPPORT: lambda: Support(SQUAD),
    }

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
        """Read a file of JSON lines.

        Of `self_instruct` in a row, `B` is the question and `A` the gold answer.
        """
        # A conversation may have several questions, each in a row that repeats it. By its digest it
        # is kept once, but two conversations with one id are both kept.
        histories: dict[tuple[str, str], History] = {}
        examples: dict[str, dspy.Example] = {}
        for line, location, row in json_rows(path, _MscRow, on_finding):
            history = _read_history(row, line, location)
            if not history.items:
                location.reject("no turns", "no session has a turn with words")
                continue
            histories.setdefault((history.id, history.digest), history)

            example_id = history.id
            if example_id in examples:
                example_id = f"{history.id}:{line}"
                problem = f"{history.id!r} was there before; the question is {example_id!r}"
                location.warn("repeated conversation", problem)

            example = dspy.Example(
                id=example_id,
                history=history,
                question=row.self_instruct.B,
                answer=row.self_instruct.A,
                category="all",
                evidence_ids=(),
                evidence=(),
            )
            examples[example_id] = example.with_inputs("history", "question", "evidence_ids")
        return Dataset(tuple(histories.values()), tuple(examples.values()))


def time_back(text: str) -> timedelta | None:
    """Return how long ago `12 days 4 hours ago` is: a month counts 30 days, a year 365.

    Returns:
        The span, or None where the text names none, or one over a hundred years.
    """
    spans: list[timedelta] = []
    for number, unit in _SPAN.findall(text):
        spans.append(int(number) * _UNITS[unit.lower()])

    # A single span is checked before it is added, since a sum may be too large for a timedelta.
    if not spans or max(spans) > _MAX_SPAN:
        return None
    total = sum(spans, timedelta())
    return total if total <= _MAX_SPAN else None


def _read_history(row: _MscRow, line: int, location: Location) -> History:
    """Return the dialogues of a row, the current one last; report sessions without a time."""
    times = _read_times(row, location)
    sessions: list[Session] = []
    for number, earlier in enumerate(row.previous_dialogs, 1):
        turns = _read_turns(number, earlier.dialog)
        if turns:
            sessions.append(Session(id=f"D{number}", time=times[number - 1], turns=turns))

    current_number = len(row.previous_dialogs) + 1
    turns = _read_turns(current_number, row.dialog)
    if turns:
        sessions.append(Session(id=f"D{current_number}", time=CURRENT, turns=turns))

    conversation_id = None
    if isinstance(row.metadata, dict):
        conversation_id = row.metadata.get("initial_data_id")
    return History(id=str(conversation_id or f"msc-{line}"), items=tuple(sessions))


def _read_turns(session: int, messages: tuple[_Message, ...]) -> tuple[Turn, ...]:
    """Return the turns with words; speakers without a name are told apart by their positions."""
    turns: list[Turn] = []
    for number, message in enumerate(messages, 1):
        if not message.text:
            continue
        default_speaker = "Speaker 1" if number % 2 == 1 else "Speaker 2"
        turn = Turn(
            id=f"D{session}:{number}",
            speaker=message.id or default_speaker,
            text=message.text,
        )
        turns.append(turn)
    return tuple(turns)


def _read_times(row: _MscRow, location: Location) -> list[datetime | None]:
    """Return when the earlier dialogues were; all None when their order and distances disagree."""
    spans: list[timedelta | None] = []
    for number, earlier in enumerate(row.previous_dialogs):
        span = time_back(earlier.time_back)
        spans.append(span)
        if span is None:
            problem = "names no span; it stays undated"
            location.field(f"previous_dialogs.{number}.time_back").warn("no time_back", problem)

    known_spans = [span for span in spans if span is not None]
    if any(later >= earlier for earlier, later in pairwise(known_spans)):
        problem = "do not shrink from session to session; all but the current dialogue stay undated"
        location.warn("times out of order", problem)
        return [None] * len(spans)
    return [None if span is None else CURRENT - span for span in spans]
