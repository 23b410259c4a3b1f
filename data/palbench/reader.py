"""The form of PAL-Set, and a reader for it.

    {"0000": {"history": [SAMPLE, ...], "query": [SAMPLE, ...]}}
    SAMPLE   {"sample_id": "0000_sample0", "dialogue_timestamp": "2024-01-12 20:30:00",
              "logs": [{"timestamp": "2024-01-10 08:15", "content": "..."}],
              "dialogue": {"turn_1": {"user": {"action": "...", "content": "..."}, "assistant": {...}}, ...},
              "topics": {"topic-1": {"user_query": "...", "implicit_needs": ["...", "..."], "requirement": "...",
                                     "solution": {"pos": ["...", "..."], "neg": ["...", "..."]},
                                     "candidate_solutions": [{"solution": "...", "feedback": "pos"}, ...]}}}

`input.json` is Chinese, `input_en.json` English; beside them, or in the folders of the released data:

    background.json                {user: {gender, age, ..., personality: {trait: level}}}
    situation.json                 {user: {date: {situation, requirement_ids, ...}}}
    preference.json                {user: {aspect: {id: {requirement, preference: {pos, neg}}}}}
    requirement_framework.json     {user: {date: {topic: {implicit_needs: [{need, evidences}], ...}}}}
    solution_preference.json       {user: {date: {topic: {pos_list, neg_list: [{solution, feedback_reason}]}}}}

Judges and simulated users see these, assistants never do; one that is not there leaves its part of a persona empty.

The history of a sample's topics is: of every earlier sample its logs, then its dialogue, and of the sample itself the
logs alone. So no answer sees the dialogue it belongs to, and an earlier query sample is history of the later ones.
Items are L1, D1, L2, D2, ... with turns L1:1, D1:1 and so on; actions of utterances are not kept.

Limits: the form is taken from its documentation, the authors' code and notes. Log entries after the dialogue they
precede are skipped: they would reveal the future.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from ...errors import DataError
from ...records import AnyItem, History, Logs, Record, Session, Turn, read_json
from ..dataset import Note
from ..rows import Listed, Place, Row, Text, Words, natural, read_date

Language = Literal["zh", "en"]
Feedback = Literal["pos", "neg", "neu"]
FILES: Mapping[Language, str] = {"zh": "input.json", "en": "input_en.json"}
CANDIDATES = 8
_PLACES = ("", "data", "data_synthesis_v2/data", "data_en", "data_synthesis_v2/data_en", "data/data_en")
_NAMES = ("background", "situation", "preference", "requirement_framework", "solution_preference")
_FOLDERS = ("", "dialogue_framework/requirement", "dialogue_framework/solution_preference")


class Candidate(Record):
    """One candidate solution."""

    text: str
    feedback: Feedback


class Topic(Record):
    """What a user asks about in one dialogue, and what is behind it."""

    user_query: str
    needs: tuple[str, ...]
    """Two implicit needs."""
    requirement: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Eight, in the order of the file: S1 to S8."""
    evidence: tuple[str, ...] = ()
    """Ids of the log entries that the needs rest on, if the data has them."""

    @property
    def feedback(self) -> dict[str, Feedback]:
        """What the user thinks of each candidate, by its id."""
        return {f"S{n}": candidate.feedback for n, candidate in enumerate(self.candidates, 1)}

    @property
    def options(self) -> list[str]:
        """The candidates with their ids, as they are shown."""
        return [f"S{n}: {candidate.text}" for n, candidate in enumerate(self.candidates, 1)]

    def told(self) -> dict[str, Any]:
        """What personas are made of."""
        return self.model_dump(include={"user_query", "needs", "requirement", "positives", "negatives"})


class Persona(Record):
    """One user at the time of one topic, as judges and the simulated user read it."""

    profile: str = ""
    """Background and personality."""
    situation: str = ""
    needs: str = ""
    """The query, the implicit needs with what they rest on, and the whole requirement."""
    preferences: str = ""
    """The requirement, general preferences, and the solutions the user likes and dislikes, with reasons."""
    evidences: tuple[str, ...] = ()
    """What the implicit needs rest on, in words."""


@dataclass(frozen=True)
class SideFiles:
    """The side files of one data file, those that there are."""

    found: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def beside(cls, path: Path) -> SideFiles:
        """Reads the files next to a data file.

        Raises:
            DataError: One of the files is no JSON.
        """
        endings = ("_en", "") if path.stem.endswith("_en") else ("",)
        found = {}
        for name in _NAMES:
            places = [path.parent / folder / f"{name}{end}.json" for end in endings for folder in (*_FOLDERS, name)]
            place = next((place for place in places if place.is_file()), None)
            if place is not None:
                found[name] = read_json(place)
                if not isinstance(found[name], dict):
                    raise DataError(f"{place}: expected an object with user ids, got {type(found[name]).__name__}")
        return cls(found)

    def persona(self, user: str, date: str, topic_id: str, number: int, topic: Mapping[str, Any]) -> Persona:
        """Puts a persona together.

        Args:
            user: Id of the user.
            date: Day of the dialogue, e.g. "2024-08-20".
            topic_id: The topic's key, e.g. "topic-1".
            number: Its place in the dialogue, from 0.
            topic: `user_query`, `needs`, `requirement`, `positives` and `negatives` from the data file itself.
        """
        situation = self._at("situation", user, date)
        framework = self._at("requirement_framework", user, date, topic_id)
        liked = self._at("solution_preference", user, date, topic_id)
        ids = situation.get("requirement_ids")
        id = str(ids[number]) if isinstance(ids, list) and number < len(ids) else ""
        general = self._at("preference", user, id.partition("-")[0], id).get("preference")
        needs = framework.get("implicit_needs")
        kept = [need for need in needs if isinstance(need, dict)] if isinstance(needs, list) else []
        return Persona(
            profile=_profile(self._at("background", user)),
            situation=str(situation.get("situation") or ""),
            needs=_json(
                {
                    "user_query": topic["user_query"],
                    "implicit_needs": kept or list(topic["needs"]),
                    "requirement": topic["requirement"],
                }
            ),
            preferences=_json(
                {
                    "requirement": topic["requirement"],
                    "general_preference": general if isinstance(general, dict) else {},
                    "likes": liked.get("pos_list") or list(topic["positives"]),
                    "dislikes": liked.get("neg_list") or list(topic["negatives"]),
                }
            ),
            evidences=tuple(evidence for need in kept for evidence in _texts(need.get("evidences"))),
        )

    def _at(self, name: str, *keys: str) -> Mapping[str, Any]:
        """What a file holds under some keys; {} where that is no object."""
        value = self.found.get(name)
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}


def _profile(background: Mapping[str, Any]) -> str:
    lines = []
    for key, value in background.items():
        text = ", ".join(f"{trait} {level}" for trait, level in value.items()) if isinstance(value, dict) else value
        lines.append(f"{key}: {text}")
    return "\n".join(lines)


def _texts(value: Any) -> Iterable[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


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


def _values(value: Any) -> Any:
    """The values of an object that is used as a list, in the order of its keys."""
    return [value[key] for key in sorted(value, key=natural)] if isinstance(value, dict) else value or ()


def _content(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


Utterance = Annotated[Words, BeforeValidator(_content)]
Date = Annotated[datetime | None, BeforeValidator(read_date)]


class _Log(Row):
    timestamp: Date = None
    content: Words = ""


class _Said(Row):
    user: Utterance = ""
    assistant: Utterance = ""


class _Solution(Row):
    pos: Listed[Text] = ()
    neg: Listed[Text] = ()


class _Candidate(Row):
    solution: Text
    feedback: Feedback


class _Topic(Row):
    user_query: Text
    requirement: Text
    implicit_needs: Listed[Text] = ()
    solution: _Solution = _Solution()
    candidate_solutions: Listed[_Candidate] = ()

    def topic(self, place: Place) -> Topic:
        """The topic as it is asked about, after a word on what it lacks."""
        if len(self.implicit_needs) != 2:
            place.odd("number of needs", f"has {len(self.implicit_needs)} implicit needs, not 2")
        candidates = tuple(Candidate(text=one.solution, feedback=one.feedback) for one in self.candidate_solutions)
        kinds = [candidate.feedback for candidate in candidates]
        if (len(kinds), kinds.count("pos"), kinds.count("neg")) != (CANDIDATES, 2, 2):
            counted = f"{len(kinds)} candidates, {kinds.count('pos')} liked, {kinds.count('neg')} disliked"
            place.odd("number of candidates", f"has {counted}; expected 8, 2 and 2")
        return Topic(
            user_query=self.user_query,
            needs=self.implicit_needs,
            requirement=self.requirement,
            positives=self.solution.pos or tuple(one.text for one in candidates if one.feedback == "pos"),
            negatives=self.solution.neg or tuple(one.text for one in candidates if one.feedback == "neg"),
            candidates=candidates,
        )


class _Sample(Row):
    sample_id: Words = ""
    dialogue_timestamp: Date = None
    logs: Listed[_Log] = ()
    dialogue: Annotated[tuple[_Said, ...], BeforeValidator(_values)] = ()
    topics: dict[str, _Topic] = {}  # noqa: RUF012


class _Record(Row):
    history: Annotated[tuple[_Sample, ...], BeforeValidator(_values)]
    query: Annotated[tuple[_Sample, ...], BeforeValidator(_values)]


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
    histories: dict[str, History] = {}
    asked: dict[str, Asked] = {}
    for file in files:
        value, sides = read_json(file), SideFiles.beside(file)
        if not isinstance(value, dict):
            Place(note, file.name).fault("wrong value", "expected an object with user ids")
            continue
        for name, record in value.items():
            place = Place(note, name)
            row = place.read(_Record, record)
            if row is None:
                continue
            id = name if name not in histories else f"{name}-{'en' if file.stem.endswith('_en') else file.stem}"
            user = _User(name, id, place, sides)
            for each in user.read(row):
                if asked.setdefault(each.id, each) is not each:
                    place.odd("repeated topic", f"{each.id} was there before; this one is passed over")
            histories[id] = History(id=id, items=tuple(user.items))
    return tuple(histories.values()), tuple(asked.values())


class _User:
    """One user being read into items and topics."""

    def __init__(self, name: str, id: str, place: Place, sides: SideFiles) -> None:
        self.name, self.id, self.place, self.sides = name, id, place, sides
        self.items: list[AnyItem] = []
        self.last: datetime | None = None

    def read(self, record: _Record) -> Iterator[Asked]:
        for number, sample in enumerate((*record.history, *record.query), 1):
            yield from self.sample(sample, number, number > len(record.history))

    def sample(self, row: _Sample, number: int, asked: bool) -> Iterator[Asked]:
        """Takes a sample's items in; between its logs and its dialogue its topics are asked."""
        where, time = row.sample_id or f"sample {number}", row.dialogue_timestamp
        place = self.place.at(where)
        if time is None:
            place.odd("unreadable date", "dialogue_timestamp is no date such as 2024-01-12 20:30:00")
        elif self.last is not None and time <= self.last:
            place.odd("samples out of order", "is not later than the sample before it; kept in its place")
        logs = self.logs(row, number, place)
        if logs is not None:
            self.items.append(logs)
        if asked:
            yield from self.topics(row, where, logs, place)
        said = [(role, text) for turn in row.dialogue for role, text in turn if text]
        if said:
            turns = (Turn(id=f"D{number}:{n}", speaker=role, text=text) for n, (role, text) in enumerate(said, 1))
            self.items.append(Session(id=f"D{number}", time=time, turns=tuple(turns)))
        self.last = time or self.last

    def logs(self, row: _Sample, number: int, place: Place) -> Logs | None:
        end, turns = row.dialogue_timestamp, list[Turn]()
        for n, log in enumerate(row.logs, 1):
            time = log.timestamp
            if time and end and time.replace(second=0) > end:
                place.at(f"log {n}").odd("log after its dialogue", f"{time} is after the dialogue; passed over")
            elif log.content:
                turns.append(Turn(id=f"L{number}:{len(turns) + 1}", speaker="log", text=log.content, time=time))
        times = [turn.time for turn in turns if turn.time]
        return Logs(id=f"L{number}", time=min(times, default=None), turns=tuple(turns)) if turns else None

    def topics(self, row: _Sample, where: str, logs: Logs | None, place: Place) -> Iterator[Asked]:
        if not row.topics:
            place.odd("no topics", "nothing is asked about this sample")
        history = History(id=self.id, items=tuple(self.items))
        known = {turn.text: turn.id for turn in logs.turns} if logs else {}
        day = row.dialogue_timestamp.strftime("%Y-%m-%d") if row.dialogue_timestamp else ""
        for n, key in enumerate(sorted(row.topics, key=natural)):
            topic = row.topics[key].topic(place.at(key))
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
