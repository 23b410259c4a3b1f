"""Reads BEAM's chats into sessions, and its probing questions into examples.

A session is one turn of the file (a main question and what follows it), with the date of its batch.
The order is the file's own, since plans of 10M overlap in time. The generator ends messages
with a note of their position in the plan (" ->-> 3,12"), which is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args

import dspy
from pydantic import AliasChoices, Field, RootModel, model_validator

from ...records import History, Session, Turn
from ..field_types import MONTHS, Text, Verbatim, Words
from ..rows import Location, Row

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
ABILITIES: tuple[Ability, ...] = get_args(Ability)
ABSTENTION = "abstention"
EVENT_ORDERING = "event_ordering"

_NOTE_AT_END = re.compile(r"\s*->->([^\n]*)\s*\Z")
_POSITION_IN_PLAN = re.compile(r"\s*\d+\s*,\s*(N/A|\d+(,\s*\d+)*)?\)?\s*")
_LEAKED_INSTRUCTION = "Please respond only in English"
_PLAN_NAME = re.compile(r"plan-\d{1,3}", re.ASCII)
_DATE = re.compile(r"(?P<month>[a-z]+)-(?P<day>\d{1,2})-(?P<year>\d{4})", re.ASCII)


class _Message(Row):
    """A message of a chat."""

    role: Literal["user", "assistant"]
    id: int
    content: Verbatim
    time_anchor: Words = ""
    """The date of the batch, if the message is its first."""


class _Batch(Row):
    """A part of a chat: turns, each of which is a list of messages."""

    turns: tuple[tuple[_Message, ...], ...]
    time_anchor: Words = ""

    @model_validator(mode="before")
    @classmethod
    def _cut_into_turns(cls, value: Any) -> Any:
        """Cut the hub's batches, flat lists of messages, before each main question."""
        if not isinstance(value, list):
            return value
        turns: list[list[Any]] = []
        for message in value:
            is_main_question = (
                isinstance(message, Mapping) and message.get("question_type") == "main_question"
            )
            if is_main_question or not turns:
                turns.append([])
            turns[-1].append(message)
        return {"turns": turns}


class _Question(Row):
    """A question with its rubric."""

    question: Text
    rubric: Annotated[tuple[Text, ...], Field(min_length=1)]
    answer: Words = Field(
        "",
        validation_alias=AliasChoices("answer", "ideal_answer", "ideal_response", "ideal_summary"),
    )
    source_chat_ids: Any = None
    """Ids of the messages that hold the answer, in lists or objects of many forms."""
    total_mentions: Any = None
    ordering_tested: Any = None


class Questions(RootModel[dict[Ability, tuple[_Question, ...]]]):
    """The questions of a chat by ability."""


@dataclass(frozen=True)
class ChatSource:
    """A chat before it is read."""

    id: str
    location: Location
    entries: Iterable[Any]
    """Batches, or objects of plans with batches. They can be read once."""
    questions: Questions | None
    """None if they could not be read, which was reported."""


@dataclass(frozen=True)
class Chat:
    """A chat that was read."""

    history: History
    turn_ids: Mapping[int, str]
    """The turn of each message, by the id that evidence names it with."""


def parse_date(text: str) -> datetime | None:
    """Return the day of one of BEAM's dates, `March-15-2024`, in any locale; None for others."""
    match = _DATE.fullmatch(text.strip().lower())
    if match is None:
        return None
    try:
        month = MONTHS.index(match["month"]) + 1
        return datetime(int(match["year"]), month, int(match["day"]))
    except ValueError:
        return None


def flattened(value: Any) -> Iterator[Any]:
    """Yield the values in lists and objects inside one another, in order; null is left out."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from flattened(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from flattened(part)
    elif value is not None:
        yield value


def read_chat(source: ChatSource) -> Chat:
    """Read a chat entry by entry; report what is odd in it.

    A chat without turns is reported too and returned with an empty history.
    """
    reader = _ChatReader()
    for number, entry in enumerate(source.entries, 1):
        reader.read_entry(entry, source.location.at(f"entry {number}"))

    if not reader.sessions:
        source.location.reject("no turns", "holds no turn with words")
    history = History(id=source.id, items=tuple(reader.sessions))
    return Chat(history, reader.turn_ids)


class _ChatReader:
    """The sessions of a chat so far."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.turn_ids: dict[int, str] = {}
        """The turn of each message, by its id as evidence counts it."""
        self._time: datetime | None = None
        """The date of the last batch that has one."""

    def read_entry(self, entry: Any, location: Location) -> None:
        """Add the sessions of an entry of the file.

        An entry is a batch, or, in chats of 10M tokens, an object with the batches of some plans:
        `{"plan-1": [BATCH, ...], "plan-2": null}`.
        """
        if not _is_plans(entry):
            batch = location.validate(_Batch, entry)
            if batch is not None:
                self._add_batch(batch, location)
            return

        for plan, batches in entry.items():
            # On the hub every entry names all plans, but has the batches of some only. Those of a
            # plan that is null here stand in another entry.
            if batches is None:
                continue
            if not isinstance(batches, list):
                location.field(plan).reject("wrong value", "is no list of batches")
                continue
            self._add_plan(plan, batches, location)

    def _add_plan(self, plan: str, batches: list[Any], location: Location) -> None:
        """Add the batches of a plan."""
        id_offset: int | None = None
        for number, value in enumerate(batches):
            batch_location = location.field(f"{plan}.{number}")
            batch = batch_location.validate(_Batch, value)
            if batch is None:
                continue
            # The first batch that can be read shows how the plan numbers its messages.
            if id_offset is None:
                id_offset = self._id_offset(batch)
            self._add_batch(batch, batch_location, id_offset)

    def _id_offset(self, first_batch: _Batch) -> int:
        """Return what to add to the message ids of a plan, so that they match the evidence.

        Evidence numbers the messages of all plans in one sequence. Some files do so too. Others
        number the messages of each plan from 0, so the messages of earlier plans must be added.

        Args:
            first_batch: The first batch of the plan.
        """
        num_earlier_messages = len(self.turn_ids)
        messages = [message for turn in first_batch.turns for message in turn]
        if not messages:
            return num_earlier_messages

        # In one sequence this id would be that of an earlier message.
        starts_anew = messages[0].id < num_earlier_messages
        return num_earlier_messages if starts_anew else 0

    def _add_batch(self, batch: _Batch, location: Location, id_offset: int = 0) -> None:
        """Add the turns of a batch as sessions.

        Args:
            batch: The batch.
            location: Where it stands.
            id_offset: What is added to the ids of its messages, see `_id_offset`.
        """
        self._read_time(batch, location)
        for messages in batch.turns:
            session_id = f"D{len(self.sessions) + 1}"
            turns: list[Turn] = []
            for number, message in enumerate(messages, 1):
                message_location = location.at(f"message {message.id}")
                turn = _read_turn(f"{session_id}:{number}", message, message_location)
                turns.append(turn)

                message_id = message.id + id_offset
                if message_id in self.turn_ids:
                    problem = "was there before; evidence with this id means the first message"
                    message_location.warn("repeated message id", problem)
                else:
                    self.turn_ids[message_id] = turn.id
            if turns:
                self.sessions.append(Session(id=session_id, time=self._time, turns=tuple(turns)))

    def _read_time(self, batch: _Batch, location: Location) -> None:
        """Take over the date of a batch; report one that is missing, malformed or out of order."""
        text = _date_text(batch)
        time = parse_date(text)
        if time is None:
            remedy = "the batch keeps the date of the one before it"
            if text:
                problem = f"{text!r} is not like 'March-15-2024'; {remedy}"
                location.warn("malformed date", problem)
            else:
                location.warn("batch without date", remedy)
            return

        if self._time is not None and time < self._time:
            problem = f"{text} comes after a later date; the order stays"
            location.warn("dates out of order", problem)
        self._time = time


def _is_plans(entry: Any) -> bool:
    """Return whether an entry is an object of plans, "plan-1" and so on, and not a batch."""
    if not isinstance(entry, dict) or not entry:
        return False
    return all(_PLAN_NAME.fullmatch(name) for name in entry)


def _date_text(batch: _Batch) -> str:
    """Return the date of a batch as the file writes it: that of a message, or else its own."""
    for messages in batch.turns:
        for message in messages:
            if message.time_anchor:
                return message.time_anchor
    return batch.time_anchor


def _read_turn(turn_id: str, message: _Message, location: Location) -> Turn:
    """Return a message as a turn; report what is odd in it.

    The program that generated the data ended a user's message with a note of its position in the
    plan: "I moved to Faro. ->-> 3,12". The note is left out.
    """
    text = message.content
    note = _NOTE_AT_END.search(text)
    if note:
        text = text[: note.start()]
        if message.role == "assistant":
            location.warn("arrow of an assistant", "a note of the generator ends it; left out")
        elif not _POSITION_IN_PLAN.fullmatch(note[1]):
            location.warn("odd arrow", f"{note[1][:80]!r} is no place in the plan; left out")

    if "->->" in text:
        problem = "a note of the generator is inside the message; it stays"
        location.warn("arrow inside", problem)
    if _LEAKED_INSTRUCTION in text:
        location.warn("leaked instruction", f"holds {_LEAKED_INSTRUCTION!r}; it stays")
    return Turn(id=turn_id, speaker=message.role, text=text)


def read_questions(source: ChatSource, chat: Chat) -> list[dspy.Example]:
    """Return an example for each question about a chat, and report what is odd in the file.

    Every question is asked after the whole chat, so its history is the chat.
    """
    if source.questions is None:
        return []

    examples: list[dspy.Example] = []
    for ability in ABILITIES:
        rows = source.questions.root.get(ability, ())
        if not rows:
            source.location.warn("missing ability", f"has no question of {ability}")
        for number, row in enumerate(rows):
            example_id = f"{source.id}:{ability}:{number}"
            evidence: tuple[str, ...] = ()
            # A question of ABSTENTION has no answer in the chat. The file may name messages as its
            # evidence all the same, and these are ignored.
            if ability != ABSTENTION:
                location = Location(source.location.on_finding, example_id)
                evidence = _read_evidence(row, chat, location)

            # Some questions have a rubric and no gold answer. Answers are scored by the rubric.
            gold_answer = row.answer or "\n".join(row.rubric)
            example = dspy.Example(
                id=example_id,
                history=chat.history,
                question=row.question,
                evidence_ids=evidence,
                answer=gold_answer,
                category=ability,
                evidence=evidence,
                rubric=row.rubric,
            )
            examples.append(example.with_inputs("history", "question", "evidence_ids"))
    return examples


def _read_evidence(row: _Question, chat: Chat, location: Location) -> tuple[str, ...]:
    """Return the turns that a question names as its evidence; report what is odd in them."""
    _check_rubric_length(row, location)

    message_ids = _read_message_ids(row.source_chat_ids, location)
    turn_ids = [chat.turn_ids[name] for name in message_ids if name in chat.turn_ids]
    if len(turn_ids) < len(message_ids):
        location.warn("dangling evidence", "names a message that is not there; passed over")
    if not turn_ids:
        location.warn("empty evidence", "names no message; the question has no recall")
    return tuple(dict.fromkeys(turn_ids))


def _check_rubric_length(row: _Question, location: Location) -> None:
    """Report a rubric that has more or fewer items than the question says.

    Questions about the order of events say how many events there are (`total_mentions`), and list
    them (`ordering_tested`). The rubric should have one item for each event.
    """
    expected_lengths: list[int] = []
    # The fields are not validated, since a wrong one is no reason to refuse the question.
    if isinstance(row.total_mentions, int):
        expected_lengths.append(row.total_mentions)
    if isinstance(row.ordering_tested, list):
        expected_lengths.append(len(row.ordering_tested))

    if any(length != len(row.rubric) for length in expected_lengths):
        problem = "differs from the number of events in the question; the rubric is scored as it is"
        location.warn("length of the rubric", problem)


def _read_message_ids(value: Any, location: Location) -> list[int]:
    """Return the ids of messages that a question names as evidence; report odd forms.

    The ids stand in a list, e.g. `[4, 10]`, or in an object whose parts are the two statements that
    a question is about, e.g. `{"original_info": [4], "updated_info": [10]}`.
    """
    if isinstance(value, list) and any(isinstance(part, list) for part in value):
        location.warn("nested evidence", "holds lists among its ids; they are put together")
    if isinstance(value, dict) and any(value.values()) and not all(value.values()):
        location.warn("half of the evidence", "one of its two statements names no message")

    named_ids = list(flattened(value))
    unique_ids = list(dict.fromkeys(named_ids))
    if len(unique_ids) < len(named_ids):
        location.warn("repeated evidence", "names a message twice; it counts once")

    message_ids: list[int] = []
    for message_id in unique_ids:
        if isinstance(message_id, int) and not isinstance(message_id, bool):
            message_ids.append(message_id)
    if len(message_ids) < len(unique_ids):
        location.warn("malformed evidence", "holds what is no id; passed over")
    return message_ids
