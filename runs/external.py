"""Resolves the name of an external system to score: `module:name`, an endpoint, a file of answers, `system:NAME`.

It is `system:NAME`, a shipped adapter of somebody's memory system, `module:thing` or a URL
(`programs.external.target`), or a file of answers that were made elsewhere: results of a public harness
(`exports.leaderboards`), or JSON lines:

    {"id": "conv-26:17", "answer": "in Lisbon", "recalled": ["I moved to Lisbon.", {"id": "D3:11", "text": "..."}]}
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import dspy
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, NonNegativeFloat

from ..data.benchmark import Benchmark
from ..data.dataset import raise_on_fatal
from ..data.rows import Location, Row, Verbatim, Words, json_rows
from ..engines.call_context import record_usage
from ..engines.usage import Usage
from ..errors import DataError, UserError
from ..programs.external.signatures import check_store
from ..programs.external.target import URL_PREFIXES, load_target, parameters, takes_embedder, target_kind
from ..programs.program import MemoryProgram
from ..programs.recording import ExternalError
from ..records import History, Query, read_json
from ..text import one_line

ANSWERS = (".jsonl", ".json", ".json.gz")
SYSTEM = "system:"
FIELD = "recorded"
"""The input under which a question carries its recorded answer."""
Count = Annotated[int, Field(ge=0, le=10**12)]


class RecordedAnswer(BaseModel):
    """One line."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    id: str
    """Of the question."""
    answer: str | list[str] | None = None
    error: str | None = None
    """Why the question failed, in the place of an answer."""
    recalled: tuple[str | dict[str, Any], ...] | None = None
    """What it rests on, as a search finds it (`programs.external`); None where it is not said."""
    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost: NonNegativeFloat | None = None
    seconds: NonNegativeFloat = 0.0


class HarnessResult(Row):
    """What a public harness keeps of one question."""

    query_id: str = ""
    query: Verbatim = Field(validation_alias=AliasChoices("query", "question"))
    answer: Words
    golden_answer: Any = None
    context: Words = ""
    skip_reason: Words = ""
    search_duration_ms: NonNegativeFloat | None = None
    response_duration_ms: NonNegativeFloat | None = None

    def recorded(self, id: str) -> RecordedAnswer:
        """As the recorded answer to a question."""
        said: Any = {"error": self.skip_reason} if self.skip_reason else {"answer": self.answer}
        seconds = ((self.search_duration_ms or 0) + (self.response_duration_ms or 0)) / 1000
        return RecordedAnswer(id=id, recalled=(self.context,) if self.context else None, seconds=seconds, **said)


def harness_id(benchmark: str, example: dspy.Example) -> str:
    """What amb calls a question."""
    marks = {"locomo": "_q", "beam": "_"}
    return str(example.id).rpartition("/")[2].replace(":", marks.get(benchmark, ":"))


def read_results(path: Path) -> list[HarnessResult]:
    """The results in a file of amb or omnimemeval.

    Raises:
        DataError: It is none; the message has the number of the result.
    """
    raw = read_json(path)
    listed = raw.get("results") if isinstance(raw, dict) else None
    if isinstance(raw, dict) and not isinstance(listed, list):  # by conversation; of LongMemEval each has one question
        listed = [each for asked in raw.values() for each in (asked if isinstance(asked, list) else [asked])]
    if not listed:
        raise DataError(f"{path}: holds no results as amb or omnimemeval write them")
    note = raise_on_fatal(path)
    found = [Location(note, f"result {number}").validate(HarnessResult, each) for number, each in enumerate(listed, 1)]
    return [each for each in found if each is not None]


def matched(results: Sequence[HarnessResult], benchmark: Benchmark) -> dict[str, RecordedAnswer]:
    """The answers by our ids of the questions, which are found by their words, or by amb's ids.

    Of questions with the same words the one of that id is meant, or of that gold answer.
    """
    ids, asked = dict[str, str](), dict[str, list[tuple[str, str, str]]]()
    for example in benchmark.examples:
        id, theirs = str(example.id), harness_id(benchmark.name, example)
        ids[theirs] = id
        asked.setdefault(one_line(example.question), []).append((id, theirs, str(example.get("answer"))))
    found: dict[str, RecordedAnswer] = {}
    for each in results:
        same = [known for known in asked.get(one_line(each.query), ()) if known[0] not in found]
        best = max(same, key=lambda one: (one[1] == each.query_id, one[2] == str(each.golden_answer)), default=None)
        id = best[0] if best else ids.get(each.query_id)
        if id is not None:
            found.setdefault(id, each.recorded(id))
    return found


class Answers:
    """A file of answers; called as whatever answers, it gives that of a question.

    Args:
        path: The file.

    Raises:
        DataError: It is not such a file; the message has the line. Of `given`: it does not fit the benchmark.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.rows, self.notes = Path(path), dict[str, RecordedAnswer](), list[str]()
        self.results = None if self.path.suffix == ".jsonl" else read_results(self.path)
        lines = json_rows(self.path, RecordedAnswer, raise_on_fatal(self.path)) if self.results is None else ()
        for number, _, row in lines:
            if row.answer is None and row.error is None:
                told = "has no answer; give `answer`, or `error` where the question failed"
                raise DataError(f"{path}: line {number}: {told}")
            if self.rows.setdefault(row.id, row) is not row:
                raise DataError(f"{path}: line {number}: id {row.id!r} was there already; keep one")
        self.version = {"sha256": hashlib.sha256(self.path.read_bytes()).hexdigest()}
        """Setting of a program of these answers: those of another file are another program's."""

    def __call__(self, history: History, question: str, query: Query) -> Any:
        """The recorded answer to a question, and what was recalled for it."""
        found: RecordedAnswer | None = query.extra.get(FIELD)
        if found is None:
            raise ExternalError("recorded answers answer the questions of an evaluation, no other ones")
        unpriced = found.calls if found.cost is None else 0
        tokens = found.input_tokens, found.output_tokens
        record_usage(Usage(found.calls, *tokens, found.cost or 0.0, unpriced, found.seconds))
        if found.answer is None:
            raise ExternalError(found.error or "no answer")
        return found.answer, found.recalled

    def attach_answers(self, benchmark: Benchmark, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """The questions with their answers; every line has to be of a question of the benchmark.

        Of a harness's results those are taken that are of its questions; `notes` say how many are left out.

        Raises:
            UserError: The benchmark's answers are conversations, which cannot be recorded so.
        """
        if benchmark.interaction is not None:
            raise UserError(f"{benchmark.name} is a simulated conversation: there is nothing to record one answer of")
        if self.results is not None:
            self.rows, count = matched(self.results, benchmark), len(examples)
            examples = [example for example in examples if str(example.id) in self.rows]
            if not examples:
                raise DataError(f"{self.path}: none of its {len(self.results)} answers is to a question that is asked")
            told = f"{len(self.results) - len(self.rows)} of its {len(self.results)} answers are to no question of"
            left = f"{count - len(examples)} of {count} questions have no answer there"
            self.notes = [f"{self.path.name}: {told} {benchmark.name}; {left}"]
        ids = [str(example.id) for example in examples]
        strange = sorted(self.rows.keys() - {str(each.id) for each in benchmark.examples})
        missing = [id for id in ids if id not in self.rows]
        if strange:
            wanted = f"those of the benchmark are like {ids[0]!r}"
            raise DataError(f"{self.path}: id {strange[0]!r} is of no question ({len(strange)} such); {wanted}")
        if missing:
            told = f"id {missing[0]!r} is missing ({len(missing)} such)"
            raise DataError(f"{self.path}: {told}; every question needs a line")
        return [
            example.copy(**{FIELD: self.rows[id]}).with_inputs(*example.inputs().keys(), FIELD)
            for id, example in zip(ids, examples, strict=True)
        ]


def resolve_external(name: str) -> Any | None:
    """What a name stands for, if that is no method of ours; of a shipped system its factory.

    Raises:
        UserError: There is no such system, module or file, or the system is not installed.
    """
    if name.endswith(ANSWERS):
        return Answers(name)
    if not name.startswith(SYSTEM):
        return load_target(name)
    from ..systems.catalog import factory

    return factory(name.removeprefix(SYSTEM))


def in_subprocess(name: str, thing: Any) -> Any:
    """A class or factory of stores that is named, in processes of its own, one for each history; else what it was.

    One that asks for the run's embedder has it in this process only.

    Raises:
        UserError: The store cannot be made or called.
    """
    made = isinstance(thing, type) or not hasattr(thing, "add")
    if name.startswith((SYSTEM, *URL_PREFIXES)) or not made or target_kind(thing) == "answer" or takes_embedder(thing):
        return thing
    from ..systems.catalog import isolated

    # Here, since the process of a store shows no signatures.
    check_store(thing, name)
    make: Any = isolated(name, "folder" in parameters(thing))
    make.asks = target_kind(thing) == "ask"
    return make


def name_in_tables(thing: Any) -> str:
    """The name of what is scored: `module:name`; of a file of answers without its folder, which is private."""
    if isinstance(thing, Answers):
        return thing.path.name
    if isinstance(thing, MemoryProgram):
        return thing.name
    kind = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
    return thing if isinstance(thing, str) else f"{kind.__module__}:{kind.__qualname__}"


def plannable(name: str) -> bool:
    """Whether what something takes can be measured in advance, under another model."""
    thing = resolve_external(name)
    return thing is None or (target_kind(thing) == "answer" and not isinstance(thing, Answers))
