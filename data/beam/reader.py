"""Reads BEAM's chats and probing questions, from the repository's folders or the hub's tables.

Read are a chat's folder, or a folder with many of them at any depth; a parquet file of the hub, the same rows as JSON,
or a folder of parquet files. Where a chat was cut to the official limit of tokens, `chat_trunecated.json` is read, as
the official answering does; where a chat of 10M tokens is missing, its plans are joined. Chats are read batch by batch.

A session is one turn of the file (a main question and what follows it), with the date of its batch; order is the file's
own, since plans of 10M overlap in time. The generator's note of place (" ->-> 3,12") is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import dspy
from pydantic import AliasChoices, Field, RootModel, model_validator

from ...errors import DataError
from ...records import History, Session, Turn, read_json
from ...records.text_file import check_regular_file
from ...text import one_line
from ..dataset import Dataset, FindingListener
from ..field_types import MONTHS, Parsed, Text, Verbatim, Words, natural_sort_key
from ..json_lines import json_rows
from ..json_list import stream_list
from ..rows import Location, Row

Size = Literal["100K", "500K", "1M", "10M"]
Ability = Literal[
    "abstention",
    "contradiction_resolution",
    "event_ordering",
    "information_extraction",
    "instruction_following",
    "knowledge_update",
    "multi_session_reasoning",
    "preference_following",
    "summarization",
    "temporal_reasoning",
]
ABILITIES: tuple[Ability, ...] = Ability.__args__
ABSTENTION, EVENT_ORDERING = "abstention", "event_ordering"
CHATS = ("chat_trunecated.json", "chat.json")
"""The names of a chat's file, the one that is preferred first."""
QUESTIONS = Path("probing_questions", "probing_questions.json")
_SUFFIX = re.compile(r"\s*->->([^\n]*)\s*\Z")
_PLACE = re.compile(r"\s*\d+\s*,\s*(N/A|\d+(,\s*\d+)*)?\)?\s*")
_PLAN = re.compile(r"plan-\d{1,3}", re.ASCII)
_LEAKED = "Please respond only in English"
_DATE = re.compile(r"([a-z]+)-(\d{1,2})-(\d{4})", re.ASCII)


class _Message(Row):
    role: Literal["user", "assistant"]
    id: int
    content: Verbatim
    time_anchor: Words = ""


class _Batch(Row):
    turns: tuple[tuple[_Message, ...], ...]
    time_anchor: Words = ""

    @model_validator(mode="before")
    @classmethod
    def _in_turns(cls, value: Any) -> Any:
        """The hub's batches are flat lists of messages; a main question begins a turn."""
        if not isinstance(value, list):
            return value
        turns: list[list[Any]] = []
        for each in value:
            if not turns or (isinstance(each, Mapping) and each.get("question_type") == "main_question"):
                turns.append([])
            turns[-1].append(each)
        return {"turns": turns}


class _Question(Row):
    question: Text
    rubric: Annotated[tuple[Text, ...], Field(min_length=1)]
    answer: Words = Field(
        "", validation_alias=AliasChoices("answer", "ideal_answer", "ideal_response", "ideal_summary")
    )
    source_chat_ids: Any = None
    total_mentions: Any = None
    ordering_tested: Any = None


class _Questions(RootModel[dict[Ability, tuple[_Question, ...]]]):
    pass


class _HubRow(Row):
    conversation_id: Text
    chat: tuple[Any, ...]
    probing_questions: Annotated[_Questions, Parsed]


@dataclass(frozen=True)
class _Found:
    """A chat before it is read."""

    id: str
    place: Location
    entries: Iterable[Any]
    """Batches, or plans with batches."""
    questions: _Questions | None


def read_chats(path: Path, on_finding: FindingListener, size: Size | None) -> Dataset:
    """Reads the chats of a size, or of all sizes if None, one after the other.

    Raises:
        DataError: There is no such chat, or a file cannot be read.
    """
    files: list[Path] = []
    histories: dict[str, History] = {}
    examples: list[dspy.Example] = []
    for found in _found(path, on_finding, size, files):
        chat = _Chat(found)
        if chat.history.id in histories:
            found.place.reject("duplicate id", f"{chat.history.id!r} is the id of two chats")
        histories[chat.history.id] = chat.history
        examples.extend(chat.examples())
    return Dataset(tuple(histories.values()), tuple(examples), tuple(files))


def parse_date(text: str) -> datetime | None:
    """Reads BEAM's dates, `March-15-2024`, in any locale; None when it is no such date."""
    match = _DATE.fullmatch(text.strip().lower())
    try:
        return match and datetime(int(match[3]), MONTHS.index(match[1]) + 1, int(match[2]))
    except ValueError:
        return None


def flattened(value: Any) -> Iterator[Any]:
    """What is in lists and objects inside one another, in order."""
    if isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from flattened(part)
    elif value is not None:
        yield value


def _found(path: Path, on_finding: FindingListener, size: Size | None, files: list[Path]) -> Iterator[_Found]:
    """Finds the chats; `files` gets the paths of what was read."""
    home = path.parent if path.is_file() and (path.parent / QUESTIONS).is_file() else path
    folders = [file.parent.parent.resolve() for file in home.rglob(str(QUESTIONS))] if home.is_dir() else []
    tables = [] if folders else sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not folders and not tables:
        raise DataError(f"{path}: holds no {QUESTIONS} and no parquet file; give the folder of a chat, or of many")
    folders = [folder for folder in folders if size in (None, folder.parent.name)]
    # The hub names its files after the size: 100K-00000-of-00001.parquet.
    tables = [table for table in tables if size in (None, table.stem.partition("-")[0])]
    if not folders and not tables:
        raise DataError(f"{path}: holds no chat of the size {size}; leave the option out, or name another size")
    for folder in sorted(folders, key=lambda folder: natural_sort_key(str(folder))):
        yield _in_folder(folder, (path.name,) if path.is_file() else CHATS, on_finding, files)
    for table in tables:
        files.append(table)
        for row in _rows(table, on_finding):
            id = f"{table.stem.partition('-')[0]}/{row.conversation_id}"
            yield _Found(id, Location(on_finding, id), row.chat, row.probing_questions)


def _in_folder(folder: Path, names: Sequence[str], on_finding: FindingListener, files: list[Path]) -> _Found:
    id = f"{folder.parent.name}/{folder.name}"
    place = Location(on_finding, id)
    chats = [folder / name for name in names if (folder / name).is_file()][:1]
    if not chats:
        chats = sorted(folder.glob("plan-*/chat.json"), key=lambda file: natural_sort_key(file.parent.name))
        place.warn("joined plans", f"has no chat.json; the chats of {len(chats)} plans are joined")
    elif chats[0].name == CHATS[0]:
        place.warn("truncated chat", f"{CHATS[0]} is read, as the official code does")
    joined = ({file.parent.name: list(stream_list(file))} for file in chats)
    entries = stream_list(chats[0]) if [folder] == [file.parent for file in chats] else joined
    files += [*chats, folder / QUESTIONS]
    asked = place.at(QUESTIONS.name).validate(_Questions, read_json(folder / QUESTIONS))
    return _Found(id, place, entries, asked)


def _rows(table: Path, on_finding: FindingListener) -> Iterator[_HubRow]:
    if table.suffix == ".jsonl":
        yield from (row for _, _, row in json_rows(table, _HubRow, on_finding))
        return
    for number, value in enumerate(_parquet(table) if table.suffix == ".parquet" else stream_list(table), 1):
        row = Location(on_finding, f"entry {number}").validate(_HubRow, value)
        if row is not None:
            yield row


def _parquet(table: Path) -> Iterator[Any]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    check_regular_file(table)
    try:
        for batch in ParquetFile(table).iter_batches(1, columns=[*_HubRow.model_fields]):
            yield from batch.to_pylist()
    except (ArrowException, OSError, ValueError) as error:  # the last of names that are no UTF-8
        raise DataError(f"{table}: cannot be read as a parquet file: {one_line(str(error))}") from error


class _Chat:
    """A chat, and which of its turns an id of the file means."""

    def __init__(self, found: _Found) -> None:
        self.found, self.place = found, found.place
        self.sessions: list[Session] = []
        self.turns: dict[int, str] = {}
        self.time: datetime | None = None
        for number, entry in enumerate(found.entries, 1):
            self._add(entry, self.place.at(f"entry {number}"))
        if not self.sessions:
            self.place.reject("no turns", "holds no turn with words")
        self.history = History(id=found.id, items=tuple(self.sessions))

    def _add(self, entry: Any, place: Location) -> None:
        """Adds a batch, or the batches of plans: those that are null are in another entry."""
        if not isinstance(entry, dict) or not entry or not all(map(_PLAN.fullmatch, entry)):
            self._add_batch(place.validate(_Batch, entry), place)
            return
        for plan, batches in entry.items():
            if batches is not None and not isinstance(batches, list):
                place.field(plan).reject("wrong value", "is no list of batches")
                continue
            base: int | None = None
            for number, value in enumerate(batches or ()):
                inside = place.field(f"{plan}.{number}")
                batch = inside.validate(_Batch, value)
                if base is None and batch is not None:
                    base = self._base(batch)
                self._add_batch(batch, inside, base or 0)

    def _base(self, batch: _Batch) -> int:
        """What is added to the ids of a plan: evidence counts through all plans, and a plan by itself from 0."""
        first = next((said.id for turn in batch.turns for said in turn), 0)
        return len(self.turns) if first < len(self.turns) else 0

    def _add_batch(self, batch: _Batch | None, place: Location, base: int = 0) -> None:
        if batch is None:
            return
        self._date(batch, place)
        for said in batch.turns:
            n = len(self.sessions) + 1
            turns = tuple(self._turn(f"D{n}:{k}", each, place, base) for k, each in enumerate(said, 1))
            if turns:
                self.sessions.append(Session(id=f"D{n}", time=self.time, turns=turns))

    def _date(self, batch: _Batch, place: Location) -> None:
        """Takes the date of the batch, which its first message has; one without goes on with that of the last."""
        told = next((said.time_anchor for turn in batch.turns for said in turn if said.time_anchor), batch.time_anchor)
        time, kept = parse_date(told), "the batch keeps the date of the one before it"
        if time is None:
            kind = "malformed date" if told else "batch without date"
            place.warn(kind, f"{told!r} is not like 'March-15-2024'; {kept}" if told else kept)
        elif self.time and time < self.time:
            place.warn("dates out of order", f"{told} comes after a later date; the order stays")
        self.time = time or self.time

    def _turn(self, id: str, said: _Message, place: Location, base: int) -> Turn:
        place = place.at(f"message {said.id}")
        text, suffix = said.content, _SUFFIX.search(said.content)
        if suffix:
            text = text[: suffix.start()]
            if said.role == "assistant":
                place.warn("arrow of an assistant", "a note of the generator ends it; left out")
            elif not _PLACE.fullmatch(suffix[1]):
                place.warn("odd arrow", f"{suffix[1][:80]!r} is no place in the plan; left out")
        if "->->" in text:
            place.warn("arrow inside", "a note of the generator is inside the message; it stays")
        if _LEAKED in text:
            place.warn("leaked instruction", f"holds {_LEAKED!r}; it stays")
        if said.id + base in self.turns:
            place.warn("repeated message id", "was there before; evidence means the first")
        self.turns.setdefault(said.id + base, id)
        return Turn(id=id, speaker=said.role, text=text)

    def examples(self) -> Iterator[dspy.Example]:
        """The questions, which are asked after the whole chat."""
        asked = self.found.questions.root if self.found.questions else {}
        for ability in ABILITIES:
            rows = asked.get(ability, ())
            if self.found.questions and not rows:
                self.place.warn("missing ability", f"has no question of {ability}")
            for n, row in enumerate(rows):
                id = f"{self.history.id}:{ability}:{n}"
                evidence = () if ability == ABSTENTION else self._evidence(row, Location(self.place.on_finding, id))
                yield dspy.Example(
                    id=id,
                    history=self.history,
                    question=row.question,
                    evidence_ids=evidence,
                    answer=row.answer or "\n".join(row.rubric),
                    category=ability,
                    evidence=evidence,
                    rubric=row.rubric,
                ).with_inputs("history", "question", "evidence_ids")

    def _evidence(self, row: _Question, place: Location) -> tuple[str, ...]:
        """The turns that the ids of a question mean."""
        given = row.source_chat_ids
        counts = [row.total_mentions, len(row.ordering_tested) if isinstance(row.ordering_tested, list) else None]
        if any(isinstance(count, int) and count != len(row.rubric) for count in counts):
            place.warn("length of the rubric", "is another one than the question's; the rubric counts")
        if isinstance(given, list) and any(isinstance(each, list) for each in given):
            place.warn("nested evidence", "holds lists among its ids; they are put together")
        if isinstance(given, dict) and any(given.values()) and not all(given.values()):
            place.warn("half of the evidence", "one of its two statements names no message")
        ids = list(dict.fromkeys(named := list(flattened(given))))
        if len(ids) < len(named):
            place.warn("repeated evidence", "names a message twice; it counts once")
        known = [id for id in ids if isinstance(id, int) and not isinstance(id, bool)]
        if len(known) < len(ids):
            place.warn("malformed evidence", "holds what is no id; passed over")
        turns = tuple(dict.fromkeys(self.turns[id] for id in known if id in self.turns))
        if any(id not in self.turns for id in known):
            place.warn("dangling evidence", "names a message that is not there; passed over")
        if not turns:
            place.warn("empty evidence", "names no message; the question has no recall")
        return turns
