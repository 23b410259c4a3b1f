"""MemBench: multiple-choice questions after what a user told, or was told, one each (Tan et al., Findings of ACL 2025).

The genuine files are those of import-myself/Membench: `MemData/FirstAgent/simple.json` and the like (scenarios with
their trajectories), the joined test files that its `load_test_data.py` writes, and the one that Memory-R2 draws from
them (categories with their trajectories); or a folder of any of these. None has a licence, so none was seen: forms are
taken from the released code. The sample is our own. As in that code, the time of a question stands beside it in the
prompt and in what memories are searched with.

In files of `FirstAgent` user and assistant talk (participation), in those of `ThirdAgent` the user alone (observation).
Types whose name begins with "highlevel" are reflective, the others factual. A list of messages is a session; one that
is alone is cut into days. A step is a message, or a pair of them; the target steps are the evidence.

Limits: noise is not drawn here, only read. The paper prints no rule for capacity: accuracy is told by the size of what
was said before, in doubling steps of tokens, and `capacity=N` asks every question again as more is said, as the
released code does after every message. The released recall cuts where the memory does; here it is that of ten hits.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import dspy
from pydantic import AliasChoices, BeforeValidator, Field

from ..errors import DataError, UnknownNameError
from ..records import History, Session, Turn, estimate_tokens, format_time
from ..records.json_input import read_json
from .benchmark import Benchmark
from .dataset import Dataset, FindingListener
from .personamem import LetterAccuracy
from .field_types import Listed, Parsed, Text, Words, read_date
from .rows import Location, Row
from .scorer import Score, ScoredAnswer, Scorer

TYPES = (
    *("simple", "conditional", "comparative", "aggregative", "post_processing", "noisy", "knowledge_update"),
    *("lowlevel_rec", "RecMultiSession", "highlevel", "highlevel_rec"),
)
"""The types of questions, which the released files are named by."""
RECALL_AT = 10
_TIME = re.compile(r"\W*(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\W*\w*")


class MemBenchAccuracy(LetterAccuracy):
    """1 when the right letter is chosen; in all also by agent and level, and by the size of the past."""

    retrieval_depth = RECALL_AT

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        found = super().score(example, prediction)
        return replace(found, parts={**found.parts, "history tokens": float(example.tokens)})

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Accuracy by agent and level, and of pasts of so many tokens; of a failed question the size is not known."""
        found: dict[str, list[float]] = {}
        for row in rows:
            names, thousands = [f"{row.id.partition(':')[0]} agent, {_level(row.category)} level"], 1
            while 1000 * thousands < row.parts.get("history tokens", 0.0):
                thousands *= 2
            names += [f"to {thousands}k tokens"] if row.parts else []
            for name in names:
                found.setdefault(name, []).append(row.parts.get("accuracy", 0.0))
        return {name: sum(values) / len(values) for name, values in sorted(found.items())}

    def retrieval_metrics(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> dict[str, float]:
        """The share of the target steps that the first ten hits rest on; of a pair either message will do."""
        if not example.steps:
            return {}
        hits = {id for sources in ranked[:RECALL_AT] for id in sources}
        found = sum(not hits.isdisjoint(ids) for ids in example.steps)
        return {f"target steps@{RECALL_AT}": found / len(example.steps)}


def _text(value: Any) -> Any:
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    if isinstance(text, str) and "[ERROR" in text:
        raise ValueError("holds [ERROR...]: the question could not be made; delete the row")
    return text


Letter = Literal["A", "B", "C", "D"]
Asked = Annotated[Text, BeforeValidator(_text)]
"""A text, or a list of titles, which is joined."""


class _Message(Row):
    """A step: a message, or a pair of them. What was read by the released code is text with place and time in it."""

    message: Words = ""
    user: Words = Field("", validation_alias=AliasChoices("user_message", "user"))
    assistant: Words = Field("", validation_alias=AliasChoices("assistant_message", "assistant", "agent"))
    time: Words = ""
    place: Words = ""
    rel: Any = None
    attr: Any = None
    value: Any = None

    def day(self) -> list[date]:
        """The day of it, where that can be read."""
        return [turn.time.date() for turn in self.turns(1, 0) if turn.time][:1]

    def bears(self, answer: str) -> bool:
        """Whether it is marked as a fact, or holds the answer, or of a list a part."""
        marked = (self.rel, self.attr, self.value) != (None, None, None)
        said = " ".join(turn.text for turn in self.turns(1, 0)).casefold()
        return marked or any(part in said for part in answer.casefold().split(", "))

    def turns(self, session: int, number: int) -> list[Turn]:
        """What was said, each with its place and its time; a side without words leaves a gap in the ids."""
        sides = (("user", self.message),) if self.message else (("user", self.user), ("assistant", self.assistant))
        found = []
        for side, (speaker, text) in enumerate(sides, 1):
            place, time = self.place, self.time
            before, _, about = text.rpartition(" (place: ")
            if before and about.endswith(")") and "; time" in about:
                text, (place, _, time) = before, about[:-1].rpartition("; time")
            moment = _moment(time)
            told = {"place": place, "time": "" if moment else time}
            about = "; ".join(f"{name}: {value}" for name, value in told.items() if value)
            if text:
                id = f"D{session}:{len(sides) * number + side}"
                found.append(Turn(id=id, speaker=speaker, text=f"{text} ({about})" if about else text, time=moment))
        return found


class _Question(Row):
    question: Asked
    answer: Asked
    choices: Annotated[dict[Letter, Asked], Field(min_length=4)]
    ground_truth: Letter
    target_step_id: Listed[int | tuple[int, int]] = ()
    time: Words = ""


def _as_message(value: Any) -> Any:
    return {"message": value} if isinstance(value, str) else value


def _as_lists(value: Any) -> Any:
    alone = isinstance(value, list) and not any(isinstance(part, list) for part in value)
    return [value] if alone else value


class _Trajectory(Row):
    QA: Annotated[_Question, Parsed]
    message_list: Annotated[
        tuple[tuple[Annotated[_Message, BeforeValidator(_as_message)], ...], ...], BeforeValidator(_as_lists)
    ]

    @property
    def steps(self) -> list[_Message]:
        return [message for messages in self.message_list for message in messages]

    def targets(self, inside: bool) -> list[int]:
        """Places of the target steps that are there; `inside`: steps are counted in the session named with them."""
        found: list[int] = []
        starts = accumulate(map(len, self.message_list), initial=0)
        sessions = [range(first, end) for first, end in pairwise(starts)]
        for target in self.QA.target_step_id:
            step, within = target, range(len(self.steps))
            if not isinstance(step, int):
                step, session = step
                within = sessions[session] if 0 <= session < len(sessions) else range(0)
                step += within.start if inside else 0
            if step in within:
                found.append(step)
        return found


class MemBench(Benchmark):
    """MemBench: the share of questions answered with the right letter."""

    name = "membench"
    task = "multiple-choice"
    sample = "membench"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": MemBenchAccuracy}

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
        """Reads a file, or those of a folder.

        Args:
            path: A released file, a joined one, Memory-R2's, or a folder of such files or of both agents' folders.
            on_finding: What findings are told to.
            agent: "first" (participation) or "third" (observation) alone.
            level: "low" (factual) or "high" (reflective) alone.
            types: Types of questions to keep, with commas between them.
            scenarios: Scenarios to keep, likewise.
            capacity: Asks after the last target step and again after every so many steps, each time of what was said so
                far; at the end alone when None.
        """
        examples: dict[str, dspy.Example] = {}
        files = (sorted(path.glob("*.json")) or sorted(path.glob("*Agent/*.json"))) if path.is_dir() else []
        for file in files or [path]:
            place = Location(on_finding, file.name if file == path else file.relative_to(path).as_posix())
            for kind, of_kind in groupby(_cases(file, place), lambda case: case.labels["category"]):
                cases = list(of_kind)
                inside = _counted_inside(cases, place.at(kind))
                for example in (made for case in cases for made in _examples(case, inside, capacity)):
                    if example.id in examples:
                        place.at(kind).reject(
                            "duplicate id", f"{example.id!r} is in another file too; name one of them"
                        )
                    examples[example.id] = example
        kept = list(examples.values())
        for field, names in {"agent": agent, "level": level, "category": types, "scenario": scenarios}.items():
            kept = _only(kept, field, names) if names else kept
        return Dataset(tuple(example.history for example in kept), tuple(kept), tuple(files))


def _only(examples: Sequence[dspy.Example], field: str, names: str) -> list[dspy.Example]:
    """The examples with one of the names, between which are commas."""
    wanted, known = {name.strip() for name in names.split(",")}, {example[field] for example in examples}
    for name in sorted(wanted - known if examples else ()):
        raise UnknownNameError(f"{field} of these questions", name, known)
    return [example for example in examples if example[field] in wanted]


@dataclass(frozen=True)
class _Case:
    """A trajectory that was read, and what its examples are labelled with."""

    id: str
    labels: Mapping[str, str]
    place: Location
    row: _Trajectory


def _level(kind: str) -> str:
    return "high" if kind.casefold().startswith(("highlevel", "emotion", "preference")) else "low"


def _cases(file: Path, within: Location) -> Iterator[_Case]:
    raw = read_json(file)
    if not isinstance(raw, dict):
        raise DataError(f"{file}: expected an object of scenarios or types with lists of trajectories")
    for key, value in raw.items():
        kind, lists = (file.stem, {key: value}) if file.stem in TYPES else (key, {"": value})
        if isinstance(value, dict):
            kind, lists = key, value
        for scenario, rows in lists.items():
            place = within.at(", ".join(filter(None, (kind, scenario))))
            if not isinstance(rows, list):
                place.reject("wrong value", f"is {reprlib.repr(rows)}, expected a list of trajectories")
                continue
            for number, one in enumerate(rows, 1):
                at = place.at(f"trajectory {number}")
                row = at.validate(_Trajectory, one)
                if row is not None:
                    agent = "first" if any(each.user or each.assistant for each in row.steps) else "third"
                    id = ":".join(filter(None, (agent, kind, scenario, str(number))))
                    labels = {"category": kind, "scenario": scenario, "agent": agent, "level": _level(kind)}
                    yield _Case(id, labels, at, row)


def _counted_inside(cases: Sequence[_Case], place: Location) -> bool:
    """Whether the target steps of a type are counted in their sessions, not over the whole trajectory.

    That is so if more of them are then marked as facts or hold the answer, or as many, and more are there at all.
    """
    votes = {False: (0, 0), True: (0, 0)}
    for row in (case.row for case in cases):
        steps = row.steps
        for inside, (bearing, there) in votes.items():
            found = row.targets(inside)
            votes[inside] = (bearing + sum(steps[at].bears(row.QA.answer) for at in found), there + len(found))
    if votes[True] <= votes[False]:
        return False
    counts = f"{votes[True][0]} of {votes[True][1]} hold what is asked, {votes[False][0]} of {votes[False][1]}"
    place.warn("step convention", f"target steps are counted in their sessions: {counts} if over all sessions")
    return True


def _examples(case: _Case, inside: bool, capacity: int | None) -> Iterator[dspy.Example]:
    row, place, question = case.row, case.place, case.row.QA
    sessions, steps = _sessions(row, place)
    if not sessions:
        place.reject("no turns", "holds no message with words")
        return
    targets = row.targets(inside)
    if len(targets) < len(question.target_step_id):
        place.field("QA.target_step_id").warn("dangling evidence", "names a step that is not there; dropped")
    if question.answer != question.choices[question.ground_truth]:
        place.field("QA.answer").warn("other answer", "is not the choice of ground_truth, which counts")
    ends = {len(steps), *(range(targets[-1] + 1, len(steps), capacity) if capacity and targets else ())}
    asked = _moment(question.time)
    for end in sorted(end for end in ends if any(steps[:end])):
        found = [tuple(turn.id for turn in steps[at]) for at in dict.fromkeys(targets) if at < end and steps[at]]
        said = {turn.id for turns in steps[:end] for turn in turns}
        evidence = tuple(id for ids in found for id in ids)
        yield dspy.Example(
            id=f"{case.id}@{end}" if capacity else case.id,
            history=History(
                id=case.id, items=tuple(part for each in sessions if (part := each.select_turns(said)).turns)
            ),
            question=question.question,
            options=[f"({letter.lower()}) {question.choices[letter]}" for letter in sorted(question.choices)],
            date=format_time(asked) if asked else question.time,
            searched_with_date=True,
            evidence_ids=evidence,
            answer=f"({question.ground_truth.lower()})",
            **case.labels,
            tokens=sum(estimate_tokens(turn.text) for turns in steps[:end] for turn in turns),
            steps=found,
            evidence=evidence,
        ).with_inputs("history", "question", "options", "date", "searched_with_date", "evidence_ids")


def _sessions(row: _Trajectory, place: Location) -> tuple[list[Session], list[list[Turn]]]:
    """The sessions with words, and the turns of every step."""
    sessions: list[Session] = []
    steps: list[list[Turn]] = []
    lists: Sequence[Sequence[_Message]] = row.message_list
    if len(lists) == 1:
        lists = [list(day) for _, day in groupby(lists[0], _Message.day)]
    for number, messages in enumerate(lists, 1):
        said = [message.turns(number, n) for n, message in enumerate(messages)]
        turns = tuple(turn for each in said for turn in each)
        steps += said
        if turns:
            sessions.append(Session(id=f"D{number}", time=turns[0].time, turns=turns))
        if not all(said) or not turns:
            place.at(f"session {number}").warn(
                "empty message", "has no words, or a message of it has none; passed over"
            )
    return sessions, steps


def _moment(text: str) -> datetime | None:
    """The moment that `'2024-10-01 08:00' Tuesday` means; None where it is none."""
    match = _TIME.fullmatch(text)
    return read_date(match[1]) if match else None
