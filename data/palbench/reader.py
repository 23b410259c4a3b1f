"""The form of PAL-Set, and a reader for it.

    {"0000": {"history": [SAMPLE, ...], "query": [SAMPLE, ...]}}
    SAMPLE   {"sample_id": "0000_sample0", "dialogue_timestamp": "2024-01-12 20:30:00",
              "logs": [{"timestamp": "2024-01-10 08:15", "content": "..."}],
              "dialogue": {"turn_1": {"user": {"action": "...", "content": "..."}, "assistant": {...}}, ...},
              "topics": {"topic-1": {"user_query": "...", "implicit_needs": ["...", "..."], "requirement": "...",
                                     "solution": {"pos": ["...", "..."], "neg": ["...", "..."]},
                                     "candidate_solutions": [{"solution": "...", "feedback": "pos"}, ...]}}}

`input.json` is Chinese, `input_en.json` English. A path is one of them, or a folder that holds them (itself, or in the
released places below it); `persona` reads the files beside them.

The history of a sample's topics is: of every earlier sample its logs, then its dialogue, and of the sample itself the
logs alone. So no answer sees the dialogue it belongs to, and an earlier query sample is history of the later ones.
Items are L1, D1, L2, D2, ... with turns L1:1, D1:1 and so on; actions of utterances are not kept.

Limits: the format was read from the authors' code and notes; the genuine English file, machine translated, was
not seen. Log entries after the dialogue they precede are skipped: they would reveal the future.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from ...errors import DataError
from ...records import AnyItem, History, Logs, Record, Session, Turn, read_json
from ..cells import last_number, read_date
from ..dataset import Finding, Note
from .persona import Persona, SideFiles
from .topics import Topic, read_topics, values_in

Language = Literal["zh", "en"]
FILES: Mapping[Language, str] = {"zh": "input.json", "en": "input_en.json"}
_PLACES = ("", "data", "data_synthesis_v2/data", "data_en", "data_synthesis_v2/data_en", "data/data_en")


class Asked(Record):
    """One topic of a query sample: what all of PAL-Bench asks about."""

    id: str
    """E.g. "0000_sample26_topic-1"."""
    user: str
    history: History
    """What is known when the dialogue begins."""
    logs: Logs | None
    """The sample's own logs, the last item of the history."""
    topic: Topic
    persona: Persona
    language: Language


def files_of(path: Path, language: str | None = None) -> list[Path]:
    """The data files that a path denotes.

    Args:
        path: A file, or a folder with `input.json` or `input_en.json`.
        language: "zh", "en" or "all"; None takes the Chinese data, which is the original, or else the English.

    Raises:
        DataError: The folder holds no such file, or the language is no such word.
    """
    if language not in (None, "zh", "en", "all"):
        raise DataError(f"palbench: language={language!r} is not known; choose zh, en or all")
    if not path.is_dir():
        return [path]
    found: dict[str, Path] = {}
    for name in FILES:
        places = [path / place / FILES[name] for place in _PLACES]
        there = [place for place in places if place.is_file()]
        found.update({name: there[0]} if there else {})
    wanted: Sequence[str] = ("zh", "en") if language in (None, "all") else (language,)
    chosen = [found[name] for name in wanted if name in found]
    if not chosen:
        raise DataError(f"{path}: holds no {' or '.join(FILES[name] for name in FILES if name in wanted)}")
    return chosen if language == "all" else chosen[:1]


def read_palset(files: Sequence[Path], note: Note) -> tuple[tuple[History, ...], tuple[Asked, ...]]:
    """Reads data files, telling `note` everything that is odd about them.

    A user with a fatal finding is skipped if `note` does not raise.

    Returns:
        The whole record of every user, and the topics that are asked.

    Raises:
        DataError: A file is missing, empty or no JSON.
    """
    histories: list[History] = []
    asked: list[Asked] = []
    taken: set[str] = set()
    ids: set[str] = set()
    for file in files:
        value, sides = read_json(file), SideFiles.beside(file)
        if not isinstance(value, dict):
            note(Finding("wrong type", file.name, "expected an object with user ids", fatal=True))
            continue
        for name, record in value.items():
            if not isinstance(record, dict) or not {"history", "query"} <= record.keys():
                note(Finding("wrong type", str(name), "expected an object with 'history' and 'query'", fatal=True))
                continue
            id = str(name) if str(name) not in taken else f"{name}-{'en' if file.stem.endswith('_en') else file.stem}"
            taken.add(id)
            user = _User(str(name), id, note, sides)
            for each in user.read(record):
                if each.id in ids:
                    note(Finding("repeated topic", each.id, "was there before; this one is passed over"))
                    continue
                ids.add(each.id)
                asked.append(each)
            histories.append(History(id=id, items=tuple(user.items)))
    return tuple(histories), tuple(asked)


class _User:
    """One user being read into items and topics."""

    def __init__(self, name: str, id: str, note: Note, sides: SideFiles) -> None:
        self.name, self.id, self.note, self.sides = name, id, note, sides
        self.items: list[AnyItem] = []
        self.last: datetime | None = None

    def fault(self, kind: str, where: str, message: str, fatal: bool = False) -> None:
        self.note(Finding(kind, f"{self.id}, {where}", message, fatal))

    def read(self, record: Mapping[str, Any]) -> Iterator[Asked]:
        number = 0
        for part in ("history", "query"):
            for value in self.samples(record[part], part):
                number += 1
                if not isinstance(value, dict):
                    self.fault("wrong type", f"sample {number}", f"expected an object, got {reprlib.repr(value)}")
                    continue
                yield from self.sample(value, number, part == "query")

    def samples(self, value: Any, part: str) -> Sequence[Any]:
        if not isinstance(value, dict | list):
            self.fault("wrong type", part, f"expected a list of samples, got {reprlib.repr(value)}", fatal=True)
        return values_in(value)

    def sample(self, row: Mapping[str, Any], number: int, asked: bool) -> Iterator[Asked]:
        """Takes a sample's items in; between its logs and its dialogue its topics are asked."""
        where = str(row.get("sample_id") or f"sample {number}")
        time = read_date(row.get("dialogue_timestamp"))
        if time is None:
            self.fault("unreadable date", where, f"dialogue_timestamp is {row.get('dialogue_timestamp')!r}")
        elif self.last is not None and time <= self.last:
            self.fault("samples out of order", where, "is not later than the sample before it; kept in its place")
        logs = self.logs(row.get("logs"), number, time, where)
        if logs is not None:
            self.items.append(logs)
        if asked:
            history = History(id=self.id, items=tuple(self.items))
            known = {turn.text: turn.id for turn in logs.turns} if logs else {}
            for n, (key, topic) in enumerate(read_topics(row.get("topics"), where, self.fault)):
                day = time.strftime("%Y-%m-%d") if time else ""
                persona = self.sides.persona(self.name, day, key, n, topic.told())
                found = tuple(known[text] for text in persona.evidences if text in known)
                yield Asked(
                    id=f"{where}_{key}" if where.startswith(self.id) else f"{self.id}_{where}_{key}",
                    user=self.id,
                    history=history,
                    logs=logs,
                    topic=topic.model_copy(update={"evidence": tuple(dict.fromkeys(found))}),
                    persona=persona,
                    language="zh" if re.search("[\u4e00-\u9fff]", topic.requirement) else "en",
                )
        dialogue = self.dialogue(row.get("dialogue"), number, time, where)
        if dialogue is not None:
            self.items.append(dialogue)
        self.last = time or self.last

    def logs(self, value: Any, number: int, end: datetime | None, where: str) -> Logs | None:
        turns: list[Turn] = []
        for n, part in enumerate(value if isinstance(value, list) else [], 1):
            place = f"{where}, log {n}"
            row = part if isinstance(part, dict) else {"content": part}
            given, time = row.get("content"), read_date(row.get("timestamp"))
            text = given.strip() if isinstance(given, str) else ""
            if not isinstance(given, str | None):
                self.fault("wrong type", place, f"content is {reprlib.repr(given)}, expected a text", fatal=True)
            elif not text:
                self.fault("empty log", place, "has no content; passed over")
            elif time and end and time.replace(second=0) > end:
                self.fault("log after its dialogue", place, f"{time} is after the dialogue; passed over")
            else:
                turns.append(Turn(id=f"L{number}:{len(turns) + 1}", speaker="log", text=text, time=time))
        if not turns:
            self.fault("no logs", where, "has no log entry that can be read")
            return None
        times = [turn.time for turn in turns if turn.time]
        if times != sorted(times):
            self.fault("logs out of order", where, "are kept in the order of the file")
        if times and self.last and min(times) <= self.last:
            self.fault("log before the last dialogue", where, "begins before the dialogue of the sample before")
        return Logs(id=f"L{number}", time=min(times, default=None), turns=tuple(turns))

    def dialogue(self, value: Any, number: int, time: datetime | None, where: str) -> Session | None:
        said: list[tuple[str, str]] = []
        for part in _turns(value):
            for role in ("user", "assistant"):
                given = part.get(role) if isinstance(part, dict) else None
                text = given.get("content") if isinstance(given, dict) else given
                if not isinstance(text, str | None):
                    message = f"an utterance of the {role} is {reprlib.repr(text)}, expected words"
                    self.fault("wrong type", where, message, fatal=True)
                elif text and text.strip():
                    said.append((role, text.strip()))
                else:
                    self.fault("empty turn", where, f"an utterance of the {role} has no content; passed over")
        if not said:
            self.fault("no dialogue", where, "has no utterance that can be read")
            return None
        turns = (Turn(id=f"D{number}:{n}", speaker=role, text=text) for n, (role, text) in enumerate(said, 1))
        return Session(id=f"D{number}", time=time, turns=tuple(turns))


def _turns(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value[key] for key in sorted(value, key=last_number)]
    return value if isinstance(value, list) else []
