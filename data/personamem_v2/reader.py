"""Reading PersonaMem v2's CSV and the chat histories that its link columns name."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError
from ...records import History, read_json
from ..blocks import Blocks
from ..cells import literal
from ..dataset import Finding, Note, Reading
from ..personamem.reader import read_csv

LENGTHS = ("32k", "128k")
_LEFT_OUT = "ask_to_forget"
_NEEDED = ("user_query", "correct_answer", "incorrect_answers", "pref_type")
_UP = 3


def read_personamem_v2(path: Path, note: Note, length: str = "32k") -> Reading:
    """Reads a CSV and the chat histories it links to, telling `note` everything that is odd.

    A row with a fatal finding is skipped if `note` does not raise.

    Raises:
        DataError: The file is missing, is no CSV, or lacks a column.
    """
    histories: dict[str, History | None] = {}
    examples = []
    for line, cells in read_csv(path, _checked(length)):
        row = _Row(line, cells, note, path.resolve().parent)
        if row.left_out():
            continue
        link = cells[f"chat_history_{length}_link"].strip()
        if link not in histories:
            histories[link] = row.history(path.parent, link, length)
        example = row.example(histories[link])
        if example is not None:
            examples.append(example)
    kept = [history for history in histories.values() if history is not None]
    return Reading(tuple(kept), tuple(examples))


def _checked(length: str) -> Any:
    def check(path: Path, names: Sequence[str]) -> dict[str, str]:
        for name in (f"chat_history_{length}_link", *_NEEDED):
            if name not in names:
                raise DataError(f"{path}: has no column {name!r}; its columns are {', '.join(names)}")
        return {}

    return check


class _Row:
    """One row on its way to an example; keeps its line for its findings."""

    def __init__(self, line: int, cells: Mapping[str, str], note: Note, home: Path) -> None:
        self.line, self.cells, self.note, self.home = line, cells, note, home

    def fault(self, kind: str, column: str, message: str, fatal: bool = True) -> None:
        self.note(Finding(kind, f"line {self.line}, column {column!r}", message, fatal))

    def left_out(self) -> bool:
        """Whether the row is of a kind that is not asked."""
        if self.cells["pref_type"].strip() == _LEFT_OUT:
            self.fault("left out", "pref_type", f"{_LEFT_OUT} is not asked", fatal=False)
            return True
        if self.cells.get("sensitive_info", "").strip().lower() in ("true", "1", "yes"):
            self.fault("left out", "sensitive_info", "sensitive information is not asked", fatal=False)
            return True
        return False

    def example(self, history: History | None) -> dspy.Example | None:
        question, answer, wrong = self.question(), self.cells["correct_answer"].strip(), self.wrong()
        for column, value in (("user_query", question), ("correct_answer", answer)):
            if not value:
                self.fault("missing text", column, "is empty")
        if history is None or not question or not answer or wrong is None:
            return None
        snippet = self.snippet()
        focus = tuple(
            id for id, (turn, _) in history.turns.items() if turn.speaker != "system" and turn.text in snippet
        )
        reference = self.cells.get("preference", "").strip() or "\n".join(snippet)
        if not reference:
            self.fault(
                "no reference", "preference", "neither it nor the snippet has words; the right reply is taken", False
            )
        user = self.cells.get("persona_id", "").strip() or history.id
        return dspy.Example(
            id=f"{user}:{self.line}",
            history=history,
            question=question,
            answer=answer,
            wrong=wrong,
            reference=reference or answer,
            category=self.cells["pref_type"].strip() or "all",
            user=user,
            focus=focus,
            evidence=focus,
        ).with_inputs("history", "question", "focus")

    def question(self) -> str:
        text = self.cells["user_query"].strip()
        value = literal(text)
        if isinstance(value, dict):
            content = value.get("content")
            return content.strip() if isinstance(content, str) else ""
        return text

    def wrong(self) -> list[str] | None:
        value = literal(self.cells["incorrect_answers"].strip())
        if isinstance(value, list) and 1 <= len(value) <= 3 and all(isinstance(reply, str) for reply in value):
            return value
        shown = reprlib.repr(self.cells["incorrect_answers"])
        self.fault("malformed replies", "incorrect_answers", f"{shown} is no list of one to three texts")
        return None

    def snippet(self) -> list[str]:
        value = literal(self.cells.get("related_conversation_snippet", "").strip())
        messages = [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
        texts = [part.get("content") for part in messages]
        return [text.strip() for text in texts if isinstance(text, str) and text.strip()]

    def history(self, folder: Path, link: str, length: str) -> History | None:
        column = f"chat_history_{length}_link"
        if Path(link).is_absolute() or ".." in Path(link).parts:
            self.fault("link out of the data", column, f"{reprlib.repr(link)} must name a file below the CSV's folder")
            return None
        bases = (folder.resolve(), *list(folder.resolve().parents)[:_UP])
        base, found = next(((base, base / link) for base in bases if link and _is_file(base / link)), (folder, None))
        if found is None:
            problem = f"{reprlib.repr(link)} is no file below the CSV's folder or those above it"
            self.fault("missing history", column, problem)
            return None
        # In a cache of the hub all files are links, to the folder where the CSV itself is.
        if not any(found.resolve().is_relative_to(place) for place in (base, self.home)):
            self.fault("link out of the data", column, f"{reprlib.repr(link)} leads to a file outside; copy it there")
            return None
        try:
            value = read_json(found)
        except DataError as error:
            self.fault("unreadable history", column, str(error))
            return None
        if isinstance(value, dict):
            value = value.get("chat_history") or value.get("conversations")
        if not isinstance(value, list) or not value:
            self.fault("malformed history", column, f"{link!r} holds no list of messages")
            return None
        try:
            return History(id=Path(link).stem, items=Blocks(value).until(len(value)))
        except DataError as error:
            self.fault("malformed history", column, f"{link!r}: {error}")
            return None


def _is_file(path: Path) -> bool:
    """False also for what cannot be a path: too long, or with a NUL in it."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
