"""The form of MemoryQuest, and a reader for it.

    {"user_id": "u1", "demographics": {...}, "domain_summaries": {"food": "..."},
     "sessions": [{"session_id": "s1", "date": "2024-03-05", "turns": [{"speaker": "user", "text": "..."}]}],
     "queries": [{"query_id": "q1", "query": "...", "date": "2024-06-01", "reasoning": "...",
                  "references": [{"text": "...", "date": "...", "session_id": "s3", "turns": [3]}]}]}

A folder of `user*.json` (or one with such a folder `data`) or one JSON file with a user or a list of users. `turns` of
a reference, the places in its session counted from 1, are ours and optional; a reference may be a bare text.

From its documentation: the public card names the file, `demographics` and `domain_summaries` and stops there. The other
names above are those of our own generator.

The history of a query ends at its date, that day included; undated sessions stay in every one. Session and turn ids
are made here (D1, D1:1, ...), in time order. A reference without `turns` rests on all turns of its session.

Limits: unverified on the genuine files, which a file of other names is refused by, in one line that names what is
missing.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, time
from pathlib import Path
from typing import Any

import dspy

from ...errors import DataError
from ...records import History, Record, Session, Turn, format_time, read_json
from ..cells import natural, read_date
from ..dataset import Finding, Note, Reading
from ..text_metrics import stems


class Reference(Record):
    """Something a good response to a query takes into account."""

    text: str
    date: datetime | None = None
    turns: tuple[str, ...] = ()
    """Ids of the turns that hold it, or of all turns of its session; none where its session is not known."""

    def line(self) -> str:
        """The reference with its date, as judges read it."""
        return f"({format_time(self.date)}) {self.text}" if self.date else self.text


def read_memoryquest(path: Path, note: Note) -> Reading:
    """Reads a folder or a file of this form, telling `note` everything that is odd about it.

    A user or a query with a fatal finding is skipped if `note` does not raise.

    Returns:
        The whole history of every user, and the examples, each with the part of it before its query.

    Raises:
        DataError: A file is missing, empty or no JSON, or the folder holds no `user*.json`.
    """
    histories: list[History] = []
    examples: dict[str, dspy.Example] = {}
    for where, value in _users(path):
        if not isinstance(value, dict):
            note(Finding("wrong type", where, f"expected an object, got {reprlib.repr(value)}", fatal=True))
            continue
        user = _User(where, value, note)
        if user.history is not None:
            histories.append(user.history)
            examples.update((example.id, example) for example in user.examples(examples))
    return Reading(tuple(histories), tuple(examples.values()))


def files_of(path: Path) -> list[Path]:
    """The files that a path denotes, users in the order of their numbers.

    Raises:
        DataError: A folder without `user*.json`.
    """
    if not path.is_dir():
        return [path]
    found = list(path.glob("user*.json")) or list((path / "data").glob("user*.json"))
    if not found:
        raise DataError(f"{path}: holds no user*.json; give the folder with the users' files")
    return sorted(found, key=lambda file: natural(file.stem))


def _users(path: Path) -> Iterator[tuple[str, Any]]:
    for file in files_of(path):
        value = read_json(file)
        if isinstance(value, list):
            yield from ((f"entry {n}", each) for n, each in enumerate(value, 1))
        else:
            yield file.stem, value


class _User:
    """One user being read into a history and examples; keeps the place for its findings."""

    def __init__(self, where: str, row: Mapping[str, Any], note: Note) -> None:
        self.where, self.note, self.row = where, note, row
        self.id = str(self.row.get("user_id") or where)
        self.places: dict[str, Session] = {}
        self.history = self.read_history()

    def fault(self, kind: str, where: str, message: str, fatal: bool = False) -> None:
        self.note(Finding(kind, f"{self.where}, {where}" if where != self.where else where, message, fatal))

    def date(self, value: Any, where: str) -> datetime | None:
        found = read_date(value)
        if found is None and value not in (None, ""):
            self.fault("unreadable date", where, f"{reprlib.repr(value)} is no date; taken as undated")
        return found

    def objects(self, name: str) -> list[Any] | None:
        """A list of the user's, None after an error."""
        value = self.row.get(name)
        if isinstance(value, list):
            return value
        kind = "missing key" if value is None else "wrong type"
        self.fault(kind, self.where, f"{name!r} is {reprlib.repr(value)}; expected a list of objects", fatal=True)
        return None

    def read_history(self) -> History | None:
        value = self.objects("sessions")
        if value is None:
            return None
        read = [found for n, part in enumerate(value, 1) if (found := self.session(part, n)) is not None]
        times = [session.time for _, session in read]
        if None not in times and times != sorted(time for time in times if time):
            self.fault("sessions out of order", self.where, "are put into the order of their dates")
            read.sort(key=lambda pair: pair[1].time or datetime.min)
        for n, (id, session) in enumerate(read, 1):
            turns = tuple(turn.model_copy(update={"id": f"D{n}:{turn.id}"}) for turn in session.turns)
            if id in self.places:
                self.fault("repeated session", f"session {id!r}", "was there before; references mean the first")
            found = Session(id=f"D{n}", time=session.time, turns=turns)
            self.places.setdefault(id, found)
            read[n - 1] = id, found
        if not read:
            self.fault("no turns", self.where, "no session has a turn with words", fatal=True)
            return None
        return History(id=self.id, items=tuple(session for _, session in read))

    def session(self, part: Any, number: int) -> tuple[str, Session] | None:
        """A session with the places of its turns for ids."""
        where = f"session {number}"
        if not isinstance(part, dict):
            self.fault("wrong type", where, f"expected an object with 'turns', got {reprlib.repr(part)}; passed over")
            return None
        given = part.get("turns")
        turns = tuple(self.turns(given if isinstance(given, list) else [], where))
        if not turns:
            self.fault("empty session", where, "has no turn with words; passed over")
            return None
        return str(part.get("session_id") or number), Session(
            id="", time=self.date(part.get("date"), where), turns=turns
        )

    def turns(self, parts: Sequence[Any], where: str) -> Iterator[Turn]:
        for n, part in enumerate(parts, 1):
            text = part.get("text") if isinstance(part, dict) else part
            if not isinstance(part, dict) or not isinstance(text, str | None):
                message = f"turn {n}: its text is {reprlib.repr(text)}, expected words"
                self.fault("wrong type", where, message, fatal=True)
            elif text and text.strip():
                yield Turn(id=str(n), speaker=str(part.get("speaker") or "user"), text=text.strip())
            else:
                self.fault("empty turn", where, f"turn {n} has no text; passed over")

    def examples(self, taken: Mapping[str, Any]) -> Iterator[dspy.Example]:
        """The queries that can be scored, each with all facts about its user that the file states up to its date."""
        made = list(self.scorable(taken))
        stated = dict.fromkeys(reference for _, example in made for reference in example.references)
        for asked, example in made:
            end = _end(asked)
            known = [each for each in stated if end is None or each.date is None or each.date <= end]
            example.facts = "\n".join(dict.fromkeys(each.line() for each in known))
            yield example

    def scorable(self, taken: Mapping[str, Any]) -> Iterator[tuple[datetime | None, dspy.Example]]:
        """The queries with references, and when each is asked."""
        ids = set(taken)
        histories: dict[int, History] = {}
        for n, part in enumerate(self.objects("queries") or (), 1):
            where = f"query {n}"
            row = part if isinstance(part, dict) else {}
            question = row.get("query")
            if not isinstance(question, str) or not question.strip():
                self.fault("no query", where, f"expected an object with 'query', got {reprlib.repr(part)}", fatal=True)
                continue
            asked = self.date(row.get("date"), where)
            history = self.before(asked)
            history = histories.setdefault(len(history.items), history)
            references = tuple(self.references(row.get("references"), history, where))
            if not references:
                self.fault("no references", where, "cannot be scored without a reference; passed over")
                continue
            id = f"{self.id}:{row.get('query_id') or n}"
            if id in ids:
                self.fault("repeated query", where, f"{id!r} was there before; this one is '{id}:{n}'")
                id = f"{id}:{n}"
            ids.add(id)
            yield asked, self.example(id, question.strip(), asked, history, references, row)

    def example(
        self,
        id: str,
        question: str,
        asked: datetime | None,
        history: History,
        references: tuple[Reference, ...],
        row: Mapping[str, Any],
    ) -> dspy.Example:
        return dspy.Example(
            id=id,
            history=history,
            question=question,
            date=format_time(asked) if asked else "",
            focus=tuple(dict.fromkeys(turn for reference in references for turn in _anchor(reference, history))),
            answer="\n".join(reference.line() for reference in references),
            references=references,
            category=str(row.get("domain") or "all"),
            profile=self.profile(),
            reasoning=str(row.get("reasoning") or ""),
        ).with_inputs("history", "question", "date", "focus")

    def before(self, asked: datetime | None) -> History:
        """The sessions up to a moment, or to the end of its day where it has no clock."""
        assert self.history is not None
        end = _end(asked)
        if end is None:
            return self.history
        kept = tuple(session for session in self.history.items if session.time is None or session.time <= end)
        return History(id=self.id, items=kept)

    def references(self, value: Any, history: History, where: str) -> Iterator[Reference]:
        for n, part in enumerate(value if isinstance(value, list) else [], 1):
            row = part if isinstance(part, dict) else {"text": part}
            text, place = row.get("text"), f"{where}, reference {n}"
            if not isinstance(text, str) or not text.strip():
                self.fault("empty reference", place, "has no text; passed over")
                continue
            turns = self.evidence(row, history, place)
            yield Reference(text=text.strip(), date=self.date(row.get("date"), place), turns=turns)

    def evidence(self, row: Mapping[str, Any], history: History, where: str) -> tuple[str, ...]:
        """The turns that hold a reference, as far as the file states them and the history holds them."""
        id = row.get("session_id")
        if id is None:
            return ()
        session = self.places.get(str(id))
        if session is None or session not in history.items:
            state = "is no session" if session is None else "is after the query"
            self.fault("dangling evidence", where, f"session {str(id)!r} {state}; no evidence")
            return ()
        places = row.get("turns")
        wanted = [f"{session.id}:{n}" for n in (places if isinstance(places, list) else [places]) if n is not None]
        found = tuple(turn.id for turn in session.turns if turn.id in wanted)
        if len(found) < len(set(wanted)):
            self.fault("dangling evidence", where, f"turns {places!r} are not all in session {str(id)!r}")
        return found or tuple(turn.id for turn in session.turns)

    def profile(self) -> str:
        """Demographics and summaries in lines; "" without any."""
        parts = [self.row.get(name) for name in ("demographics", "domain_summaries")]
        lines = [f"{key}: {value}" for part in parts if isinstance(part, dict) for key, value in part.items()]
        return "\n".join(lines + [part for part in parts if isinstance(part, str)])


def _end(asked: datetime | None) -> datetime | None:
    """The last moment that a query knows of: its own, or the end of its day where it has no clock."""
    if asked is None or asked.time() != time.min:
        return asked
    return datetime.combine(asked, time.max)


def _anchor(reference: Reference, history: History) -> tuple[str, ...]:
    """The turns of a reference, or of a whole session the one turn that shares most words with it."""
    if len(reference.turns) < 2:
        return reference.turns
    turns = [history.turns[id] for id in reference.turns]
    if len(turns) < len(turns[0][1].turns):
        return reference.turns
    words = set(stems(reference.text))
    return (max(turns, key=lambda pair: len(words & set(stems(pair[0].text))))[0].id,)
