"""The form of LongMemEval's files, and a reader that takes them question by question.

    [{"question_id": "gpt4_1a", "question_type": "temporal-reasoning", "question": "...", "answer": "...",
      "question_date": "2023/04/10 (Mon) 23:07", "haystack_session_ids": ["answer_1a_1", "sharegpt_7"],
      "haystack_dates": ["2023/03/02 (Thu) 08:12", ...], "answer_session_ids": ["answer_1a_1"],
      "haystack_sessions": [[{"role": "user", "content": "...", "has_answer": true}, ...], ...]}, ...]

`oracle` holds the evidence sessions alone, `s` some 50 sessions a question, `m` some 500. The cleaned and the original
release differ in their names only. An id with `_abs` in it marks a question whose answer is not in the sessions.

Sessions are put in time order (those of `oracle` are not) and get ids of their own, D1, D2, ...: the ids of the file
begin with "answer" where the evidence is, which no prompt may reveal.

Limits: the file is read piece by piece, but the questions that are kept are held in memory; equal texts are held
once, and an `m` file still takes some gigabytes, unless `limit` or `types` leaves most questions out.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError, UnknownNameError
from ...records import History, Session, Turn, format_time
from ..dataset import Finding, Note, Reading
from ..json_stream import stream_list

TYPES = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "temporal-reasoning",
    "knowledge-update",
    "multi-session",
)
"""The six types of questions."""

FILES: Mapping[str, tuple[str, ...]] = {
    "oracle": ("longmemeval_oracle.json", "longmemeval_oracle"),
    "s": ("longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_s"),
    "m": ("longmemeval_m_cleaned.json", "longmemeval_m.json", "longmemeval_m"),
}
"""The names of the released files by size, the cleaned release first."""

_LISTS = ("haystack_session_ids", "haystack_dates", "haystack_sessions")
_DATE = "%Y/%m/%d %H:%M"


def file_of(path: Path, size: str | None = None) -> Path:
    """The file that a path denotes: itself, or in a folder the released file of a size.

    Args:
        path: A file, or a folder with released files.
        size: "oracle", "s" or "m"; needed for a folder that holds several.

    Raises:
        UnknownNameError: There is no such size.
        DataError: The folder holds no such file, or several and no size is given.
    """
    if size is not None and size not in FILES:
        raise UnknownNameError("size of longmemeval", size, FILES)
    if not path.is_dir():
        return path
    wanted = (size,) if size else tuple(FILES)
    there = {each: next((path / name for name in FILES[each] if (path / name).is_file()), None) for each in wanted}
    found = {each: file for each, file in there.items() if file}
    if len(found) > 1:
        raise DataError(f"{path}: holds {', '.join(found)}; choose one with --option size=...")
    if not found:
        raise DataError(f"{path}: holds no {' or '.join(FILES[each][0] for each in wanted)}")
    return next(iter(found.values()))


def read_longmemeval(path: Path, note: Note, types: Collection[str] | None = None, limit: int | None = None) -> Reading:
    """Reads a file of LongMemEval's form, telling `note` everything that is odd about it.

    A question with a fatal finding is skipped if `note` does not raise.

    Args:
        path: The file.
        note: What findings are told to.
        types: The types of questions to keep; all when None.
        limit: Most questions of each type, the first ones; reading ends where all types have that many.

    Raises:
        DataError: The file is no JSON list.
    """
    examples: dict[str, dspy.Example] = {}
    kept: Counter[str] = Counter()
    wanted, texts = tuple(TYPES if types is None else types), dict[str, str]()
    for number, row in enumerate(stream_list(path), 1):
        if limit is not None and all(kept[each] >= limit for each in wanted):
            break
        kind = row.get("question_type") if isinstance(row, dict) else None
        if kind in TYPES and (kind not in wanted or (limit is not None and kept[kind] >= limit)):
            continue
        example = _Row(number, row, note, texts).example()
        if example is None:
            continue
        if example.id in examples:
            note(Finding("duplicate id", example.id, "is the id of two questions", fatal=True))
            continue
        examples[example.id] = example
        kept[example.category] += 1
    return Reading(tuple(example.history for example in examples.values()), tuple(examples.values()))


def parse_date(text: Any) -> datetime | None:
    """Reads LongMemEval's dates, `2023/04/10 (Mon) 23:07`; the weekday is passed over. None when it is none."""
    parts = str(text).split()
    if len(parts) == 3 and parts[1].startswith("("):
        parts = [parts[0], parts[2]]
    try:
        return datetime.strptime(" ".join(parts), _DATE)
    except ValueError:
        return None


class _Row:
    """One question on its way to an example; keeps its place for its findings."""

    def __init__(self, number: int, row: Any, note: Note, texts: dict[str, str]) -> None:
        self.row: dict[str, Any] = row if isinstance(row, dict) else {}
        self.where = str(self.row.get("question_id") or f"entry {number}")
        self.note, self.texts = note, texts

    def fault(self, kind: str, message: str, fatal: bool = False) -> None:
        self.note(Finding(kind, self.where, message, fatal))

    def example(self) -> dspy.Example | None:
        row = self.row
        for name in ("question_id", "question"):
            if not isinstance(row.get(name), str) or not row[name].strip():
                self.fault("missing text", f"expected an object with a text {name!r}", fatal=True)
                return None
        kind, answer, asked = row.get("question_type"), self.answer(), parse_date(row.get("question_date"))
        if kind not in TYPES:
            self.fault("unknown type", f"question_type {kind!r} is none of: {', '.join(TYPES)}", fatal=True)
            return None
        found = self.sessions()
        if answer is None or found is None:
            return None
        if asked is None:
            self.fault("malformed date", f"question_date {row.get('question_date')!r} is passed over")
        sessions, names, marked = found
        abstains = "_abs" in row["question_id"]
        gold = self.gold(names, abstains)
        focus = () if abstains else self.focus(sessions, gold, marked)
        return dspy.Example(
            id=row["question_id"],
            history=History(id=row["question_id"], items=tuple(sessions)),
            question=row["question"].strip(),
            date=format_time(asked) if asked else "",
            focus=focus,
            answer=answer,
            category=kind,
            evidence=focus,
            answer_sessions=gold,
            abstention=abstains,
        ).with_inputs("history", "question", "date", "focus")

    def answer(self) -> str | None:
        value = self.row.get("answer")
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.fault("number as answer", f"answer {value!r} is read as the text {str(value)!r}")
            return str(value)
        if isinstance(value, str) and value.strip():
            return value.strip()
        self.fault("missing answer", f"answer is {reprlib.repr(value)}, expected a text or a number", fatal=True)
        return None

    def sessions(self) -> tuple[list[Session], dict[str, list[str]], set[str]] | None:
        """The sessions in time order, their ids by the file's own ids, and the ids of the turns that are marked."""
        columns = [self.row.get(name) for name in _LISTS]
        lengths = {len(column) if isinstance(column, list) else -1 for column in columns}
        if len(lengths) > 1 or -1 in lengths:
            self.fault("malformed sessions", f"expected three lists of one length: {', '.join(_LISTS)}", fatal=True)
            return None
        sessions: list[Session] = []
        names: dict[str, list[str]] = {}
        marked: set[str] = set()
        for n, (time, name, raw) in enumerate(self.ordered(*columns), 1):
            if not isinstance(raw, list) or not all(isinstance(turn, dict) for turn in raw):
                self.fault("malformed session", f"session {name} is no list of turns", fatal=True)
                return None
            turns = self.turns(raw, f"D{n}", marked)
            if turns:
                sessions.append(Session(id=f"D{n}", time=time, turns=turns))
                names.setdefault(name, []).append(f"D{n}")
            else:
                self.fault("empty session", f"session {name} has no words; passed over")
        if not sessions:
            self.fault("no sessions", "holds no session with words", fatal=True)
            return None
        return sessions, names, marked

    def ordered(self, ids: Any, dates: Any, sessions: Any) -> list[tuple[datetime | None, str, Any]]:
        """The sessions by time; those of one time, and an undated one after its neighbour, as in the file."""
        rows, last = [], datetime.min
        for n, (name, date, raw) in enumerate(zip(ids, dates, sessions, strict=True)):
            time = parse_date(date)
            if time is None:
                self.fault("malformed date", f"session {name}: {date!r} is no date; the session stays undated")
            last = time or last
            rows.append((last, n, time, str(name), raw))
        return [(time, name, raw) for _, _, time, name, raw in sorted(rows, key=lambda row: row[:2])]

    def turns(self, raw: Sequence[Mapping[str, Any]], session: str, marked: set[str]) -> tuple[Turn, ...]:
        turns = []
        for n, turn in enumerate(raw, 1):
            text, id = turn.get("content"), f"{session}:{n}"
            if not isinstance(text, str | None):
                self.fault("malformed turn", f"{id}: content is {reprlib.repr(text)}, expected a text", fatal=True)
                continue
            if text is None or not text.strip():
                self.fault("empty turn", f"{id} has no text 'content'; passed over")
                continue
            text = text.strip()
            turns.append(Turn(id=id, speaker=str(turn.get("role") or "user"), text=self.texts.setdefault(text, text)))
            if turn.get("has_answer", False):
                marked.add(id)
        return tuple(turns)

    def gold(self, names: Mapping[str, Sequence[str]], abstains: bool) -> tuple[str, ...]:
        """Ids of the evidence sessions."""
        given = self.row.get("answer_session_ids")
        given = given if isinstance(given, list) else []
        for name in given:
            if str(name) not in names:
                self.fault("dangling evidence", f"session {name!r} is not among the sessions; dropped")
        if not given and not abstains:
            self.fault("empty evidence", "answer_session_ids names none; the question has no recall")
        return tuple(dict.fromkeys(id for name in given for id in names.get(str(name), ())))

    def focus(self, sessions: Sequence[Session], gold: Collection[str], marked: set[str]) -> tuple[str, ...]:
        """The marked turns of the evidence sessions; all of their turns where none is marked."""
        turns = [turn.id for session in sessions if session.id in gold for turn in session.turns]
        return tuple(id for id in turns if id in marked) or tuple(turns)
