"""Your own questions as a benchmark: one JSON object per line.

    {"user": "ada", "messages": [{"role": "user", "content": "I moved to Lisbon."}],
     "question": "Where does Ada live?", "answer": "Lisbon", "evidence": ["D1:1"]}          (on one line)

    history or messages  the past: Mempiler's own History form, or OpenAI-style messages, or a list of lists of
                         them (one per session); messages get the turn ids D1:1, D1:2, ... session by session
    question, answer     texts (a number is read as a text)
    evidence             optional; ids of the turns that hold the answer
    category, id, user   optional; a name to report under, a unique name of the row, whose past it is

Rows with equal pasts (and the same user) share one History, so its memory is written once. A conversation is
named by its user, else by the id inside `history`, else by the first letters of the history's digest; splits never
cut one in two.

The metric is "f1", "exact", "judge" (a language model, see `data.judge`) or `module:function` (see `own_metric`);
token F1 and exact match are in the parts of every score.

Limits: one gold answer per question; token metrics see words, not meaning; the whole file is held in memory.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ...errors import DataError, UnknownNameError
from ...records import History
from ...records.json_input import decode, read_text
from ..benchmark import Benchmark
from ..dataset import Finding, Note, Reading, Source, refuse_fatal
from ..scorer import Combined, ExactMatch, Judged, Scorer, TokenF1
from .own_metric import OwnScorer

_TEXTS = ("question", "answer", "category", "id", "user")
_COLUMNS = frozenset({*_TEXTS, "history", "messages", "evidence"})
_DIGEST_LETTERS = 12


class JsonlBenchmark(Benchmark):
    """Questions of a JSON-lines file; see the module's docstring.

    Metrics: "f1" (token F1) or "exact" (exact match), both on SQuAD-normalised words; "judge"; or `module:function` of
    one's own.
    """

    name = "jsonl"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": lambda: Combined(TokenF1(), ExactMatch()),
        "exact": lambda: Combined(ExactMatch(), TokenF1()),
        "judge": lambda: Combined(Judged(), TokenF1(), ExactMatch()),
    }

    @classmethod
    def scored_by(cls, metric: str) -> Scorer:
        """The scorer of a metric, `module:function` among them."""
        if ":" in metric:
            return Combined(OwnScorer(metric), TokenF1(), ExactMatch())
        if metric not in cls.metrics:
            raise UnknownNameError("metric", metric, [*cls.metrics, "module:function"])
        return super().scored_by(metric)

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading:
        return read_jsonl(path, note)

    @classmethod
    def load(cls, path: str | Path | None = None, *, metric: str = "f1", **options: Any) -> JsonlBenchmark:
        """Reads the file at `path`.

        Args:
            path: A JSON-lines file; there is no sample, so it cannot be None.
            metric: "f1", "exact", "judge" or `module:function`.
            **options: None are known; any is refused.

        Raises:
            DataError: A line is not of this form; the message names the line and the column.
            UnknownNameError: A metric or an option that does not exist.
            UserError: A `module:function` that cannot be imported.
        """
        cls.refuse_options(options, ("metric",))
        if path is None:
            raise DataError("the jsonl benchmark has no sample; give the path of a .jsonl file")
        path = Path(path)
        return cls(read_jsonl(path, refuse_fatal(path)).examples, Source.of(path), metric)


def read_jsonl(path: Path, note: Note) -> Reading:
    """Reads a JSON-lines file, telling `note` everything that is odd about it.

    A row with a fatal finding is skipped if `note` does not raise.

    Raises:
        DataError: The file is missing, empty or no UTF-8 text.
    """
    histories: dict[tuple[str, str], History] = {}
    examples: list[dspy.Example] = []
    taken: dict[str, int] = {}
    for line, row in read_rows(path, note):
        reader = _Row(line, row, note)
        example = reader.example(histories)
        if example is None:
            continue
        if example.id in taken:
            reader.fault("duplicate id", "id", f"{example.id!r} is already the id of line {taken[example.id]}")
            continue
        taken[example.id] = line
        examples.append(example)
    return Reading(tuple(histories.values()), tuple(examples))


class _Row:
    """One line's object on its way to an example; keeps the line number for its findings."""

    def __init__(self, line: int, row: Mapping[str, Any], note: Note) -> None:
        self.line, self.row, self.note = line, row, note

    def fault(self, kind: str, column: str, message: str, fatal: bool = True) -> None:
        self.note(Finding(kind, f"line {self.line}, column {column!r}", message, fatal))

    def example(self, histories: dict[tuple[str, str], History]) -> dspy.Example | None:
        for column in self.row.keys() - _COLUMNS:
            self.fault("unknown column", column, "is not read", fatal=False)
        texts = {column: self.text(column, column in ("question", "answer")) for column in _TEXTS}
        history, evidence = self.history(texts["user"]), self.evidence()
        if history is None or evidence is None or None in texts.values():
            return None
        history = histories.setdefault((history.id, history.digest), history)
        kept = tuple(turn for turn in evidence if turn in history.turns)
        for turn in dict.fromkeys(turn for turn in evidence if turn not in history.turns):
            self.fault("dangling evidence", "evidence", f"{turn!r} is no turn of the history; dropped", fatal=False)
        return dspy.Example(
            id=texts["id"] or f"{history.id}:{self.line}",
            history=history,
            question=texts["question"],
            answer=texts["answer"],
            category=texts["category"] or "all",
            focus=kept,
            evidence=kept,
        ).with_inputs("history", "question", "focus")

    def text(self, column: str, needed: bool) -> str | None:
        """The column as text, "" where an optional one is not there, None after an error."""
        value = self.row.get(column)
        if value in (None, ""):
            if not needed:
                return ""
            self.fault("missing column", column, "is missing or empty; every line needs it")
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fault("wrong type", column, f"{reprlib.repr(value)} is no text")
        else:
            return str(value)
        return None

    def evidence(self) -> tuple[str, ...] | None:
        value = self.row.get("evidence")
        value = [] if value is None else value
        if isinstance(value, list) and all(isinstance(turn, str) for turn in value):
            return tuple(dict.fromkeys(value))
        self.fault("wrong type", "evidence", f"{reprlib.repr(value)} is no list of turn ids such as ['D1:3']")
        return None

    def history(self, user: str | None) -> History | None:
        given = [column for column in ("history", "messages") if self.row.get(column) is not None]
        if len(given) != 1:
            kind, problem = (
                ("two histories", "and 'messages' are both there") if given else ("missing column", "is missing")
            )
            self.fault(kind, "history", f"{problem}; give either 'history' or 'messages'")
            return None
        column, value = given[0], self.row[given[0]]
        if column == "messages" and not isinstance(value, list):
            self.fault("wrong type", column, f"{reprlib.repr(value)} is no list of messages")
            return None
        try:
            history = History.parse(value, id="")
        except DataError as error:
            self.fault("malformed history", column, str(error).removeprefix("history '': "))
            return None
        turns = [turn.id for item in history.items for turn in item.turns]
        if not turns or len(turns) > len(set(turns)):
            self.fault("malformed history", column, "uses a turn id twice" if turns else "holds no turns")
            return None
        return History(id=user or history.id or history.digest[:_DIGEST_LETTERS], items=history.items)


def read_rows(path: Path, note: Note) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file with their line numbers; anything else is a fatal finding.

    Raises:
        DataError: The file is missing, empty or no UTF-8 text.
    """
    # not splitlines: it also cuts at characters that JSON allows inside a string
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = decode(line)
        except json.JSONDecodeError as error:
            message = f"not valid JSON ({error.msg}); is the line cut short?"
            note(Finding("broken line", f"line {number}, column {error.colno}", message, fatal=True))
            continue
        except ValueError as error:
            note(Finding("broken line", f"line {number}", str(error), fatal=True))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            message = f"expected an object, got {reprlib.repr(row)}"
            note(Finding("wrong type", f"line {number}, column 1", message, fatal=True))
