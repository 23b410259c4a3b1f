"""MemBench: multiple choice after what a user told, or was told (Tan et al., Findings of ACL 2025).

The genuine files are those of import-myself/Membench. Read are `MemData/FirstAgent/simple.json` and
the like (scenarios with their trajectories), the joined test files that its `load_test_data.py`
writes, the file that Memory-R2 draws from them (types with their trajectories), or a folder of any
of these. None has a licence, so none was seen: forms are taken from the released code. The sample
is our own. As in that code, the time of a question stands beside it in the prompt and in what
memories are searched with.

In files of `FirstAgent` user and assistant talk (participation), in those of `ThirdAgent` the user
alone (observation). Types whose name begins with "highlevel" are reflective, the others factual. A
list of messages is a session; one that is alone is cut into days. A step is a message, or a pair of
them. The target steps are the evidence.

Limits: noise is not drawn here, only read. The paper prints no rule for capacity. Accuracy is shown
by the size of what was said before, in doubling steps of tokens, and `capacity=N` asks every
question again as more is said, as the released code does after every message. The released recall
cuts where the memory does; here it is that of ten hits.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import dspy
from pydantic import AliasChoices, BeforeValidator, Field

from ..errors import DataError, UnknownNameError
from ..records import History, Session, Turn, estimate_tokens, format_time
from ..records.json_input import read_json
from .benchmark import Benchmark
from .dataset import Dataset, FindingListener
from .field_types import Listed, Parsed, Text, Words, read_date
from .personamem import LetterAccuracy
from .rows import Location, Row
from .scorer import Score, ScoredAnswer, Scorer
from .support import SUPPORT, Support
from .word_splitting import SQUAD

TYPES = (
    "simple",
    "conditional",
    "comparative",
    "aggregative",
    "post_processing",
    "noisy",
    "knowledge_update",
    "lowlevel_rec",
    "RecMultiSession",
    "highlevel",
    "highlevel_rec",
)
"""The types of questions, which the released files are named by."""
_REFLECTIVE_PREFIXES = ("highlevel", "emotion", "preference")

RECALL_AT = 10
"""How many hits of a search are looked at."""
_TIME = re.compile(r"\W*(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\W*\w*")
_HISTORY_TOKENS = "history tokens"


class MemBenchAccuracy(LetterAccuracy):
    """1 when the right letter is chosen.

    The table also has the accuracy by agent and level, and by the size of the past.
    """

    retrieval_depth = RECALL_AT

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        score = super().score(example, prediction)
        parts = {**score.parts, _HISTORY_TOKENS: float(example.tokens)}
        return replace(score, parts=parts)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return the accuracy by agent and level, and by how many tokens were said before.

        A failed question counts 0 for its agent and level. It has no parts, so the size of its
        history is not known here.
        """
        values_by_name: dict[str, list[float]] = {}
        for row in rows:
            # Ids begin with the agent: "first:simple:roles:1".
            agent = row.id.partition(":")[0]
            names = [f"{agent} agent, {_level(row.category)} level"]
            if row.parts:
                names.append(_size_name(row.parts.get(_HISTORY_TOKENS, 0.0)))
            for name in names:
                values_by_name.setdefault(name, []).append(row.parts.get("accuracy", 0.0))

        figures: dict[str, float] = {}
        for name, values in sorted(values_by_name.items()):
            figures[name] = sum(values) / len(values)
        return figures

    def retrieval_metrics(
        self, example: dspy.Example, ranked: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """Return the share of the target steps that the first ten hits rest on.

        Of a step that is a pair, either message will do.
        """
        if not example.steps:
            return {}

        retrieved_ids: set[str] = set()
        for sources in ranked[:RECALL_AT]:
            retrieved_ids.update(sources)
        num_found = sum(not retrieved_ids.isdisjoint(turn_ids) for turn_ids in example.steps)
        return {f"target steps@{RECALL_AT}": num_found / len(example.steps)}


def _size_name(num_tokens: float) -> str:
    """Return the name of a history's size: up to 1,000 tokens, 2,000, 4,000 and so on."""
    thousands = 1
    while 1000 * thousands < num_tokens:
        thousands *= 2
    return f"to {thousands}k tokens"


def _level(question_type: str) -> str:
    """Return "high" for a reflective type of questions, "low" for a factual one."""
    is_reflective = question_type.casefold().startswith(_REFLECTIVE_PREFIXES)
    return "high" if is_reflective else "low"


def _join_titles(value: Any) -> Any:
    """Join a list of titles; refuse a text that the released code could not make."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    if isinstance(text, str) and "[ERROR" in text:
        raise ValueError("holds [ERROR...]: the question could not be made; delete the row")
    return text


Letter = Literal["A", "B", "C", "D"]
TextOrTitles = Annotated[Text, BeforeValidator(_join_titles)]
"""A text, or a list of titles, which is joined."""


class _Note(NamedTuple):
    """A text, with where and when it was said split off."""

    text: str
    place: str
    """E.g. a town."""
    time: str


class _Speech(NamedTuple):
    """What one side says in a step."""

    side: int
    """1 for the user, 2 for the assistant."""
    speaker: str
    text: str
    time: datetime | None


class _Message(Row):
    """A step: a message, or a pair of them.

    The joined test files hold texts instead, with the place and the time at their ends.
    """

    message: Words = ""
    user: Words = Field("", validation_alias=AliasChoices("user_message", "user"))
    assistant: Words = Field(
        "", validation_alias=AliasChoices("assistant_message", "assistant", "agent")
    )
    time: Words = ""
    place: Words = ""
    # The files mark a step that states a fact with these.
    rel: Any = None
    attr: Any = None
    value: Any = None

    @property
    def is_pair(self) -> bool:
        """Return whether the step has two sides."""
        return not self.message

    def day(self) -> date | None:
        """Return the day of the step, where it can be read."""
        for speech in self.speeches():
            if speech.time:
                return speech.time.date()
        return None

    def may_hold(self, answer: str) -> bool:
        """Return whether the step is marked as a fact, or holds one of the parts of an answer."""
        is_marked = (self.rel, self.attr, self.value) != (None, None, None)
        text = " ".join(speech.text for speech in self.speeches()).casefold()
        return is_marked or any(part in text for part in answer.casefold().split(", "))

    def speeches(self) -> list[_Speech]:
        """Return what each side says; a side without words is left out."""
        texts = [("user", self.message)]
        if self.is_pair:
            texts = [("user", self.user), ("assistant", self.assistant)]

        speeches: list[_Speech] = []
        for side, (speaker, text) in enumerate(texts, 1):
            if text:
                speeches.append(self._read_speech(side, speaker, text))
        return speeches

    def _read_speech(self, side: int, speaker: str, text: str) -> _Speech:
        """Return what one side says, with its time.

        The place is appended to the words, and so is a time that cannot be read: "Hi. (place:
        Faro)". Both stand at the end of the text, or else in fields of the message.
        """
        note = _split_note(text) or _Note(text, self.place, self.time)
        time = _parse_time(note.time)

        circumstances: list[str] = []
        if note.place:
            circumstances.append(f"place: {note.place}")
        if note.time and time is None:
            circumstances.append(f"time: {note.time}")

        shown_text = note.text
        if circumstances:
            shown_text += f" ({'; '.join(circumstances)})"
        return _Speech(side, speaker, shown_text, time)

    def turns(self, session: int, step: int) -> list[Turn]:
        """Return the turns of the step: one message, or what the user and the assistant say.

        The ids number the turns of a session from 1: the step 0 of session 3 has the ids "D3:1" and
        "D3:2". The number of a side that says nothing is not used.

        Args:
            session: The number of the session, from 1.
            step: The position of the step in its session, from 0.
        """
        sides_per_step = 2 if self.is_pair else 1
        num_earlier_turns = sides_per_step * step
        turns: list[Turn] = []
        for speech in self.speeches():
            turn = Turn(
                # `side` is 1 for the user and 2 for the assistant.
                id=f"D{session}:{num_earlier_turns + speech.side}",
                speaker=speech.speaker,
                text=speech.text,
                time=speech.time,
            )
            turns.append(turn)
        return turns


def _split_note(text: str) -> _Note | None:
    """Split the place and the time from the end of a text: "Hi. (place: Faro; time'2024-10-01')".

    Returns:
        The parts, or None for a text without them.
    """
    speech, _, note = text.rpartition(" (place: ")
    if not speech or not note.endswith(")") or "; time" not in note:
        return None
    place, _, time = note.removesuffix(")").rpartition("; time")
    return _Note(speech, place, time)


def _parse_time(text: str) -> datetime | None:
    """Return the moment that `'2024-10-01 08:00' Tuesday` means; None where it is none."""
    match = _TIME.fullmatch(text)
    return read_date(match[1]) if match else None


class _Question(Row):
    """The question of a trajectory."""

    question: TextOrTitles
    answer: TextOrTitles
    choices: Annotated[dict[Letter, TextOrTitles], Field(min_length=4)]
    ground_truth: Letter
    target_step_id: Listed[int | tuple[int, int]] = ()
    """Numbers of steps, or pairs of a step and its session, from 0."""
    time: Words = ""


def _message_of_text(value: Any) -> Any:
    """Return a plain text as a message."""
    return {"message": value} if isinstance(value, str) else value


def _list_of_sessions(value: Any) -> Any:
    """Return a plain list of messages as a list of one session."""
    is_session = isinstance(value, list) and not any(isinstance(part, list) for part in value)
    return [value] if is_session else value


MessageOrText = Annotated[_Message, BeforeValidator(_message_of_text)]


class _Trajectory(Row):
    """What was said, and a question about it."""

    QA: Annotated[_Question, Parsed]
    message_list: Annotated[
        tuple[tuple[MessageOrText, ...], ...], BeforeValidator(_list_of_sessions)
    ]

    @property
    def steps(self) -> list[_Message]:
        """Return the steps of all sessions."""
        steps: list[_Message] = []
        for messages in self.message_list:
            steps.extend(messages)
        return steps

    def target_steps(self, restarts_per_session: bool) -> list[int]:
        """Return the target steps as indexes in `steps`, without those that do not exist.

        A target of the file is a step, or a pair of a step and its session. The files disagree
        about the step of a pair.

        Args:
            restarts_per_session: Whether the steps of pairs are counted from 0 in each session,
                and not through all sessions.
        """
        indexes: list[int] = []
        for target in self.QA.target_step_id:
            if isinstance(target, int):
                index = target
                possible_indexes = range(len(self.steps))
            else:
                index, session = target
                possible_indexes = self._indexes_of_session(session)
                if restarts_per_session:
                    index += possible_indexes.start
            if index in possible_indexes:
                indexes.append(index)
        return indexes

    def _indexes_of_session(self, session: int) -> range:
        """Return the indexes in `steps` of the steps of a session; none if there is no session."""
        if not 0 <= session < len(self.message_list):
            return range(0)
        start = sum(len(messages) for messages in self.message_list[:session])
        return range(start, start + len(self.message_list[session]))


class MemBenchSupport(Support):
    """Support by SQuAD's words of the right choice."""

    def __init__(self) -> None:
        super().__init__(SQUAD)

    def gold(self, example: dspy.Example) -> str:
        """Return the text of the right choice, without its letter."""
        letter = example.answer
        options: list[str] = example.options
        right_option = next(option for option in options if option.startswith(letter))
        return right_option.removeprefix(letter).strip()


class MemBench(Benchmark):
    """MemBench: the share of questions answered with the right letter."""

    name = "membench"
    task = "multiple-choice"
    sample = "membench"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "accuracy": MemBenchAccuracy,
        SUPPORT: MemBenchSupport,
    }

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        agent: Literal["first", "third"] | None = None,
        level: Literal["low", "high"] | None = None,
        types: str | None = None,
        scenarios: str | None = None,
        capacity: Annotated[int, Field(strict=True, ge=1)] | None = None,
    ) -> Dataset:
        """Read a file, or those of a folder.

        Args:
            path: A released file, a joined one, Memory-R2's, or a folder of such files or of both
                agents' folders.
            on_finding: Receives what is wrong in them.
            agent: "first" (participation) or "third" (observation) alone.
            level: "low" (factual) or "high" (reflective) alone.
            types: Types of questions to keep, with commas between them.
            scenarios: Scenarios to keep, likewise.
            capacity: Ask after the last target step and again after every so many steps, each time
                about what was said so far. At the end alone when None.
        """
        files = _json_files(path)
        examples: dict[str, dspy.Example] = {}
        for file in files or [path]:
            name = file.name if file == path else file.relative_to(path).as_posix()
            location = Location(on_finding, name)
            for example in _read_file(file, location, capacity):
                if example.id in examples:
                    problem = f"{example.id!r} is in another file too; name one of them"
                    # Reporting does not raise: reading goes on, to report all problems of the data.
                    location.at(example.category).reject("duplicate id", problem)
                examples[example.id] = example

        selection = list(examples.values())
        wanted_names = {
            "agent": agent,
            "level": level,
            "category": types,
            "scenario": scenarios,
        }
        for field, names in wanted_names.items():
            if names:
                selection = _keep_named(selection, field, names)
        histories = tuple(example.history for example in selection)
        return Dataset(histories, tuple(selection), tuple(files))


def _json_files(path: Path) -> list[Path]:
    """Return the files of a folder, or of its agents' folders; none if the path is a file."""
    if not path.is_dir():
        return []
    return sorted(path.glob("*.json")) or sorted(path.glob("*Agent/*.json"))


def _keep_named(examples: Sequence[dspy.Example], field: str, names: str) -> list[dspy.Example]:
    """Return the examples that have one of the wanted names in a field.

    Args:
        examples: The examples to choose from.
        field: The field of an example to look at.
        names: The wanted names, separated by commas.

    Raises:
        UnknownNameError: One of the names is in no example.
    """
    if not examples:
        return []

    wanted_names = {name.strip() for name in names.split(",")}
    known_names = {example[field] for example in examples}
    for name in sorted(wanted_names):
        if name not in known_names:
            raise UnknownNameError(f"{field} of these questions", name, known_names)
    return [example for example in examples if example[field] in wanted_names]


def _read_file(file: Path, location: Location, capacity: int | None) -> Iterator[dspy.Example]:
    """Yield the examples of a file, type by type; report what is wrong in it."""
    for question_type, row_lists in _read_row_lists(file).items():
        cases = _read_cases(row_lists, location)
        restarts_per_session = _steps_restart_per_session(cases, location.at(question_type))
        for case in cases:
            yield from _read_examples(case, restarts_per_session, capacity)


class _RowList(NamedTuple):
    """The trajectories of a scenario and a type of questions, before they are read."""

    question_type: str
    scenario: str
    """"" where the file names none."""
    values: Any


@dataclass(frozen=True)
class _Case:
    """A trajectory that was read."""

    row: _Trajectory
    location: Location
    question_type: str
    scenario: str
    number: int
    """Its position in the list of its scenario, from 1."""

    @cached_property
    def agent(self) -> str:
        """Return "first" where user and assistant talk, "third" where the user is alone."""
        has_pairs = any(step.user or step.assistant for step in self.row.steps)
        return "first" if has_pairs else "third"

    @property
    def id(self) -> str:
        """Return the id of its question."""
        parts = [self.agent, self.question_type, self.scenario, str(self.number)]
        return ":".join(part for part in parts if part)


def _read_row_lists(file: Path) -> dict[str, list[_RowList]]:
    """Return the lists of trajectories of a file by the type of their questions.

    There are three forms of files; `[...]` is a list of trajectories:

        {"simple": {"roles": [...]}}    types with scenarios
        {"simple": [...]}               types
        {"roles": [...]}                scenarios, in a file named by a type, such as simple.json

    Raises:
        DataError: The content of the file is no object.
    """
    content = read_json(file)
    if not isinstance(content, dict):
        raise DataError(
            f"{file}: expected an object of scenarios or types with lists of trajectories"
        )

    row_lists: list[_RowList] = []
    for key, value in content.items():
        if isinstance(value, dict):
            for scenario, values in value.items():
                row_lists.append(_RowList(key, scenario, values))
        elif file.stem in TYPES:
            row_lists.append(_RowList(file.stem, key, value))
        else:
            row_lists.append(_RowList(key, "", value))

    row_lists_by_type: dict[str, list[_RowList]] = {}
    for row_list in row_lists:
        row_lists_by_type.setdefault(row_list.question_type, []).append(row_list)
    return row_lists_by_type


def _read_cases(row_lists: Iterable[_RowList], file_location: Location) -> list[_Case]:
    """Return the trajectories of one type of questions; report those that cannot be read."""
    cases: list[_Case] = []
    for question_type, scenario, values in row_lists:
        where = ", ".join(name for name in (question_type, scenario) if name)
        location = file_location.at(where)
        if not isinstance(values, list):
            problem = f"is {reprlib.repr(values)}, expected a list of trajectories"
            location.reject("wrong value", problem)
            continue
        for number, value in enumerate(values, 1):
            row_location = location.at(f"trajectory {number}")
            row = row_location.validate(_Trajectory, value)
            if row is not None:
                cases.append(_Case(row, row_location, question_type, scenario, number))
    return cases


class _ConventionFit(NamedTuple):
    """How well a way of counting steps fits the target steps of a file.

    Of two, the greater one fits better: the first field decides, then the second.
    """

    num_fitting: int
    """Target steps that are marked as facts or hold the answer."""
    num_existing: int
    """Target steps that exist."""


def _steps_restart_per_session(cases: Sequence[_Case], location: Location) -> bool:
    """Return whether target steps are counted from 0 in each session.

    The files do not say whether they are, or are counted through all sessions. So both ways are
    tried on all questions of a type. The way by which more target steps are marked as facts or hold
    the answer is right. If these are equally many, it is the way by which more target steps exist.
    If these are equally many, too, steps are taken to be counted through all sessions.
    """
    through_all = _measure_convention(cases, restarts_per_session=False)
    per_session = _measure_convention(cases, restarts_per_session=True)
    if through_all >= per_session:
        return False

    problem = (
        f"target steps are counted in their sessions: {per_session.num_fitting} of "
        f"{per_session.num_existing} hold what is asked, {through_all.num_fitting} of "
        f"{through_all.num_existing} if over all sessions"
    )
    location.warn("step convention", problem)
    return True


def _measure_convention(cases: Sequence[_Case], restarts_per_session: bool) -> _ConventionFit:
    """Count how many target steps exist and fit, if steps are counted in one of the two ways."""
    num_fitting = 0
    num_existing = 0
    for case in cases:
        steps = case.row.steps
        for index in case.row.target_steps(restarts_per_session):
            num_existing += 1
            if steps[index].may_hold(case.row.QA.answer):
                num_fitting += 1
    return _ConventionFit(num_fitting, num_existing)


class _Past(NamedTuple):
    """What was said before a question."""

    sessions: list[Session]
    """The sessions with words."""
    steps: list[list[Turn]]
    """The turns of every step; none of a step without words."""


def _read_past(case: _Case) -> _Past:
    """Return what was said in a trajectory; report messages without words."""
    past = _Past(sessions=[], steps=[])
    for number, messages in enumerate(_messages_by_session(case.row), 1):
        turns: list[Turn] = []
        has_empty_message = False
        for step, message in enumerate(messages):
            turns_of_step = message.turns(number, step)
            # A step without turns stays in the list, since targets count it.
            past.steps.append(turns_of_step)
            turns.extend(turns_of_step)
            if not turns_of_step:
                has_empty_message = True

        if turns:
            session = Session(id=f"D{number}", time=turns[0].time, turns=tuple(turns))
            past.sessions.append(session)
        if not turns or has_empty_message:
            problem = "has no words, or a message of it has none; passed over"
            case.location.at(f"session {number}").warn("empty message", problem)
    return past


def _messages_by_session(row: _Trajectory) -> list[list[_Message]]:
    """Return the messages of each session.

    A trajectory that is a single list of messages names no sessions. Each day of it is one.
    """
    if len(row.message_list) == 1:
        (messages,) = row.message_list
        return [list(messages_of_day) for _, messages_of_day in groupby(messages, _Message.day)]
    return [list(messages) for messages in row.message_list]


def _read_examples(
    case: _Case, restarts_per_session: bool, capacity: int | None
) -> list[dspy.Example]:
    """Return the examples of a trajectory; report what is wrong in it.

    Args:
        case: The trajectory.
        restarts_per_session: As in `_Trajectory.target_steps`.
        capacity: None asks the question once, after the whole trajectory. A number N asks it after
            the last target step and again after every N further steps: an example for each.
    """
    past = _read_past(case)
    if not past.sessions:
        case.location.reject("no turns", "holds no message with words")
        return []

    question = case.row.QA
    targets = case.row.target_steps(restarts_per_session)
    if len(targets) < len(question.target_step_id):
        problem = "names a step that is not there; dropped"
        case.location.field("QA.target_step_id").warn("dangling evidence", problem)
    if question.answer != question.choices[question.ground_truth]:
        problem = "is not the choice of ground_truth, which is taken as the right one"
        case.location.field("QA.answer").warn("other answer", problem)

    if capacity is None:
        return [_make_example(case, case.id, past, targets)]
    examples: list[dspy.Example] = []
    for num_steps in _capacity_steps(past, targets, capacity):
        begun_past = _first_steps(past, num_steps)
        examples.append(_make_example(case, f"{case.id}@{num_steps}", begun_past, targets))
    return examples


def _capacity_steps(past: _Past, targets: Sequence[int], capacity: int) -> list[int]:
    """Return after how many steps a question is asked, ascending; the last is after all steps."""
    num_steps = len(past.steps)
    moments = {num_steps}
    if targets:
        moments.update(range(targets[-1] + 1, num_steps, capacity))
    # A question is not asked before anything was said with words.
    return [moment for moment in sorted(moments) if any(past.steps[:moment])]


def _first_steps(past: _Past, num_steps: int) -> _Past:
    """Return what was said in the first steps."""
    steps = past.steps[:num_steps]
    turn_ids: set[str] = set()
    for turns in steps:
        turn_ids.update(turn.id for turn in turns)

    sessions: list[Session] = []
    for session in past.sessions:
        begun_session = session.select_turns(turn_ids)
        if begun_session.turns:
            sessions.append(begun_session)
    return _Past(sessions, steps)


def _make_example(
    case: _Case, example_id: str, past: _Past, targets: Sequence[int]
) -> dspy.Example:
    """Return the example of a question.

    Args:
        case: The trajectory.
        example_id: The example's id.
        past: What was said so far.
        targets: Numbers of the target steps; those to come are left out.
    """
    question = case.row.QA
    options = [f"({letter.lower()}) {text}" for letter, text in sorted(question.choices.items())]
    asked_at = _parse_time(question.time)

    num_tokens = 0
    for turns in past.steps:
        num_tokens += sum(estimate_tokens(turn.text) for turn in turns)

    evidence_steps: list[tuple[str, ...]] = []
    evidence: list[str] = []
    for number in dict.fromkeys(targets):
        if number < len(past.steps) and past.steps[number]:
            turn_ids = tuple(turn.id for turn in past.steps[number])
            evidence_steps.append(turn_ids)
            evidence.extend(turn_ids)

    return dspy.Example(
        id=example_id,
        history=History(id=case.id, items=tuple(past.sessions)),
        question=question.question,
        options=options,
        date=format_time(asked_at) if asked_at else question.time,
        searched_with_date=True,
        evidence_ids=tuple(evidence),
        answer=f"({question.ground_truth.lower()})",
        category=case.question_type,
        scenario=case.scenario,
        agent=case.agent,
        level=_level(case.question_type),
        tokens=num_tokens,
        steps=evidence_steps,
        evidence=tuple(evidence),
    ).with_inputs("history", "question", "options", "date", "searched_with_date", "evidence_ids")
