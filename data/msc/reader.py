"""The form of MSC-Self-Instruct, and a reader for it.

    {"previous_dialogs": [{"dialog": [{"text": "Hi!"}, ...], "time_back": "12 days 4 hours ago"}, ...],
     "dialog": [{"id": "Speaker 1", "text": "..."}, ...], "metadata": {"initial_data_id": "valid_7"},
     "self_instruct": {"B": "question", "A": "answer"}, "personas": ..., ...}           (one row per line)

Earlier sessions come first, the current dialogue is the last one, and the question is asked after it. Personas and
summaries are not read: they would hand a memory what it has to find.

Speakers are those of the turns' `id`; turns without one (all earlier sessions) take turns, the first speaker begins.

Dates: a row only says how long before the current dialogue each earlier session was. The current one is set to
`CURRENT`, and the others are counted back from it, so that their distances and order are right and the calendar is made
up. Sessions are left undated when a row's distances do not shrink from session to session.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Container, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import dspy

from ...records import History, Session, Turn
from ..dataset import Finding, Note, Reading
from ..jsonl.benchmark import read_rows

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


def read_msc(path: Path, note: Note) -> Reading:
    """Reads a file of this form, telling `note` everything that is odd about it.

    A row with a fatal finding is skipped if `note` does not raise.

    Raises:
        DataError: The file is missing, empty or no UTF-8 text.
    """
    histories: dict[tuple[str, str], History] = {}
    examples: dict[str, dspy.Example] = {}
    for number, row in read_rows(path, note):
        example = _Row(number, row, note).example(examples)
        if example is not None:
            examples[example.id] = example
            histories.setdefault((example.history.id, example.history.digest), example.history)
    return Reading(tuple(histories.values()), tuple(examples.values()))


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


class _Row:
    """One row on its way to an example; keeps its place for its findings."""

    def __init__(self, number: int, row: Mapping[str, Any], note: Note) -> None:
        self.number, self.row, self.note = number, row, note

    def fault(self, kind: str, column: str, message: str, fatal: bool = False) -> None:
        self.note(Finding(kind, f"line {self.number}, column {column!r}", message, fatal))

    def example(self, taken: Container[str]) -> dspy.Example | None:
        question, answer = self.asked()
        history = self.history()
        if history is None or question is None or answer is None:
            return None
        id = history.id
        if id in taken:
            id = f"{id}:{self.number}"
            self.fault("repeated conversation", "metadata", f"{history.id!r} was there before; the question is {id!r}")
        labels = {"category": "all", "focus": (), "evidence": ()}
        example = dspy.Example(id=id, history=history, question=question, answer=answer, **labels)
        return example.with_inputs("history", "question", "focus")

    def asked(self) -> tuple[str | None, str | None]:
        """Question and answer, None after an error."""
        asked = self.row.get("self_instruct")
        if not isinstance(asked, dict):
            kind = "wrong type" if "self_instruct" in self.row else "missing key"
            self.fault(kind, "self_instruct", "expected an object with 'B' and 'A'", fatal=True)
            return None, None
        return self.text(asked, "B"), self.text(asked, "A")

    def text(self, asked: Mapping[str, Any], key: str) -> str | None:
        column, value = "self_instruct", asked.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.fault("number as text", column, f"{key} {value!r} is read as the text {str(value)!r}")
            return str(value)
        if not isinstance(value, str) or not value.strip():
            kind = "missing key" if value in (None, "") else "wrong type"
            self.fault(kind, column, f"{key!r} is {reprlib.repr(value)}; every row needs a text there", fatal=True)
            return None
        return value.strip()

    def history(self) -> History | None:
        previous = self.row.get("previous_dialogs")
        if not isinstance(previous, list) or not all(isinstance(part, dict) for part in previous):
            kind = "missing key" if previous is None else "wrong type"
            self.fault(kind, "previous_dialogs", "expected a list of objects with 'dialog' and 'time_back'", fatal=True)
            return None
        if "dialog" not in self.row:
            self.fault("no current dialogue", "dialog", "is missing; the earlier sessions are the whole past")
        talks = [(f"previous_dialogs, session {n}", part.get("dialog")) for n, part in enumerate(previous, 1)]
        talks.append(("dialog", self.row.get("dialog", [])))
        read = [self.turns(talk, column, f"D{n}") for n, (column, talk) in enumerate(talks, 1)]
        if any(turns is None for turns in read):
            return None
        times = [*self.times(previous), CURRENT]
        sessions = tuple(
            Session(id=f"D{n}", time=time, turns=tuple(turns))
            for n, (turns, time) in enumerate(zip(read, times, strict=True), 1)
            if turns
        )
        if not sessions:
            self.fault("no turns", "previous_dialogs", "no session has a turn with words", fatal=True)
            return None
        return History(id=self.id(), items=sessions)

    def id(self) -> str:
        metadata = self.row.get("metadata")
        id = metadata.get("initial_data_id") if isinstance(metadata, dict) else None
        return str(id or f"msc-{self.number}")

    def turns(self, talk: Any, column: str, session: str) -> list[Turn] | None:
        if not isinstance(talk, list) or not all(isinstance(turn, dict) for turn in talk):
            kind = "missing key" if talk is None else "wrong type"
            self.fault(kind, column, f"expected a list of turns with 'text', got {reprlib.repr(talk)}", fatal=True)
            return None
        turns = []
        for n, turn in enumerate(talk):
            text = turn.get("text")
            if not isinstance(text, str | None):
                problem = f"turn {n + 1}: 'text' is {reprlib.repr(text)}, expected a text"
                self.fault("wrong type", column, problem, fatal=True)
                return None
            if text is None or not text.strip():
                self.fault("empty turn", column, f"turn {n + 1} has no 'text'; passed over")
                continue
            named = turn.get("id")
            speaker = named if isinstance(named, str) and named else f"Speaker {n % 2 + 1}"
            turns.append(Turn(id=f"{session}:{n + 1}", speaker=speaker, text=text.strip()))
        return turns

    def times(self, previous: list[dict[str, Any]]) -> list[datetime | None]:
        """When the earlier sessions were; all None when their order and their distances disagree."""
        spans = [time_back(str(part.get("time_back") or "")) for part in previous]
        for n, (part, span) in enumerate(zip(previous, spans, strict=True), 1):
            if span is None:
                message = f"time_back {reprlib.repr(part.get('time_back'))} names no span; the session stays undated"
                self.fault("no time_back", f"previous_dialogs, session {n}", message)
        known = [span for span in spans if span is not None]
        if any(later >= earlier for earlier, later in pairwise(known)):
            message = "time_back does not shrink from session to session; all but the current dialogue stay undated"
            self.fault("times out of order", "previous_dialogs", message)
            return [None] * len(previous)
        return [None if span is None else CURRENT - span for span in spans]
