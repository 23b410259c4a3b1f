"""The form of LoCoMo's `locomo10.json`, and a reader that copes with all of its oddities.

Dates without sessions, answers that are numbers, evidence that is malformed or names turns that are not there,
repeated questions, image turns: each is told to a `note`, and what cannot be read at all is told as fatal. `Locomo`
refuses the fatal ones, `data/check.py` lists all of them.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dspy
from pydantic import ValidationError

from ...errors import DataError
from ...records import History, Session, Turn, read_json
from ..dataset import Finding, Note, Reading

CATEGORIES: Mapping[str, str] = MappingProxyType(
    {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
)
"""Names of the categories, for tables."""

NOT_MENTIONED = "Not mentioned in the conversation"
"""Gold answer of the adversarial questions that have none."""

_WANTED = "LoCoMo's locomo10.json (github.com/snap-research/locomo, data/locomo10.json)"
_MONTHS = tuple(
    re.findall(r"\w+", "january february march april may june july august september october november december")
)
_SESSION_KEY = re.compile(r"session_(\d{1,9})", re.ASCII)
_DATE_KEY = re.compile(r"session_(\d{1,9})_date_time", re.ASCII)
_DATE = re.compile(r"\s*(\d{1,2}):(\d\d)\s*([ap])m\s+on\s+(\d{1,2})\s+([a-z]+),?\s+(\d{4})\s*", re.IGNORECASE)
_EVIDENCE = re.compile(r"D:?(\d{1,9}):(\d{1,9})(?!\d)", re.ASCII)
_PLAIN_EVIDENCE = re.compile(r"D(?:0|[1-9]\d*):(?:0|[1-9]\d*)", re.ASCII)


def read_locomo(path: Path, note: Note) -> Reading:
    """Reads a file of locomo10.json's form, telling `note` everything that is odd about it.

    A part with a fatal finding is skipped if `note` does not raise.

    Raises:
        DataError: The file is no JSON, or JSON of another kind.
    """
    raw = _top(path)
    histories: dict[str, History] = {}
    examples: list[dspy.Example] = []
    for number, sample in enumerate(raw, 1):
        id = sample.get("sample_id")
        if not isinstance(id, str) or not id or id in histories:
            message = f"sample_id {id!r} is used twice or no name such as 'conv-26'"
            note(Finding("bad sample_id", f"conversation {number}", message, fatal=True))
            continue
        histories[id] = _history(id, sample["conversation"], note)
        examples.extend(_examples(histories[id], sample["qa"], note))
    return Reading(tuple(histories.values()), tuple(examples))


def evidence_ids(evidence: Iterable[str]) -> tuple[str, ...]:
    """Finds the turn ids in evidence strings, each once, in order.

    Several ids in one string, leading zeros and a stray colon are understood: `["D8:6; D09:17", "D:3:4"]` gives
    `("D8:6", "D9:17", "D3:4")`. What holds no id is passed over.
    """
    found = (match for text in evidence for match in _EVIDENCE.finditer(text))
    return tuple(dict.fromkeys(f"D{int(match[1])}:{int(match[2])}" for match in found))


def parse_date(text: str) -> datetime | None:
    """Reads LoCoMo's dates, `1:56 pm on 8 May, 2023`, in any locale; None when it is no such date."""
    match = _DATE.fullmatch(text)
    if match is None or match[5].lower() not in _MONTHS or not 1 <= int(match[1]) <= 12:
        return None
    hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
    try:
        return datetime(int(match[6]), _MONTHS.index(match[5].lower()) + 1, int(match[4]), hour, int(match[2]))
    except ValueError:
        return None


def _top(path: Path) -> list[dict[str, Any]]:
    if path.suffix.lower() == ".zip":
        raise DataError(f"{path}: LoCoMo's first release (a zip of NN.json files) is not read; take {_WANTED}")
    raw = read_json(path)
    if isinstance(raw, dict) and any(_SESSION_KEY.fullmatch(key) for key in raw):
        raise DataError(f"{path}: one conversation of LoCoMo's first release, which has no questions; take {_WANTED}")
    if not isinstance(raw, list) or not raw:
        raise DataError(f"{path}: expected a list of conversations, got {reprlib.repr(raw)}; take {_WANTED}")
    for number, sample in enumerate(raw, 1):
        parts = sample if isinstance(sample, dict) else {}
        if not isinstance(parts.get("conversation"), dict) or not isinstance(parts.get("qa"), list):
            raise DataError(f"{path}: entry {number} lacks 'conversation' and 'qa'; take {_WANTED}")
    return raw


def _history(id: str, talk: Mapping[str, Any], note: Note) -> History:
    keys: dict[int, str] = {}
    for key in talk:
        match = _SESSION_KEY.fullmatch(key)
        if match and keys.setdefault(int(match[1]), key) != key:
            note(Finding("duplicate session", f"{id} {key}", f"is {keys[int(match[1])]} once more", fatal=True))
    for key in talk:
        match = _DATE_KEY.fullmatch(key)
        if match and int(match[1]) not in keys:
            note(Finding("date without session", f"{id} {key}", "has no session of its number; passed over"))
    known: set[str] = set()
    sessions = []
    for number in sorted(keys):
        turns = tuple(_turns(talk[keys[number]], f"{id} {keys[number]}", known, note))
        time = _time(talk, keys[number], id, note)
        if turns:
            sessions.append(Session(id=f"D{number}", time=time, turns=turns))
    if not sessions:
        note(Finding("no sessions", id, "holds no turns in any session_N list", fatal=True))
    return History(id=id, items=tuple(sessions))


def _time(talk: Mapping[str, Any], key: str, id: str, note: Note) -> datetime | None:
    where, text = f"{id} {key}_date_time", talk.get(f"{key}_date_time")
    if text is None:
        note(Finding("session without date", where, "is missing; the session stays undated"))
        return None
    time = parse_date(text) if isinstance(text, str) else None
    if time is None:
        note(Finding("malformed date", where, f"{text!r} is not like '1:56 pm on 8 May, 2023'", fatal=True))
    return time


def _turns(raw: Any, where: str, known: set[str], note: Note) -> Iterator[Turn]:
    if not isinstance(raw, list):
        note(Finding("malformed session", where, f"expected a list of turns, got {reprlib.repr(raw)}", fatal=True))
        return
    if not raw:
        note(Finding("empty session", where, "has no turns; passed over"))
    for number, value in enumerate(raw, 1):
        turn = _turn(value)
        if turn is None:
            fault = "must have 'dia_id', 'speaker' and 'text', all of them texts"
            note(Finding("malformed turn", f"{where} turn {number}", fault, fatal=True))
        elif turn.id in known:
            note(Finding("duplicate turn", f"{where} turn {number}", f"dia_id {turn.id!r} is used twice", fatal=True))
        else:
            known.add(turn.id)
            yield turn


def _turn(raw: Any) -> Turn | None:
    raw = raw if isinstance(raw, dict) else {}
    text = "" if raw.get("text") is None else raw["text"]
    try:
        fields = {"id": raw.get("dia_id"), "speaker": raw.get("speaker"), "text": text}
        return Turn.model_validate({**fields, "caption": raw.get("blip_caption") or None})
    except ValidationError:
        return None


def _examples(history: History, rows: list[Any], note: Note) -> Iterator[dspy.Example]:
    asked: dict[str, str] = {}
    for number, row in enumerate(rows):
        id = f"{history.id}:{number}"
        question = row.get("question") if isinstance(row, dict) else None
        if not isinstance(question, str) or not question.strip():
            note(Finding("missing question", id, "expected an object with a text 'question'", fatal=True))
            continue
        if question in asked:
            note(Finding("duplicate question", id, f"asks the same as {asked[question]}; both are kept"))
        asked.setdefault(question, id)
        category = str(row.get("category"))
        if category not in CATEGORIES:
            note(Finding("unknown category", id, f"category {row.get('category')!r} is not 1 to 5", fatal=True))
            continue
        labels = _labels(row, category, id, note)
        if labels is None:
            continue
        evidence = _evidence(row.get("evidence"), history, id, note)
        example = dspy.Example(
            id=id, history=history, question=question, category=category, focus=evidence, evidence=evidence, **labels
        )
        yield example.with_inputs("history", "question", "focus")


def _labels(row: Mapping[str, Any], category: str, id: str, note: Note) -> dict[str, str] | None:
    answer, trap = row.get("answer"), row.get("adversarial_answer")
    if isinstance(trap, dict | list):
        message = f"adversarial_answer is {reprlib.repr(trap)}, expected text or a number; mend it or delete the row"
        note(Finding("malformed answer", id, message, fatal=True))
        return None
    labels = {} if trap is None else {"adversarial_answer": str(trap)}
    if category == "5" and answer is None:
        return {"answer": NOT_MENTIONED, **labels}
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        kind = "missing answer" if answer is None or answer == "" else "malformed answer"
        message = f"answer is {reprlib.repr(answer)}, expected text or a number; add it or delete the row"
        note(Finding(kind, id, message, fatal=True))
        return None
    if not isinstance(answer, str):
        note(Finding("number as answer", id, f"answer {answer!r} is read as the text {str(answer)!r}"))
    if category == "5":
        note(Finding("adversarial answer", id, f"has the gold answer {answer!r}, unlike others of category 5"))
    return {"answer": str(answer), **labels}


def _evidence(raw: Any, history: History, id: str, note: Note) -> tuple[str, ...]:
    texts = [raw] if isinstance(raw, str) else raw if isinstance(raw, list) else []
    if not texts:
        note(Finding("empty evidence", id, f"evidence is {reprlib.repr(raw)}; the question has no recall"))
    for text in texts:
        if not isinstance(text, str) or not _PLAIN_EVIDENCE.fullmatch(text):
            read = evidence_ids([text]) if isinstance(text, str) else ()
            note(Finding("malformed evidence", id, f"{reprlib.repr(text)} is read as {', '.join(read) or 'nothing'}"))
    kept = []
    for turn in evidence_ids(text for text in texts if isinstance(text, str)):
        if turn in history.turns:
            kept.append(turn)
        else:
            note(Finding("dangling evidence", id, f"{turn} is no turn of {history.id}; dropped"))
    return tuple(kept)
