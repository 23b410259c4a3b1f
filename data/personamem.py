"""PersonaMem v1: multiple-choice questions to an assistant that knows its user (Jiang et al. 2025).

The genuine files are `questions_32k.csv` and `shared_contexts_32k.jsonl` (128k, 1M) of the hub set
bowen-upenn/PersonaMem; the form of the questions was checked against them. RGMem's tables are of
128k: `--benchmark-set length=128k`. The sample is our own. A question is asked after the first
`end_index_in_shared_context` messages of its context.

Limits: the score is the official one, so an answer that repeats an option without its letter is
wrong. The released files hold six of the paper's seven skills once the two names of recalling facts
are one; a skill that a file has not is shown with n = 0. Rows without persona ids are grouped by
context.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

import dspy
from pydantic import BeforeValidator, Field

from ..errors import DataError
from ..records import History, Session, Turn
from ..records.text_file import open_text_file, read_lines
from .benchmark import Benchmark
from .csv_rows import csv_rows
from .dataset import Dataset, FindingListener
from .field_types import Parsed, Text, Words, parse_literal
from .json_lines import json_object
from .rows import Location, Row
from .scorer import Score, Scorer, answer_of

SKILLS: Mapping[str, str] = {
    "recall_user_shared_facts": "recall facts",
    "acknowledge_latest_user_preferences": "latest preference",
    "track_full_preference_evolution": "track evolution",
    "recalling_the_reasons_behind_previous_updates": "revisit reasons",
    "provide_preference_aligned_recommendations": "aligned recommendation",
    "suggest_new_ideas": "suggest new ideas",
    "generalizing_to_new_scenarios": "new scenarios",
}
"""The seven skills of the paper by the name in the files, with what tables call them."""

_OTHER_SKILL_NAMES = {"recalling_facts_mentioned_by_the_user": "recall_user_shared_facts"}
"""Further names in the files of skills of the paper."""

_ANSWER_TAG = "<final_answer>"
_CONTEXT_ID = re.compile(r'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')
"""The id at the beginning of a context's line."""


class LetterAccuracy(Scorer):
    """1 if the answer chooses the gold letter and no other; see `chooses`."""

    title = "accuracy"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        is_right = self.is_right(answer, example.answer)
        feedback = _explain(example, answer, is_right)
        return Score(float(is_right), feedback, {"accuracy": float(is_right)})

    def is_right(self, answer: str, gold: str) -> bool:
        """Return whether an answer chooses the gold letter."""
        return chooses(answer, gold)


def chooses(response: str, gold: str) -> bool:
    """Return whether a response chooses the gold letter and no other, by the official rule.

    What follows the last `<final_answer>` is read first, then the whole response; see `letters`.
    Source: PersonaMem's inference script, as described in its repository.

    Args:
        response: The answer.
        gold: One letter, with or without parentheses.
    """
    gold_letters = {gold.lower().strip("() ")}
    final_answer = response.rpartition(_ANSWER_TAG)[2]
    return letters(final_answer) == gold_letters or letters(response) == gold_letters


def letters(text: str) -> set[str]:
    """Return the option letters that a text names.

    These are the letters in parentheses, or, without any of them, those that stand alone. "It is
    (b), not C" gives {"b"}, "B or c" gives {"b", "c"}.
    """
    text = text.lower()
    in_parentheses = re.findall(r"\(([a-d])\)", text)
    return set(in_parentheses or re.findall(r"\b([a-d])\b", text))


def _explain(example: dspy.Example, answer: str, is_right: bool) -> str:
    """Tell an optimizer which option is right, and what the answer names instead."""
    if is_right:
        return "Right: the answer chooses the right option."

    named_letters = letters(answer.rpartition(_ANSWER_TAG)[2])
    if not answer.strip():
        problem = "No answer was given"
    elif not named_letters:
        problem = "The answer names no option; give one letter in parentheses"
    else:
        options = ", ".join(f"({letter})" for letter in sorted(named_letters))
        problem = f"Wrong: the answer names {options}"
    gold_option = _option_of(example.answer, example.options) or ""
    return (
        f"{problem}. The right option is the one that fits what the user has told before: "
        f"{gold_option}"
    )


def _option_of(label: str, options: Sequence[str]) -> str | None:
    """Return the option that begins with a label such as "(b)"; None if there is none."""
    for option in options:
        if option.strip().lower().startswith(label):
            return option
    return None


class Message(Row):
    """A message of a context."""

    role: Words = ""
    content: Words = ""


class Messages(Row):
    """All messages of a context."""

    messages: tuple[Message, ...]


class _MessageRange(NamedTuple):
    """The messages of one session."""

    number: int
    """The number of the session, from 1."""
    start: int
    stop: int


class ContextSessions:
    """The messages of a context as sessions D1, D2, ...

    A message of the role "system" begins a session and stays in it. Without such messages there is
    one long session. Messages without text are left out.

    Histories that end at different messages get the same objects for the sessions that are whole in
    both. So a memory that was written for one question is continued for a later one.

    Args:
        messages: The messages in their order.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self._sessions: dict[tuple[int, int], Session] = {}
        """Sessions that were made, by their number and the message that they end before."""

        starts: list[int] = []
        for position, message in enumerate(messages):
            if position == 0 or message.role == "system":
                starts.append(position)
        stops = [*starts[1:], len(messages)]
        self._ranges: list[_MessageRange] = []
        for number, start in enumerate(starts, 1):
            self._ranges.append(_MessageRange(number, start, stops[number - 1]))

    def until(self, end: int) -> tuple[Session, ...]:
        """Return the sessions of the first `end` messages; the last of them may be cut short."""
        sessions: list[Session] = []
        for number, start, stop in self._ranges:
            if start >= end:
                break
            session = self._session(_MessageRange(number, start, min(stop, end)))
            if session.turns:
                sessions.append(session)
        return tuple(sessions)

    def _session(self, message_range: _MessageRange) -> Session:
        """Return the session of a range of messages.

        The histories of many questions have the same sessions, so each is made once and shared.
        """
        number, start, stop = message_range
        # The start of a session follows from its number.
        session = self._sessions.get((number, stop))
        if session is not None:
            return session

        turns: list[Turn] = []
        for message in self.messages[start:stop]:
            if message.content:
                turn_id = f"D{number}:{len(turns) + 1}"
                speaker = message.role or "unknown"
                turns.append(Turn(id=turn_id, speaker=speaker, text=message.content))
        session = Session(id=f"D{number}", turns=tuple(turns))
        self._sessions[number, stop] = session
        return session


def _bare_letter(cell: str) -> str:
    return cell.strip(" ()").lower()


class _QuestionRow(Row):
    user_question_or_message: Text
    correct_answer: Annotated[Literal["a", "b", "c", "d"], BeforeValidator(_bare_letter)]
    all_options: Annotated[tuple[str, ...], Parsed, Field(min_length=2)]
    shared_context_id: str
    end_index_in_shared_context: Annotated[int, Field(ge=1)]
    question_type: str
    question_id: str = ""
    persona_id: str = ""
    topic: str = ""


class PersonaMem(Benchmark):
    """PersonaMem v1: the share of questions answered with the right letter."""

    name = "personamem"
    task = "multiple-choice"
    sample = "personamem_questions.csv"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"accuracy": LetterAccuracy}
    categories = SKILLS
    expected_categories = tuple(SKILLS)

    @classmethod
    def read(
        cls,
        path: Path,
        on_finding: FindingListener,
        *,
        length: Literal["32k", "128k", "1M"] | None = None,
    ) -> Dataset:
        """Read a CSV of questions, and the contexts that they need from the file beside it.

        Args:
            path: A file of questions_32k.csv's form, or the folder of the released files.
            on_finding: Receives what is reported.
            length: Which of the released files; needed for a folder that holds several.
        """
        path = _find_questions(path, length)
        rows = list(csv_rows(path, _QuestionRow, on_finding))
        context_ids = {row.shared_context_id for _, _, row in rows}
        contexts = _read_contexts(_find_contexts(path), context_ids, on_finding)

        histories: dict[tuple[str, int], History] = {}
        examples: dict[str, dspy.Example] = {}
        for line, location, row in rows:
            answer = f"({row.correct_answer})"
            if _option_of(answer, row.all_options) is None:
                problem = f"no option begins with {answer}"
                location.field("correct_answer").reject("answer without option", problem)
                continue

            history = _read_history(row, contexts, histories, location)
            if history is None:
                continue

            example_id = row.question_id or f"{history.id[:12]}:{line}"
            if example_id in examples:
                location.field("question_id").reject(
                    "duplicate id", f"{example_id!r} is used twice"
                )
                continue

            example = dspy.Example(
                id=example_id,
                history=history,
                question=row.user_question_or_message,
                options=list(row.all_options),
                answer=answer,
                category=_read_skill(row, location),
                topic=row.topic,
                user=row.persona_id or history.id,
                evidence_ids=(),
                evidence=(),
            )
            inputs = ("history", "question", "options", "evidence_ids")
            examples[example_id] = example.with_inputs(*inputs)
        return Dataset(tuple(histories.values()), tuple(examples.values()), (path,))

    def group(self, example: dspy.Example) -> str:
        """Return the persona: its contexts are about the same person."""
        return example.user


def _find_questions(path: Path, length: str | None) -> Path:
    """Return the file of questions that a path and a length mean.

    A file is taken as it is, unless a length is named: then the file of that length is taken from
    the folder that the file lies in.

    Raises:
        DataError: The folder holds no such file, or several.
    """
    is_folder = path.is_dir()
    if not is_folder and length is None:
        return path

    folder = path if is_folder else path.parent
    files = sorted(folder.glob(f"questions_{length or '*'}.csv"))
    if not files:
        raise DataError(f"{folder}: holds no questions_{length or '{32k,128k,1M}'}.csv")
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise DataError(f"{folder}: holds {names}; choose with --benchmark-set length=...")
    return files[0]


def _find_contexts(questions: Path) -> Path:
    """Return the file of contexts beside a file of questions; raise DataError if there is none."""
    name = questions.name.replace("questions", "shared_contexts")
    contexts = questions.with_name(name).with_suffix(".jsonl")
    if not contexts.exists():
        raise DataError(
            f"{questions}: {contexts.name} is not beside it, which holds the contexts; put it there"
        )
    return contexts


def _read_contexts(
    path: Path, wanted_ids: set[str], on_finding: FindingListener
) -> dict[str, ContextSessions]:
    """Return the contexts with some ids; the others are passed over without parsing them."""
    contexts: dict[str, ContextSessions] = {}
    with open_text_file(path) as file:
        for number, line in enumerate(read_lines(file, path), 1):
            if not _may_be_wanted(line, wanted_ids):
                continue
            location = Location(on_finding, f"{path.name}, line {number}")
            messages_by_id = json_object(line, location) or {}
            for context_id, messages in messages_by_id.items():
                context = location.validate(Messages, {"messages": messages})
                if context is not None:
                    contexts[context_id] = ContextSessions(context.messages)
            if wanted_ids <= contexts.keys():
                break
    return contexts


def _may_be_wanted(line: str, wanted_ids: set[str]) -> bool:
    """Return whether a line holds a context with one of the ids, or cannot be told to hold none."""
    if not line.strip():
        return False
    match = _CONTEXT_ID.match(line)
    return match is None or parse_literal(match[1]) in wanted_ids


def _read_history(
    row: _QuestionRow,
    contexts: Mapping[str, ContextSessions],
    histories: dict[tuple[str, int], History],
    location: Location,
) -> History | None:
    """Return the history of a question; report a question without one, and return None.

    Args:
        row: The question.
        contexts: The contexts by their ids.
        histories: The histories of earlier questions, by context and number of messages; the
            history of this one is added.
        location: Where the question stands.
    """
    context_id = row.shared_context_id
    if context_id not in contexts:
        problem = f"{context_id[:80]!r} is not in the file of contexts"
        location.field("shared_context_id").reject("missing context", problem)
        return None

    context = contexts[context_id]
    num_messages = len(context.messages)
    end = row.end_index_in_shared_context
    if end > num_messages:
        problem = f"{end} is more than the context's {num_messages} messages; all are taken"
        location.field("end_index_in_shared_context").warn("end past the context", problem)
        end = num_messages

    history = histories.get((context_id, end))
    if history is None:
        history = History(id=context_id, items=context.until(end))
        histories[context_id, end] = history
    if not history.items:
        problem = "holds no message with text before the question"
        location.field("shared_context_id").reject("empty context", problem)
        return None
    return history


def _read_skill(row: _QuestionRow, location: Location) -> str:
    """Return the name of the skill that a question tests.

    The name is one of `SKILLS` where the data has one of these skills, however it writes it. An
    unknown skill is reported and kept. A question without a type gets "all".
    """
    # "Recall user-shared facts" becomes "recall_user_shared_facts".
    skill = re.sub(r"\W+", "_", row.question_type.strip().lower())
    skill = _OTHER_SKILL_NAMES.get(skill, skill)
    if skill not in SKILLS:
        problem = f"{skill!r} is none of the paper's; kept as it is"
        location.field("question_type").warn("unknown skill", problem)
    return skill or "all"
