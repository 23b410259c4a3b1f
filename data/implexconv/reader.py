"""Reading ImplexConv's files: sessions out of marked-up texts, and evidence out of what a gold text quotes.

Limits: the form is taken from the card and the released code, not from the files themselves.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError
from ...records import History, Session, Turn, read_json
from ..dataset import Finding, Note, Reading

KINDS = ("opposed", "supportive")
_SPEAKER = re.compile(r"^[ \t*]*(Speaker ?\d+|Assistant|User)[ \t*]*:[ \t*]*", re.IGNORECASE | re.MULTILINE)
_GOLD_KEYS = ("retrieved_conv", "retrieved_conv_ids", "retrieved_conversation")
_LEAST_WORDS = 4


def read_implexconv(path: Path, note: Note) -> Reading:
    """Reads a file of ImplexConv's form, telling `note` everything that is odd about it.

    A part with a fatal finding is skipped if `note` does not raise.

    Raises:
        DataError: The file is no JSON list of objects with `conversation` and `qa`.
    """
    raw = read_json(path)
    if not isinstance(raw, list) or not raw:
        raise DataError(f"{path}: expected a list of {{conversation, qa}}, got {reprlib.repr(raw)}")
    named = next((kind for kind in KINDS if kind in path.stem.lower()), None)
    histories: list[History] = []
    examples: list[dspy.Example] = []
    for number, item in enumerate(raw):
        parts = item if isinstance(item, dict) else {}
        talks, rows = parts.get("conversation"), parts.get("qa")
        if not isinstance(talks, list) or not isinstance(rows, list):
            note(Finding("malformed item", f"item {number}", "lacks the lists 'conversation' and 'qa'", fatal=True))
            continue
        history = History(id=f"item-{number}", items=tuple(_sessions(talks, number, note)))
        if not history.items:
            note(Finding("no sessions", f"item {number}", "holds no session with words", fatal=True))
            continue
        histories.append(history)
        examples.extend(_examples(history, talks, rows, named, note))
    return Reading(tuple(histories), tuple(examples))


def turns_of(text: str) -> list[tuple[str, str]]:
    """The speakers and words of a session; text before the first speaker is dropped."""
    marks = list(_SPEAKER.finditer(text))
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    said = [(mark[1], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]
    return [(speaker, words) for speaker, words in said if words]


def _sessions(talks: Sequence[Any], number: int, note: Note) -> Iterator[Session]:
    for n, talk in enumerate(talks, 1):
        where = f"item {number}, session {n}"
        if not isinstance(talk, str):
            note(Finding("malformed session", where, f"expected a text, got {reprlib.repr(talk)}", fatal=True))
            continue
        said = turns_of(talk)
        if not said:
            note(Finding("empty session", where, "names no speaker such as 'Speaker1:'; passed over"))
            continue
        turns = (Turn(id=f"D{n}:{k}", speaker=speaker, text=words) for k, (speaker, words) in enumerate(said, 1))
        yield Session(id=f"D{n}", turns=tuple(turns))


def _examples(
    history: History, talks: Sequence[Any], rows: Sequence[Any], named: str | None, note: Note
) -> Iterator[dspy.Example]:
    plain = {item.id: {turn.id: _plain(turn.text) for turn in item.turns} for item in history.items}
    for number, row in enumerate(rows):
        id = f"{history.id}:{number}"
        row = row if isinstance(row, dict) else {}
        question, answer = (_text(row.get(key)) for key in ("question", "answer"))
        if not question or not answer:
            note(Finding("missing text", id, "expected an object with texts 'question' and 'answer'", fatal=True))
            continue
        reasoning = _reasoning(row)
        kind = "opposed" if reasoning else named or "supportive"
        if kind == "opposed" and not reasoning:
            note(Finding("no reasoning", id, "has no 'opposed reasoning'; the file's name says that it is opposed"))
        evidence = _evidence(row, plain, len(talks), id, note)
        yield dspy.Example(
            id=id,
            history=history,
            question=question,
            answer=answer,
            reference=f"{answer} (The reason: {reasoning})" if reasoning else answer,
            reasoning=reasoning,
            category=kind,
            focus=evidence,
            evidence=evidence,
        ).with_inputs("history", "question", "focus")


def _text(value: Any) -> str:
    """A text, or a number as one; "" for anything else."""
    return str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _reasoning(row: Mapping[str, Any]) -> str:
    keys = [key for key in row if "opposed" in key.lower() and "reason" in key.lower()]
    return " ".join(str(row[key]).strip() for key in keys if row[key])


def _evidence(
    row: Mapping[str, Any], plain: Mapping[str, Mapping[str, str]], sessions: int, id: str, note: Note
) -> tuple[str, ...]:
    """The turns of the gold sessions; those a gold text quotes, where it quotes only a part."""
    gold = next((row[key] for key in _GOLD_KEYS if row.get(key) not in (None, "", [])), [])
    found: list[str] = []
    for part in gold if isinstance(gold, list) else [gold]:
        if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < sessions:
            turns = list(plain.get(f"D{part + 1}", ()))
        else:
            turns = _quoted(_plain(str(part)), plain)
        if not turns:
            note(Finding("dangling evidence", id, f"{reprlib.repr(part)} is in no session; dropped"))
        found += turns
    if gold == []:
        note(Finding("empty evidence", id, "has no 'retrieved_conv'; the question has no recall"))
    return tuple(dict.fromkeys(found))


def _quoted(gold: str, plain: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The turns that a text quotes, of the session of which it quotes most; a few short words are not enough."""
    best: list[str] = []
    most = _LEAST_WORDS - 1
    for turns in plain.values():
        inside = {id: said for id, said in turns.items() if said and f" {said} " in f" {gold} "}
        inside = inside or {id: gold for id, said in turns.items() if gold and f" {gold} " in f" {said} "}
        words = sum(len(said.split()) for said in inside.values())
        if words > most:
            best, most = list(inside), words
    return best


def _plain(text: str) -> str:
    return " ".join(re.sub(r"\W+", " ", text.lower()).split())
