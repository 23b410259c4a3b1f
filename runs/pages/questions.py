"""A question on the page of a run: its answers side by side, and what each answer rests on.

`Question.to_dict` makes the JSON that the script of the HTML page (`report.js`) and `mempiler show
--json` share. They differ only in how the texts of prompts are encoded:

    question.to_dict()                     # the texts themselves
    lines = NumberedLines()
    question.to_dict(lines)                # lists of numbers, which point into lines.lines
"""

from __future__ import annotations

from typing import Any, Protocol

from pydantic import BaseModel

from ..question_trace import MAX_ANSWER_LENGTH, Entry, LMCall, QuestionTrace, shorten
from ..rows import Row

_TIE_TOLERANCE = 1e-9
"""Two scores that differ by less are the same."""


class TextEncoder(Protocol):
    """Turns recalled lines and prompts into JSON values."""

    def encode_line(self, line: str) -> str | int:
        """Return the JSON value of a recalled entry or of a turn."""
        ...

    def encode_text(self, text: str) -> str | list[int]:
        """Return the JSON value of a message of a prompt, or of the answer to it."""
        ...


class PlainText:
    """Leaves every text as it is."""

    def encode_line(self, line: str) -> str:
        """Return the line itself."""
        return line

    def encode_text(self, text: str) -> str:
        """Return the text itself."""
        return text


class NumberedLines:
    """Replaces every line by its number.

    Prompts repeat most of their lines, so the HTML page holds each line once. An entry that stands
    in a prompt has the same number there, by which the page marks it.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def lines(self) -> list[str]:
        """All lines so far; the position of a line is its number."""
        return list(self._numbers)

    def encode_line(self, line: str) -> int:
        """Return the number of the line; a new line gets the next number."""
        return self._numbers.setdefault(line, len(self._numbers))

    def encode_text(self, text: str) -> list[int]:
        """Return the numbers of the lines of the text."""
        return [self.encode_line(line) for line in text.split("\n")]


class Question(BaseModel, frozen=True):
    """A question and what became of it in every phase of the run."""

    rows: tuple[Row | None, ...]
    """One row for each phase; None where the question was not asked."""

    @property
    def last(self) -> Row:
        """The row of the last phase that asked the question."""
        return next(row for row in reversed(self.rows) if row is not None)

    @property
    def change(self) -> str:
        """How the last phase scored against the first: "better", "worse" or "same".

        "" if there is one phase only, or if one of the two did not ask the question.
        """
        first = self.rows[0]
        last = self.rows[-1]
        if len(self.rows) < 2 or first is None or last is None:
            return ""
        gain = last.score - first.score
        if abs(gain) < _TIE_TOLERANCE:
            return "same"
        return "better" if gain > 0 else "worse"

    @property
    def evidence(self) -> dict[str, str]:
        """The gold evidence: turns by id, as prompts show them. All phases have the same."""
        for row in self.rows:
            if row is not None and row.trace is not None:
                return row.trace.evidence
        return {}

    def to_dict(self, encoder: TextEncoder | None = None) -> dict[str, Any]:
        """Return the question as JSON data, whose keys `report.js` reads.

        Args:
            encoder: How recalled lines and prompts are written; as they are by default.
        """
        encoder = encoder or PlainText()
        row = self.last

        # An encoder may number lines in the order in which it gets them. That is the order of the
        # page: the evidence comes before the answers.
        evidence = {turn: encoder.encode_line(line) for turn, line in self.evidence.items()}
        answers: list[dict[str, Any] | None] = []
        for phase_row in self.rows:
            answer = None if phase_row is None else _answer_dict(phase_row, encoder)
            answers.append(answer)

        return {
            "id": shorten(row.id, MAX_ANSWER_LENGTH),
            "group": shorten(row.group, MAX_ANSWER_LENGTH),
            "category": row.category,
            "counts": row.in_headline,
            "question": shorten(row.question, MAX_ANSWER_LENGTH),
            "gold": shorten(row.gold, MAX_ANSWER_LENGTH),
            "evidence": evidence,
            "change": self.change,
            "shown": answers,
        }


def _answer_dict(row: Row, encoder: TextEncoder) -> dict[str, Any]:
    """Return one answer and what it rests on as JSON data, whose keys `report.js` reads."""
    trace = row.trace or QuestionTrace()
    in_prompts = None if trace.in_prompts is None else list(trace.in_prompts)
    entries = [_entry_dict(entry, trace, encoder) for entry in trace.entries]
    calls = [_call_dict(call, encoder) for call in trace.calls]

    failure = None
    if row.failure is not None:
        failure = f"{row.failure.kind}: {shorten(row.failure.message, MAX_ANSWER_LENGTH)}"

    return {
        "answer": shorten(row.answer, MAX_ANSWER_LENGTH),
        "score": round(row.score, 4),
        "right": row.right,
        "why": row.reason,
        "hit": row.recall_extent,
        "parts": {name: round(value, 4) for name, value in row.parts.items()},
        "recall": {name: round(value, 4) for name, value in row.recall.items()},
        "found": trace.recalled_evidence,
        "in_prompts": in_prompts,
        "entries": entries,
        "calls": calls,
        "feedback": trace.feedback,
        "failure": failure,
        "left_out": trace.left_out,
        "kept": row.trace is not None,
    }


def _entry_dict(entry: Entry, trace: QuestionTrace, encoder: TextEncoder) -> dict[str, Any]:
    """Return a recalled entry as JSON data."""
    return {
        "line": encoder.encode_line(entry.line),
        "kind": entry.kind,
        "gold": trace.is_gold(entry),
        "fallback": entry.fallback,
    }


def _call_dict(call: LMCall, encoder: TextEncoder) -> dict[str, Any]:
    """Return a call of a predictor, with its prompt, as JSON data."""
    messages: list[dict[str, Any]] = []
    for role, text in call.messages:
        messages.append({"role": role, "content": encoder.encode_text(text)})
    return {
        "predictor": call.predictor,
        "outcome": call.outcome,
        "messages": messages,
        "answer": encoder.encode_text(call.answer),
        "error": call.error,
    }
