"""PersonaMem v1: multiple-choice questions to an assistant that should know its user by now (Jiang et al. 2025).

The genuine files, `questions_32k.csv` and `shared_contexts_32k.jsonl` (128k, 1M), are those of the hub set
bowen-upenn/PersonaMem (RGMem's tables are of 128k: `--benchmark-set length=128k`); the questions' form was checked
against them. The sample is our own. A question is asked after the first `end_index_in_shared_context` messages of its
context.

Limits: the score is the official one, so an answer that repeats an option without its letter is wrong. The released
files hold six of the paper's seven skills once the two names of recalling facts are one; a skill that a file has not is
shown with n = 0. Rows without persona ids are grouped by context.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

import dspy
from pydantic import BeforeValidator, Field

from ..errors import DataError
from ..records import History, Session, Turn
from ..records.text_file import open_text_file, read_lines
from .benchmark import Benchmark
from .dataset import Dataset, FindingListener
from .csv_rows import csv_rows
from .field_types import Parsed, Text, Words, parse_literal
from .json_lines import json_object
from .rows import Location, Row
from .scorer import Score, Scorer, answer_of

SKILLS: Mapping[str, str] = MappingProxyType(
    {
        "recall_user_shared_facts": "recall facts",
        "acknowledge_latest_user_preferences": "latest preference",
        "track_full_preference_evolution": "track evolution",
        "recalling_the_reasons_behind_previous_updates": "revisit reasons",
        "provide_preference_aligned_recommendations": "aligned recommendation",
        "suggest_new_ideas": "suggest new ideas",
        "generalizing_to_new_scenarios": "new scenarios",
    }
)
"""The seven skills of the paper by the name in the files, with what tables call them."""
_SAME_SKILL = {"recalling_facts_mentioned_by_the_user": "recall_user_shared_facts"}
_TAG = "<final_answer>"
_CONTEXT_KEY = re.compile(r'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:')


class LetterAccuracy(Scorer):
    """1 when the answer chooses the gold letter and no other; see `chooses`."""

    title = "accuracy"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        right = self.right(answer, example.answer)
        return Score(float(right), _explain(example, answer, right), {"accuracy": float(right)})

    def right(self, answer: str, gold: str) -> bool:
        """Whether an answer chooses the gold letter."""
        return chooses(answer, gold)


def chooses(response: str, gold: str) -> bool:
    """Whether a response chooses the gold letter and no other, by the official rule.

    What follows the last `<final_answer>` is read first, then the whole response; see `letters`. The gold letter is
    one alone, with or without parentheses.
    Source: PersonaMem's inference script, as described in its repository.
    """
    wanted = {gold.lower().strip("() ")}
    return letters(response.rpartition(_TAG)[2]) == wanted or letters(response) == wanted


def letters(text: str) -> set[str]:
    """The option letters a text names: those in parentheses, or without any of them, those that stand alone.

    "It is (b), not C" gives {"b"}, "B or c" gives {"b", "c"}.
    """
    text = text.lower()
    return set(re.findall(r"\(([a-d])\)", text) or re.findall(r"\b([a-d])\b", text))


def _explain(example: dspy.Example, answer: str, right: bool) -> str:
    if right:
        return "Right: the answer chooses the right option."
    gold = next((option for option in example.options if option.strip().lower().startswith(example.answer)), "")
    named = letters(answer.rpartition(_TAG)[2])
    if not answer.strip():
        said = "No answer was given"
    elif not named:
        said = "The answer names no option; give one letter in parentheses"
    else:
        said = f"Wrong: the answer names {', '.join(f'({letter})' for letter in sorted(named))}"
    return f"{said}. The right option is the one that fits what the user has told before: {gold}"


class Message(Row):
    """A message of a context."""

    role: Words = ""
    content: Words = ""


class Blocks:
    """The messages of a context as sessions D1, D2, ...: a message of the role "system" begins one and stays in it.

    Histories that end at different messages get the same objects for the sessions that are whole in both, so that a
    memory that was written for one question goes on from there for a later one. Messages without a system message are
    one long session; messages without text are left out.

    Args:
        messages: `{role, content}` each.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        starts = [n for n, message in enumerate(messages) if n == 0 or message.role == "system"]
        self._places = list(zip(starts, [*starts, len(messages)][1:], strict=True))
        self._made: dict[tuple[int, int], Session] = {}

    def until(self, end: int) -> tuple[Session, ...]:
        """The sessions of the first `end` messages; the last of them may be cut short."""
        cut = [(n, start, min(stop, end)) for n, (start, stop) in enumerate(self._places, 1) if start < end]
        sessions = [self._session(n, start, stop) for n, start, stop in cut]
        return tuple(session for session in sessions if session.turns)

    def _session(self, number: int, start: int, stop: int) -> Session:
        if (number, stop) not in self._made:
            said = [each for each in self.messages[start:stop] if each.content]
            turns = [
                Turn(id=f"D{number}:{n}", speaker=each.role or "unknown", text=each.content)
                for n, each in enumerate(said, 1)
            ]
            self._made[number, stop] = Session(id=f"D{number}", turns=tuple(turns))
        return self._made[number, stop]


class Messages(Row):
    """All messages of a context."""

    messages: tuple[Message, ...]


class _Question(Row):
    user_question_or_message: Text
    correct_answer: Annotated[Literal["a", "b", "c", "d"], BeforeValidator(lambda cell: cell.strip(" ()").lower())]
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
        cls, path: Path, on_finding: FindingListener, *, length: Literal["32k", "128k", "1M"] | None = None
    ) -> Dataset:
        """Reads a CSV of questions, or that of a folder, and the contexts that it needs, from the file beside it.

        Args:
            path: A file of questions_32k.csv's form, or the folder of the released files.
            on_finding: What findings are told to.
            length: Which of the released files; needed for a folder that holds several.
        """
        path = _questions_of(path, length)
        rows = list(csv_rows(path, _Question, on_finding))
        wanted = {row.shared_context_id for _, _, row in rows}
        found = _contexts(_contexts_beside(path), wanted, on_finding)
        histories: dict[tuple[str, int], History] = {}
        examples: dict[str, dspy.Example] = {}
        for line, place, row in rows:
            answer = row.correct_answer
            if not any(option.strip().lower().startswith(f"({answer})") for option in row.all_options):
                place.field("correct_answer").reject("answer without option", f"no option begins with ({answer})")
                continue
            history = _history(row, place, found, histories)
            if history is None:
                continue
            id = row.question_id or f"{history.id[:12]}:{line}"
            if id in examples:
                place.field("question_id").reject("duplicate id", f"{id!r} is used twice")
                continue
            examples[id] = dspy.Example(
                id=id,
                history=history,
                question=row.user_question_or_message,
                options=list(row.all_options),
                answer=f"({answer})",
                category=_skill(row, place),
                topic=row.topic,
                user=row.persona_id or history.id,
                evidence_ids=(),
                evidence=(),
            ).with_inputs("history", "question", "options", "evidence_ids")
        return Dataset(tuple(histories.values()), tuple(examples.values()), (path,))

    def group(self, example: dspy.Example) -> str:
        """The persona: its contexts are about the same person."""
        return example.user


def _questions_of(path: Path, length: str | None) -> Path:
    if length is None and not path.is_dir():
        return path
    folder = path if path.is_dir() else path.parent
    found = sorted(folder.glob(f"questions_{length or '*'}.csv"))
    if not found:
        raise DataError(f"{folder}: holds no questions_{length or '{32k,128k,1M}'}.csv")
    if len(found) > 1:
        raise DataError(
            f"{folder}: holds {', '.join(file.name for file in found)}; choose with --benchmark-set length=..."
        )
    return found[0]


def _contexts_beside(path: Path) -> Path:
    name = path.name.replace("questions", "shared_contexts")
    named = path.with_name(name).with_suffix(".jsonl")
    if not named.exists():
        raise DataError(f"{path}: {named.name} is not beside it, which holds the contexts; put it there")
    return named


def _contexts(path: Path, wanted: set[str], on_finding: FindingListener) -> dict[str, Blocks]:
    """The messages of the contexts with these ids; the others are passed over without parsing them."""
    found: dict[str, Blocks] = {}
    with open_text_file(path) as file:
        for number, line in enumerate(read_lines(file, path), 1):
            key = _CONTEXT_KEY.match(line)
            if not line.strip() or (key is not None and parse_literal(key[1]) not in wanted):
                continue
            place = Location(on_finding, f"{path.name}, line {number}")
            for id, messages in (json_object(line, place) or {}).items():
                context = place.validate(Messages, {"messages": messages})
                if context is not None:
                    found[id] = Blocks(context.messages)
            if wanted <= found.keys():
                break
    return found


def _history(
    row: _Question, place: Location, contexts: Mapping[str, Blocks], histories: dict[tuple[str, int], History]
) -> History | None:
    id, end = row.shared_context_id, row.end_index_in_shared_context
    if id not in contexts:
        place.field("shared_context_id").reject("missing context", f"{id[:80]!r} is not in the file of contexts")
        return None
    length = len(contexts[id].messages)
    if end > length:
        message = f"{end} is more than the context's {length} messages; all are taken"
        place.field("end_index_in_shared_context").warn("end past the context", message)
    at = (id, min(end, length))
    if at not in histories:
        histories[at] = History(id=id, items=contexts[id].until(at[1]))
    if not histories[at].items:
        place.field("shared_context_id").reject("empty context", "holds no message with text before the question")
        return None
    return histories[at]


def _skill(row: _Question, place: Location) -> str:
    skill = re.sub(r"\W+", "_", row.question_type.strip().lower())
    skill = _SAME_SKILL.get(skill, skill)
    if skill not in SKILLS:
        place.field("question_type").warn("unknown skill", f"{skill!r} is none of the paper's; kept as it is")
    return skill or "all"
