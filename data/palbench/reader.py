"""Read PAL-Set, whose form is taken from its documentation, the authors' code and notes.

    {"0000": {"history": [SAMPLE, ...], "query": [SAMPLE, ...]}}     `input.json`, `input_en.json`

What is known of the users stands in side files (see `side_files`).

The history of a sample's topics holds the logs and then the dialogue of every earlier sample, and
of the sample itself the logs alone. So no answer sees the dialogue it belongs to, and an earlier
query sample is history of the later ones. Log entries after the dialogue they precede are left out,
since they would reveal the future.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from ...errors import DataError
from ...records import AnyItem, History, Logs, Session, Turn, read_json
from ..dataset import FindingListener
from ..field_types import Date, Listed, Words, natural_sort_key
from ..rows import Location, Row
from .side_files import SideFiles, TopicKey
from .topics import Language, QueryTopic, Topic

FILES: Mapping[Language, str] = {"zh": "input.json", "en": "input_en.json"}


def _list_of_numbered(value: Any) -> Any:
    """Return the values of an object that is used as a list, in the order of its keys."""
    if isinstance(value, dict):
        return [value[key] for key in sorted(value, key=natural_sort_key)]
    return value or ()


def _content(value: Any) -> Any:
    """Return the content of an utterance that is an object; anything else as it is."""
    return value.get("content") if isinstance(value, dict) else value


_UtteranceText = Annotated[Words, BeforeValidator(_content)]


class _LogEntry(Row):
    timestamp: Date = None
    content: Words = ""


class _Exchange(Row):
    """What the user says in a dialogue, and what the assistant replies."""

    user: _UtteranceText = ""
    assistant: _UtteranceText = ""


class _Sample(Row):
    """Some logs, and the dialogue after them."""

    sample_id: Words = ""
    dialogue_timestamp: Date = None
    logs: Listed[_LogEntry] = ()
    dialogue: Annotated[tuple[_Exchange, ...], BeforeValidator(_list_of_numbered)] = ()
    topics: dict[str, Topic] = Field(default_factory=dict)


class _UserRow(Row):
    history: tuple[_Sample, ...]
    query: tuple[_Sample, ...]


class PalSet(NamedTuple):
    """What data files hold."""

    histories: tuple[History, ...]
    """The whole record of every user."""
    topics: tuple[QueryTopic, ...]
    """The topics that are asked."""


def files_of(path: Path, language: Literal["zh", "en", "all"] | None = None) -> list[Path]:
    """Return the data files that a path means.

    Args:
        path: A file, or a folder with `input.json` or `input_en.json` in it, however deep.
        language: None takes the Chinese data, which is the original, or else the English.

    Raises:
        DataError: The folder holds no such file.
    """
    if not path.is_dir():
        return [path]
    wanted_languages = tuple(FILES) if language in (None, "all") else (language,)
    file_names = [FILES[wanted] for wanted in wanted_languages]
    files: list[Path] = []
    for file_name in file_names:
        # Of several copies the first one is read.
        files.extend(sorted(path.rglob(file_name))[:1])
    if not files:
        raise DataError(f"{path}: holds no {' or '.join(file_names)}")
    return files if language == "all" else files[:1]


def read_palset(files: Sequence[Path], on_finding: FindingListener) -> PalSet:
    """Read data files, and report everything that is odd about them.

    A user with a fatal finding is left out if `on_finding` does not raise.

    Raises:
        DataError: A file is missing, empty or no JSON.
    """
    reader = _PalSetReader(on_finding)
    for file in files:
        reader.read_file(file)
    return PalSet(tuple(reader.histories.values()), tuple(reader.topics.values()))


@dataclass(frozen=True)
class _QuerySample:
    """A sample whose topics are asked."""

    name: str
    sample: _Sample
    history: History
    """All that comes before its dialogue."""
    logs: Logs | None


class _PalSetReader:
    """Collects the users and topics of several files."""

    def __init__(self, on_finding: FindingListener) -> None:
        self._on_finding = on_finding
        self.histories: dict[str, History] = {}
        """The whole record of every user, by its id."""
        self.topics: dict[str, QueryTopic] = {}
        """The topics that are asked, by their ids."""

    def read_file(self, file: Path) -> None:
        """Read the users of one file."""
        content = read_json(file)
        side_files = SideFiles(file)
        if not isinstance(content, dict):
            location = Location(self._on_finding, file.name)
            location.reject("wrong value", "expected an object with user ids")
            return

        for user, value in content.items():
            location = Location(self._on_finding, user)
            row = location.validate(_UserRow, value)
            if row is not None:
                history_id = self._unique_history_id(user, file)
                self._read_user(row, user, history_id, side_files, location)

    def _unique_history_id(self, user: str, file: Path) -> str:
        """Return the id of a user, with a suffix if an earlier file has the same user."""
        if user not in self.histories:
            return user
        suffix = "en" if file.stem.endswith("_en") else file.stem
        return f"{user}-{suffix}"

    def _read_user(
        self, row: _UserRow, user: str, history_id: str, side_files: SideFiles, location: Location
    ) -> None:
        """Read the samples of a user in their order."""
        items: list[AnyItem] = []
        previous_time: datetime | None = None
        for number, sample in enumerate((*row.history, *row.query), 1):
            name = sample.sample_id or f"sample {number}"
            sample_location = location.at(name)
            _report_time(sample.dialogue_timestamp, previous_time, sample_location)
            logs = _read_logs(sample, number, sample_location)
            if logs is not None:
                items.append(logs)

            is_query = number > len(row.history)
            if is_query and not sample.topics:
                sample_location.warn("no topics", "nothing is asked about this sample")
            elif is_query:
                # Topics are asked after the logs of their sample, and before its dialogue.
                history = History(id=history_id, items=tuple(items))
                query_sample = _QuerySample(name, sample, history, logs)
                self._read_topics(query_sample, user, side_files, location)

            dialogue = _read_dialogue(sample, number)
            if dialogue is not None:
                items.append(dialogue)
            previous_time = sample.dialogue_timestamp or previous_time
        self.histories[history_id] = History(id=history_id, items=tuple(items))

    def _read_topics(
        self, query_sample: _QuerySample, user: str, side_files: SideFiles, location: Location
    ) -> None:
        """Read the topics of a sample in the order of their names; report one that is repeated."""
        topics = query_sample.sample.topics
        time = query_sample.sample.dialogue_timestamp
        day = f"{time:%Y-%m-%d}" if time else ""
        for position, topic_name in enumerate(sorted(topics, key=natural_sort_key)):
            topics[topic_name].report_missing_parts(location.at(query_sample.name).at(topic_name))
            # Side files name what belongs to a topic by user, day, and name or position.
            topic_key = TopicKey(user, day, topic_name, position)
            query_topic = _make_query_topic(query_sample, topic_key, side_files)
            if query_topic.id in self.topics:
                problem = f"{query_topic.id} was there before; this one is passed over"
                location.warn("repeated topic", problem)
            else:
                self.topics[query_topic.id] = query_topic


def _make_query_topic(
    query_sample: _QuerySample, key: TopicKey, side_files: SideFiles
) -> QueryTopic:
    """Return one topic of a sample, together with everything that is asked or judged with.

    Args:
        query_sample: The sample in whose dialogue the user talks about the topic.
        key: The topic's name in the sample, and where the side files describe it.
        side_files: What is known of the user.
    """
    topic = query_sample.sample.topics[key.topic]
    # Everything of the user before that dialogue.
    history = query_sample.history
    topic_id = f"{query_sample.name}_{key.topic}"
    # Most names of samples begin with the user, e.g. "0000_sample26". Other names may be the same
    # for two users, so the user is put in front of them.
    if not query_sample.name.startswith(history.id):
        topic_id = f"{history.id}_{topic_id}"

    persona = side_files.persona(key, topic)
    is_chinese = re.search("[\u4e00-\u9fff]", topic.requirement) is not None
    return QueryTopic(
        id=topic_id,
        history=history,
        logs=query_sample.logs,
        topic=topic,
        evidence=_evidence_ids(persona.evidences, query_sample.logs),
        persona=persona,
        language="zh" if is_chinese else "en",
    )


def _evidence_ids(evidences: Sequence[str], logs: Logs | None) -> tuple[str, ...]:
    """Return the ids of the log entries that hold some evidence word for word, each once."""
    if logs is None:
        return ()
    ids_by_text = {turn.text: turn.id for turn in logs.turns}
    evidence_ids = [ids_by_text[text] for text in evidences if text in ids_by_text]
    return tuple(dict.fromkeys(evidence_ids))


def _report_time(time: datetime | None, previous_time: datetime | None, location: Location) -> None:
    """Report a sample without a date, or not later than the sample before it."""
    if time is None:
        problem = "dialogue_timestamp is no date such as 2024-01-12 20:30:00"
        location.warn("unreadable date", problem)
    elif previous_time is not None and time <= previous_time:
        problem = "is not later than the sample before it; kept in its place"
        location.warn("samples out of order", problem)


def _read_logs(sample: _Sample, number: int, location: Location) -> Logs | None:
    """Return the log entries before a sample's dialogue; None if there are none.

    Args:
        sample: The sample.
        number: The position of the sample among all samples of the user, from 1.
        location: Where an entry after the dialogue is reported.
    """
    end = sample.dialogue_timestamp
    turns: list[Turn] = []
    for entry_number, entry in enumerate(sample.logs, 1):
        time = entry.timestamp
        # An entry of the very minute in which the dialogue begins is not after it.
        if time and end and time.replace(second=0) > end:
            problem = f"{time} is after the dialogue; passed over"
            location.at(f"log {entry_number}").warn("log after its dialogue", problem)
        elif entry.content:
            turn_id = f"L{number}:{len(turns) + 1}"
            turns.append(Turn(id=turn_id, speaker="log", text=entry.content, time=time))
    if not turns:
        return None
    times = [turn.time for turn in turns if turn.time]
    return Logs(id=f"L{number}", time=min(times, default=None), turns=tuple(turns))


def _read_dialogue(sample: _Sample, number: int) -> Session | None:
    """Return a sample's dialogue; None if nothing is said in it.

    Args:
        sample: The sample.
        number: The position of the sample among all samples of the user, from 1.
    """
    turns: list[Turn] = []
    for exchange in sample.dialogue:
        for speaker, text in (("user", exchange.user), ("assistant", exchange.assistant)):
            if text:
                turn_id = f"D{number}:{len(turns) + 1}"
                turns.append(Turn(id=turn_id, speaker=speaker, text=text))
    if not turns:
        return None
    return Session(id=f"D{number}", time=sample.dialogue_timestamp, turns=tuple(turns))
