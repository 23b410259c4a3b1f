"""The form of PAL-Set, and a reader for it; taken from its documentation, the authors' code and notes.

    {"0000": {"history": [SAMPLE, ...], "query": [SAMPLE, ...]}}                   `input.json`, `input_en.json`

    background.json                {user: {gender, age, ..., personality: {trait: level}}}
    situation.json                 {user: {date: {situation, requirement_ids, ...}}}
    preference.json                {user: {aspect: {id: {requirement, preference: {pos, neg}}}}}
    requirement_framework.json     {user: {date: {topic: {implicit_needs: [{need, evidences}], ...}}}}
    solution_preference.json       {user: {date: {topic: {pos_list, neg_list: [{solution, feedback_reason}]}}}}

Side files lie beside the data or in folders there. Judges and simulated users see them, assistants never do.

The history of a sample's topics is: of every earlier sample its logs, then its dialogue, and of the sample itself the
logs alone. So no answer sees the dialogue it belongs to, and an earlier query sample is history of the later ones. Log
entries after the dialogue they precede are skipped: they would reveal the future.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field

from ...errors import DataError
from ...records import AnyItem, History, Logs, Record, Session, Turn, read_json
from ..dataset import FindingListener
from ..field_types import Date, Listed, Text, Words, natural_sort_key
from ..rows import Location, Row

Language = Literal["zh", "en"]
Feedback = Literal["pos", "neg", "neu"]
FILES: Mapping[Language, str] = {"zh": "input.json", "en": "input_en.json"}
_SIDES = ("background", "situation", "preference", "requirement_framework", "solution_preference")


class Candidate(Row):
    """One candidate solution."""

    solution: Text
    feedback: Feedback


class Topic(Row):
    """What a user asks about in one dialogue, and what is behind it."""

    user_query: Text
    requirement: Text
    needs: Listed[Text] = Field((), validation_alias=AliasChoices("needs", "implicit_needs"))
    """Two implicit needs."""
    positives: Listed[Text] = Field((), validation_alias=AliasChoices("positives", AliasPath("solution", "pos")))
    negatives: Listed[Text] = Field((), validation_alias=AliasChoices("negatives", AliasPath("solution", "neg")))
    candidates: Listed[Candidate] = Field((), validation_alias=AliasChoices("candidates", "candidate_solutions"))
    """Eight, in the order of the file: S1 to S8."""

    @property
    def feedback(self) -> dict[str, Feedback]:
        """What the user thinks of each candidate, by its id."""
        return {f"S{n}": candidate.feedback for n, candidate in enumerate(self.candidates, 1)}

    @property
    def options(self) -> list[str]:
        """The candidates with their ids, as they are shown."""
        return [f"S{n}: {candidate.solution}" for n, candidate in enumerate(self.candidates, 1)]

    def checked(self, place: Location) -> Topic:
        """The topic, after a word on what it lacks."""
        if len(self.needs) != 2:
            place.warn("number of needs", f"has {len(self.needs)} implicit needs, not 2")
        kinds = list(self.feedback.values())
        if (len(kinds), kinds.count("pos"), kinds.count("neg")) != (8, 2, 2):
            counted = f"{len(kinds)} candidates, {kinds.count('pos')} liked, {kinds.count('neg')} disliked"
            place.warn("number of candidates", f"has {counted}; expected 8, 2 and 2")
        return self


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


class QueryTopic(Record):
    """One topic of a query sample: what all of PAL-Bench asks about."""

    id: str
    """E.g. "0000_sample26_topic-1"."""
    history: History
    """What is known when the dialogue begins."""
    logs: Logs | None
    """The sample's own logs, the last item of the history."""
    topic: Topic
    evidence: tuple[str, ...]
    """Ids of the log entries that the needs rest on, if the data has them."""
    persona: Persona
    language: Language


class _SideFiles:
    def __init__(self, path: Path) -> None:
        self.found: dict[str, Any] = {}
        for name in _SIDES:
            names = [f"{name}_en.json", f"{name}.json"] if path.stem.endswith("_en") else [f"{name}.json"]
            place = next((place for each in names for place in sorted(path.parent.rglob(each))), None)
            if place is not None:
                self.found[name] = read_json(place)
                if not isinstance(self.found[name], dict):
                    raise DataError(f"{place}: expected an object with user ids, got {reprlib.repr(self.found[name])}")

    def persona(self, user: str, date: str, key: str, number: int, topic: Topic) -> Persona:
        """What they say of a user's topic, by its day, its key ("topic-1") and its place in the dialogue, from 0."""
        situation = self._at("situation", user, date)
        liked = self._at("solution_preference", user, date, key)
        ids = situation.get("requirement_ids")
        id = str(ids[number]) if isinstance(ids, list) and number < len(ids) else ""
        general = self._at("preference", user, id.partition("-")[0], id, "preference")
        needs = self._at("requirement_framework", user, date, key).get("implicit_needs")
        kept = [need for need in needs if isinstance(need, dict)] if isinstance(needs, list) else []
        evidences = [need["evidences"] for need in kept if isinstance(need.get("evidences"), list)]
        wanted = {"user_query": topic.user_query, "implicit_needs": kept or list(topic.needs)}
        tastes = {
            "requirement": topic.requirement,
            "general_preference": general,
            "likes": liked.get("pos_list") or list(topic.positives),
            "dislikes": liked.get("neg_list") or list(topic.negatives),
        }
        return Persona(
            profile=_profile(self._at("background", user)),
            situation=str(situation.get("situation") or ""),
            needs=_json(wanted | {"requirement": topic.requirement}),
            preferences=_json(tastes),
            evidences=tuple(str(evidence) for found in evidences for evidence in found),
        )

    def _at(self, name: str, *keys: str) -> Mapping[str, Any]:
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


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _values(value: Any) -> Any:
    """The values of an object that is used as a list, in the order of its keys."""
    return [value[key] for key in sorted(value, key=natural_sort_key)] if isinstance(value, dict) else value or ()


def _content(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


Utterance = Annotated[Words, BeforeValidator(_content)]


class _Log(Row):
    timestamp: Date = None
    content: Words = ""


class _Message(Row):
    user: Utterance = ""
    assistant: Utterance = ""


class _Sample(Row):
    sample_id: Words = ""
    dialogue_timestamp: Date = None
    logs: Listed[_Log] = ()
    dialogue: Annotated[tuple[_Message, ...], BeforeValidator(_values)] = ()
    topics: dict[str, Topic] = {}  # noqa: RUF012


class _Record(Row):
    history: tuple[_Sample, ...]
    query: tuple[_Sample, ...]


def files_of(path: Path, language: Literal["zh", "en", "all"] | None = None) -> list[Path]:
    """The data files that a path denotes.

    Args:
        path: A file, or a folder with `input.json` or `input_en.json` in it, however deep.
        language: None takes the Chinese data, which is the original, or else the English.

    Raises:
        DataError: The folder holds no such file.
    """
    if not path.is_dir():
        return [path]
    wanted = tuple(FILES) if language in (None, "all") else (language,)
    found = [sorted(path.rglob(FILES[name])) for name in wanted]
    chosen = [files[0] for files in found if files]
    if not chosen:
        raise DataError(f"{path}: holds no {' or '.join(FILES[name] for name in wanted)}")
    return chosen if language == "all" else chosen[:1]


def read_palset(
    files: Sequence[Path], on_finding: FindingListener
) -> tuple[tuple[History, ...], tuple[QueryTopic, ...]]:
    """Reads data files, telling `note` everything that is odd about them.

    A user with a fatal finding is skipped if `note` does not raise.

    Returns:
        The whole record of every user, and the topics that are asked.

    Raises:
        DataError: A file is missing, empty or no JSON.
    """
    histories: dict[str, History] = {}
    asked: dict[str, QueryTopic] = {}
    for file in files:
        value, sides = read_json(file), _SideFiles(file)
        if not isinstance(value, dict):
            Location(on_finding, file.name).reject("wrong value", "expected an object with user ids")
            continue
        for name, record in value.items():
            place = Location(on_finding, name)
            row = place.validate(_Record, record)
            if row is None:
                continue
            id = name if name not in histories else f"{name}-{'en' if file.stem.endswith('_en') else file.stem}"
            items: list[AnyItem] = []
            for each in _user(row, name, id, items, place, sides):
                if asked.setdefault(each.id, each) is not each:
                    place.warn("repeated topic", f"{each.id} was there before; this one is passed over")
            histories[id] = History(id=id, items=tuple(items))
    return tuple(histories.values()), tuple(asked.values())


def _user(
    row: _Record, name: str, id: str, items: list[AnyItem], place: Location, sides: _SideFiles
) -> Iterator[QueryTopic]:
    """Takes a user's samples in as items; the topics of a query sample are asked between its logs and its dialogue."""
    last: datetime | None = None
    for number, sample in enumerate((*row.history, *row.query), 1):
        where, time = sample.sample_id or f"sample {number}", sample.dialogue_timestamp
        at = place.at(where)
        if time is None:
            at.warn("unreadable date", "dialogue_timestamp is no date such as 2024-01-12 20:30:00")
        elif last is not None and time <= last:
            at.warn("samples out of order", "is not later than the sample before it; kept in its place")
        logs = _logs(sample, number, at)
        items += [logs] if logs else []
        if number > len(row.history) and not sample.topics:
            at.warn("no topics", "nothing is asked about this sample")
        elif number > len(row.history):
            history, known = (
                History(id=id, items=tuple(items)),
                {turn.text: turn.id for turn in (logs.turns if logs else ())},
            )
            for n, key in enumerate(sorted(sample.topics, key=natural_sort_key)):
                topic = sample.topics[key].checked(at.at(key))
                persona = sides.persona(name, f"{time:%Y-%m-%d}" if time else "", key, n, topic)
                yield QueryTopic(
                    id=f"{where}_{key}" if where.startswith(id) else f"{id}_{where}_{key}",
                    history=history,
                    logs=logs,
                    topic=topic,
                    evidence=tuple(dict.fromkeys(known[text] for text in persona.evidences if text in known)),
                    persona=persona,
                    language="zh" if re.search("[\u4e00-\u9fff]", topic.requirement) else "en",
                )
        said = [(role, text) for turn in sample.dialogue for role, text in turn if text]
        turns = (Turn(id=f"D{number}:{n}", speaker=role, text=text) for n, (role, text) in enumerate(said, 1))
        items += [Session(id=f"D{number}", time=time, turns=tuple(turns))] if said else []
        last = time or last


def _logs(row: _Sample, number: int, place: Location) -> Logs | None:
    end, turns = row.dialogue_timestamp, list[Turn]()
    for n, log in enumerate(row.logs, 1):
        time = log.timestamp
        if time and end and time.replace(second=0) > end:
            place.at(f"log {n}").warn("log after its dialogue", f"{time} is after the dialogue; passed over")
        elif log.content:
            turns.append(Turn(id=f"L{number}:{len(turns) + 1}", speaker="log", text=log.content, time=time))
    times = [turn.time for turn in turns if turn.time]
    return Logs(id=f"L{number}", time=min(times, default=None), turns=tuple(turns)) if turns else None
