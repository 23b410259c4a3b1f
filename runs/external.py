"""Find what the name of an external system stands for, and read answers that were made elsewhere.

What can be scored beside our methods, and how users name it:

| name                         | what it is                                                       |
|------------------------------|------------------------------------------------------------------|
| `system:NAME`                | a shipped adapter of somebody's memory system                    |
| `module:attribute`, or a URL | the user's own store or agent (`programs.external.target`)       |
| a file (`.jsonl`)            | recorded answers, one JSON object a line                         |
| a file (`.json`, `.json.gz`) | results of a public harness (`exports.leaderboards` writes them) |

A line of recorded answers:

    {"id": "conv-26:17", "answer": "in Lisbon", "recalled": ["I moved to Lisbon."]}

Example:
    recorded = RecordedAnswers("answers.jsonl")
    examples = recorded.attach_answers(benchmark, benchmark.test)
    program = build_external_program(recorded, "answers.jsonl", benchmark.task)
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import dspy
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, NonNegativeFloat

from ..data.benchmark import Benchmark
from ..data.dataset import raise_on_fatal
from ..data.field_types import Verbatim, Words
from ..data.json_lines import json_rows
from ..data.rows import Location, Row
from ..engines.call_context import record_usage
from ..engines.usage import Usage
from ..errors import DataError, UserError
from ..programs.external.numbers import NUMBERS, declared_numbers
from ..programs.external.signatures import check_store
from ..programs.external.target import (
    URL_PREFIXES,
    load_target,
    parameters,
    takes_embedder,
    target_kind,
)
from ..programs.external.texts import declared_texts
from ..programs.program import MemoryProgram
from ..programs.recording import ExternalError
from ..records import History, Query, read_json
from ..text import one_line

ANSWER_FILE_ENDINGS = (".jsonl", ".json", ".json.gz")
"""A name that ends so is a file of answers."""

SYSTEM_PREFIX = "system:"
"""A name that begins so is a shipped adapter."""

ANSWER_FIELD = "recorded"
"""The input of a question that holds its recorded answer."""

_Count = Annotated[int, Field(ge=0, le=10**12)]

_AMB_ID_SEPARATORS = {"locomo": "_q", "beam": "_"}
"""What amb writes for the colons of our question ids, by benchmark."""


class RecordedAnswer(BaseModel):
    """The answer to one question, a line of a file."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    id: str
    """The id of the question."""
    answer: str | list[str] | None = None
    error: str | None = None
    """Why the question failed, in the place of an answer."""
    recalled: tuple[str | dict[str, Any], ...] | None = None
    """What the answer rests on, as a search of a store returns it; None if that is not known."""
    calls: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cost: NonNegativeFloat | None = None
    """US dollars; None if not known."""
    seconds: NonNegativeFloat = 0.0


class HarnessResult(Row):
    """What a public harness (amb or omnimemeval) keeps of one question."""

    query_id: str = ""
    query: Verbatim = Field(validation_alias=AliasChoices("query", "question"))
    answer: Words
    golden_answer: Any = None
    context: Words = ""
    """What was recalled, as one text."""
    skip_reason: Words = ""
    """Why the question failed; "" if it was answered."""
    search_duration_ms: NonNegativeFloat | None = None
    response_duration_ms: NonNegativeFloat | None = None

    def to_recorded_answer(self, question_id: str) -> RecordedAnswer:
        """Return the result as the recorded answer to the question of this id."""
        milliseconds = (self.search_duration_ms or 0) + (self.response_duration_ms or 0)
        is_skipped = bool(self.skip_reason)
        return RecordedAnswer(
            id=question_id,
            answer=None if is_skipped else self.answer,
            error=self.skip_reason if is_skipped else None,
            recalled=(self.context,) if self.context else None,
            seconds=milliseconds / 1000,
        )


def amb_question_id(benchmark: str, example: dspy.Example) -> str:
    """Return what amb calls a question of a benchmark."""
    question_id = str(example.id).rpartition("/")[2]
    return question_id.replace(":", _AMB_ID_SEPARATORS.get(benchmark, ":"))


def read_harness_results(path: Path) -> list[HarnessResult]:
    """Read the results in a file of amb or omnimemeval.

    Raises:
        DataError: It is no such file; the message has the number of the result.
    """
    values = _list_results(read_json(path))
    if not values:
        raise DataError(f"{path}: holds no results as amb or omnimemeval write them")

    raise_problem = raise_on_fatal(path)
    results: list[HarnessResult] = []
    for number, value in enumerate(values, 1):
        location = Location(raise_problem, f"result {number}")
        result = location.validate(HarnessResult, value)
        # `validate` returns None only after a fatal finding, which `raise_problem` raises.
        assert result is not None
        results.append(result)
    return results


def _list_results(content: Any) -> list[Any]:
    """Return the values in a harness's file that should be results; they are not checked yet."""
    if not isinstance(content, dict):
        return []
    if isinstance(content.get("results"), list):
        # amb keeps all results in one list.
        return content["results"]

    # omnimemeval keeps results by conversation: a list for each. A conversation of LongMemEval has
    # only one question, and its value is the result itself, without a list.
    results: list[Any] = []
    for value in content.values():
        if isinstance(value, list):
            results.extend(value)
        else:
            results.append(value)
    return results


@dataclass(frozen=True)
class _KnownQuestion:
    """What a question of a benchmark is recognised by."""

    id: str
    amb_id: str
    gold: str

    def has_id_of(self, result: HarnessResult) -> bool:
        """Return whether a result names this question by its id."""
        return self.amb_id == result.query_id

    def has_gold_of(self, result: HarnessResult) -> bool:
        """Return whether a result names the gold answer of this question."""
        return self.gold == str(result.golden_answer)


def match_answers(
    results: Sequence[HarnessResult], benchmark: Benchmark
) -> dict[str, RecordedAnswer]:
    """Return the answers to questions of a benchmark, by our ids of the questions.

    A result is matched with a question of the same words that has no answer yet (`_best_match`). If
    there is none, it is matched by amb's id, since a harness may change the words. Left out are
    results of no question, and further results of a question that has an answer.
    """
    ids_by_amb_id: dict[str, str] = {}
    questions_by_words: dict[str, list[_KnownQuestion]] = {}
    for example in benchmark.examples:
        amb_id = amb_question_id(benchmark.name, example)
        question = _KnownQuestion(str(example.id), amb_id, str(example.get("answer")))
        ids_by_amb_id[amb_id] = question.id
        questions_by_words.setdefault(one_line(example.question), []).append(question)

    answers: dict[str, RecordedAnswer] = {}
    for result in results:
        same_words = questions_by_words.get(one_line(result.query), [])
        unanswered = [question for question in same_words if question.id not in answers]
        if unanswered:
            question_id = _best_match(result, unanswered).id
        else:
            question_id = ids_by_amb_id.get(result.query_id)

        if question_id is not None and question_id not in answers:
            answers[question_id] = result.to_recorded_answer(question_id)
    return answers


def _best_match(result: HarnessResult, questions: Sequence[_KnownQuestion]) -> _KnownQuestion:
    """Return the question that a result answers.

    All of the questions have the same words. The id decides which one is meant, or else the gold
    answer. If neither fits, it is the first question.
    """
    for question in questions:
        if question.has_id_of(result):
            return question
    for question in questions:
        if question.has_gold_of(result):
            return question
    return questions[0]


class RecordedAnswers:
    """A file of answers, which is scored like an agent: it "answers" with what it holds.

    Args:
        path: A file of JSON lines, or of a public harness.

    Raises:
        DataError: It is no such file; the message has the line.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.answers: dict[str, RecordedAnswer] = {}
        """The answers by question; those of a harness once `attach_answers` matched them."""
        self.notes: list[str] = []
        """What the page of the run says of the file."""
        self._harness_results: list[HarnessResult] | None = None

        if self.path.suffix == ".jsonl":
            self.answers = _read_answers(self.path)
        else:
            self._harness_results = read_harness_results(self.path)

        # `build_external_program` takes this attribute into the settings of the program: the
        # answers of another file are another program's.
        self.version = {"sha256": hashlib.sha256(self.path.read_bytes()).hexdigest()}

    def __call__(self, history: History, question: str, query: Query) -> Any:
        """Return the recorded answer to a question, and what was recalled for it.

        Raises:
            ExternalError: There is none, or an error was recorded.
        """
        recorded: RecordedAnswer | None = query.extra.get(ANSWER_FIELD)
        if recorded is None:
            raise ExternalError(
                "recorded answers answer the questions of an evaluation, no other ones"
            )

        usage = Usage(
            calls=recorded.calls,
            input_tokens=recorded.input_tokens,
            output_tokens=recorded.output_tokens,
            cost=recorded.cost or 0.0,
            unpriced=recorded.calls if recorded.cost is None else 0,
            seconds=recorded.seconds,
        )
        record_usage(usage)
        if recorded.answer is None:
            raise ExternalError(recorded.error or "no answer")
        return recorded.answer, recorded.recalled

    def attach_answers(
        self, benchmark: Benchmark, examples: Sequence[dspy.Example]
    ) -> list[dspy.Example]:
        """Return the questions with their answers as a further input.

        In a file of JSON lines, every question needs a line, and every line a question of the
        benchmark. A file of a harness may hold other questions and lack some: only those that it
        has are returned, and `notes` say how many are left out.

        Raises:
            UserError: The benchmark is a conversation, of which no single answer can be recorded.
            DataError: The file does not fit the benchmark.
        """
        if benchmark.interaction is not None:
            problem = "there is nothing to record one answer of"
            raise UserError(f"{benchmark.name} is a simulated conversation: {problem}")
        if self._harness_results is not None:
            self._attach_harness_results(self._harness_results, benchmark, examples)
            examples = [example for example in examples if str(example.id) in self.answers]
        self._check_ids(benchmark, examples)

        answered: list[dspy.Example] = []
        for example in examples:
            answer = self.answers[str(example.id)]
            with_answer = example.copy(**{ANSWER_FIELD: answer})
            answered.append(with_answer.with_inputs(*example.inputs().keys(), ANSWER_FIELD))
        return answered

    def _attach_harness_results(
        self,
        results: Sequence[HarnessResult],
        benchmark: Benchmark,
        examples: Sequence[dspy.Example],
    ) -> None:
        """Set `answers` and `notes` from the results of a public benchmark harness, such as amb.

        Args:
            results: The results in the file.
            benchmark: Whose questions the results answer.
            examples: The questions that the run asks.

        Raises:
            DataError: No question of the run has an answer in the file.
        """
        self.answers = match_answers(results, benchmark)
        answered_count = sum(str(example.id) in self.answers for example in examples)
        if answered_count == 0:
            raise DataError(
                f"{self.path}: none of its {len(results)} answers is to a question that is asked"
            )

        unmatched = len(results) - len(self.answers)
        unanswered = len(examples) - answered_count
        self.notes = [
            f"{self.path.name}: {unmatched} of its {len(results)} answers are to no question of"
            f" {benchmark.name}; {unanswered} of {len(examples)} questions have no answer there"
        ]

    def _check_ids(self, benchmark: Benchmark, examples: Sequence[dspy.Example]) -> None:
        """Refuse answers to no question of the benchmark, and questions without an answer."""
        ids = [str(example.id) for example in examples]
        known_ids = {str(example.id) for example in benchmark.examples}

        unknown_ids = sorted(self.answers.keys() - known_ids)
        if unknown_ids:
            problem = f"id {unknown_ids[0]!r} is of no question ({len(unknown_ids)} such)"
            raise DataError(f"{self.path}: {problem}; those of the benchmark are like {ids[0]!r}")

        missing_ids = [question_id for question_id in ids if question_id not in self.answers]
        if missing_ids:
            problem = f"id {missing_ids[0]!r} is missing ({len(missing_ids)} such)"
            raise DataError(f"{self.path}: {problem}; every question needs a line")


def _read_answers(path: Path) -> dict[str, RecordedAnswer]:
    """Read a file of JSON lines; return the answers by question id.

    Raises:
        DataError: A line is no answer, or an id is there twice.
    """
    answers: dict[str, RecordedAnswer] = {}
    for number, _, answer in json_rows(path, RecordedAnswer, raise_on_fatal(path)):
        if answer.answer is None and answer.error is None:
            problem = "has no answer; give `answer`, or `error` where the question failed"
            raise DataError(f"{path}: line {number}: {problem}")
        if answer.id in answers:
            problem = f"id {answer.id!r} was there already; keep one"
            raise DataError(f"{path}: line {number}: {problem}")
        answers[answer.id] = answer
    return answers


def resolve_external(name: str) -> Any | None:
    """Return the external system, or the recorded answers, that a name stands for.

    The result has no common type: `programs.external.target` says what a system may be.

    Returns:
        `RecordedAnswers` for a file, and a factory of stores for a shipped system. For any other
        name what `load_target` returns: the user's own system, or None for a method of Mempiler.

    Raises:
        UserError: There is no such system, module or file, or the system is not installed.
    """
    if name.endswith(ANSWER_FILE_ENDINGS):
        return RecordedAnswers(name)
    if name.startswith(SYSTEM_PREFIX):
        from ..systems.catalog import factory

        return factory(name.removeprefix(SYSTEM_PREFIX))
    return load_target(name)


def isolate_stores(name: str, target: Any) -> Any:
    """Let every store of a user's class or factory work in a process of its own.

    If a store crashes or hangs there, only one history fails, and not the run.

    Args:
        name: What the user named, e.g. "notes:Notes".
        target: What the name stands for.

    Returns:
        A function that starts such a store; `target` itself if it cannot be isolated.

    Raises:
        UserError: The store cannot be made or called.
    """
    # Shipped systems work in other processes already, and endpoints on other machines.
    if name.startswith((SYSTEM_PREFIX, *URL_PREFIXES)):
        return target

    # An object that exists already cannot move to another process.
    is_store_object = hasattr(target, "add") and not isinstance(target, type)
    if is_store_object:
        return target

    # An agent answers from the history and keeps no store.
    kind = target_kind(target)
    if kind == "answer":
        return target

    # The run's embedder, which the store asks for, is in this process only.
    if takes_embedder(target):
        return target

    from ..systems.catalog import isolated

    # The store is checked here, since one in another process does not show its signatures.
    check_store(target, name)
    isolated_factory: Any = isolated(name, "folder" in parameters(target))
    # `target_kind` looks for this attribute in a function that makes stores.
    isolated_factory.asks = kind == "ask"
    # `build_external_program` reads these three.
    isolated_factory.TEXTS = declared_texts(target, name)
    isolated_factory.NUMBERS = getattr(target, NUMBERS) if declared_numbers(target, name) else {}
    isolated_factory.EXPORT = getattr(target, "EXPORT", "")
    return isolated_factory


def name_in_tables(target: Any) -> str:
    """Return the name of what is scored, e.g. `module:name`.

    The folder of a file of answers is left out: it is private.
    """
    if isinstance(target, RecordedAnswers):
        return target.path.name
    if isinstance(target, MemoryProgram):
        return target.name
    if isinstance(target, str):
        return target
    is_named = inspect.isroutine(target) or isinstance(target, type)
    named = target if is_named else type(target)
    return f"{named.__module__}:{named.__qualname__}"


def can_be_planned(name: str) -> bool:
    """Return whether a plan can count the calls of an evaluation before any is made.

    Args:
        name: What is evaluated: a method or an external system.
    """
    target = resolve_external(name)
    is_method = target is None
    if is_method:
        return True

    # A file of answers makes no calls, so a plan would have nothing to say.
    if isinstance(target, RecordedAnswers):
        return False

    # An agent (kind "answer") is shown the whole history with each question, so the size of its
    # prompts is known in advance. What a store or an endpoint will recall is not.
    is_agent = target_kind(target) == "answer"
    return is_agent
