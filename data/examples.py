"""A user's own questions as a benchmark, made of `dspy.Example` objects instead of a file.

    trainset = [
        dspy.Example(
            history=[{"role": "user", "content": "I moved to Lisbon."}],
            question="Where do I live?",
            answer="Lisbon",
        ),
    ]
    benchmark = ExampleBenchmark.from_examples(trainset, metric=my_metric)

An example has `history`, `question` and `answer`. `history` is a `History`, a list of chat messages, or a list of such
lists, one for each session. `id`, `category`, `evidence` (ids of the turns that hold the answer) and `user` are
optional. The metric sees every other field too.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import dspy

from ..errors import DataError
from ..records import History
from .benchmark import Benchmark
from .common_scorers import Combined, ExactMatch, TokenF1
from .dataset import Source, Split
from .jsonl import JsonlBenchmark
from .metric_functions import FunctionScorer
from .scorer import Scorer
from .split import MIN_QUESTIONS

Metric = Callable[..., Any]
"""A function of an example and a prediction, in any form that DSPy or GEPA takes."""

REQUIRED_FIELDS = ("history", "question", "answer")
OPTIONAL_FIELDS = ("id", "category", "evidence", "user")


class ExampleBenchmark(Benchmark):
    """Questions that a user gave as examples, and the metric that scores their answers."""

    name = "examples"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = JsonlBenchmark.metrics

    predefined_split: Split | None = None
    """The parts that the user made; None where there is one list, which is split like a file."""

    @classmethod
    def from_examples(
        cls,
        trainset: Iterable[dspy.Example] = (),
        valset: Iterable[dspy.Example] | None = None,
        testset: Iterable[dspy.Example] | None = None,
        metric: str | Metric | None = None,
        seed: int = 0,
    ) -> ExampleBenchmark:
        """Make a benchmark of up to three lists of examples.

        Args:
            trainset: What an optimizer learns from. Without the other lists it is split into all three parts.
            valset: What decides whether a compiled program is better. Without it, a third of the trainset decides.
            testset: What is scored before and after compiling, and decides nothing.
            metric: A function, or the name of one: "f1" (the default), "exact_match" or "judge".
            seed: Chooses the examples that are taken from the trainset where there is no valset.

        Raises:
            DataError: An example lacks a field, or a field does not fit. The message names the list and the example.
            UnknownNameError: There is no metric of this name.
        """
        reader = _ExampleReader()
        train = reader.read(trainset, "trainset")
        dev = None if valset is None else reader.read(valset, "valset")
        test = None if testset is None else reader.read(testset, "testset")

        parts = None
        if dev is not None:
            parts = Split(tuple(train), tuple(dev), tuple(test or ()))
        elif train and test is not None:
            train, dev = hold_out(train, seed)
            parts = Split(tuple(train), tuple(dev), tuple(test))

        examples = [*train, *(dev or ()), *(test or ())]
        benchmark = cls(examples, Source("examples", _digest(examples), sample=False))
        benchmark.predefined_split = parts
        if callable(metric):
            benchmark.scorer = Combined(FunctionScorer(metric), TokenF1(), ExactMatch())
        elif metric is not None:
            benchmark.scorer = cls.make_scorer(metric)
        return benchmark

    def split(
        self,
        train: int | None = None,
        dev: int | None = None,
        test: int | None = None,
        seed: int = 0,
        min_dev: int = MIN_QUESTIONS,
    ) -> Split:
        """Return the parts that the user made, each cut to the size that is asked for; or else split as a file is."""
        if self.predefined_split is None:
            return super().split(train, dev, test, seed, min_dev)
        return Split(
            self.predefined_split.train[:train], self.predefined_split.dev[:dev], self.predefined_split.test[:test]
        )

    def candidates_for_dev(self, seed: int = 0) -> list[dspy.Example]:
        """Return every example that dev can hold."""
        return super().candidates_for_dev(seed) if self.predefined_split is None else list(self.predefined_split.dev)

    def candidates_for_test(self, seed: int = 0) -> list[dspy.Example]:
        """Return every example that test can hold."""
        return super().candidates_for_test(seed) if self.predefined_split is None else list(self.predefined_split.test)


class _ExampleReader:
    """Reads lists of examples; equal histories of one user become one object, so that their memory is written once."""

    def __init__(self) -> None:
        self._histories: dict[tuple[str, str], History] = {}
        self._ids: set[str] = set()

    def read(self, examples: Iterable[dspy.Example], name: str) -> list[dspy.Example]:
        """Return the examples of a list with the fields and inputs that programs take.

        Raises:
            DataError: An example does not fit; the message says which, and why.
        """
        return [self._read_one(example, f"{name}[{number}]") for number, example in enumerate(examples)]

    def _read_one(self, example: dspy.Example, where: str) -> dspy.Example:
        if not isinstance(example, dspy.Example | Mapping):
            raise DataError(f"{where}: expected a dspy.Example, got {type(example).__name__}")
        fields = dict(example.items())
        missing = [name for name in REQUIRED_FIELDS if fields.get(name) is None]
        if missing:
            found = ", ".join(map(str, fields)) or "nothing"
            raise DataError(
                f"{where}: lacks {', '.join(missing)}; found: {found}; expected: {', '.join(REQUIRED_FIELDS)}"
            )
        for name in ("question", "answer"):
            if not isinstance(fields[name], str | int | float):
                raise DataError(f"{where}: {name} is {type(fields[name]).__name__}, expected a text")

        history = self._history(fields, where)
        identifier = str(fields.get("id") or f"{history.id}:{len(self._ids)}")
        if identifier in self._ids:
            raise DataError(f"{where}: id {identifier!r} is used twice; give every example an id of its own")
        self._ids.add(identifier)

        evidence = tuple(dict.fromkeys(map(str, fields.get("evidence") or ())))
        for turn in evidence:
            if turn not in history.turns:
                raise DataError(f"{where}: evidence {turn!r} is no turn of its history, whose turns are like D1:1")

        fields |= {
            "history": history,
            "question": str(fields["question"]),
            "answer": str(fields["answer"]),
            "id": identifier,
            "category": str(fields.get("category") or "all"),
            "evidence": evidence,
            "evidence_ids": evidence,
        }
        return dspy.Example(fields).with_inputs("history", "question", "evidence_ids")

    def _history(self, fields: Mapping[str, Any], where: str) -> History:
        given = fields["history"]
        try:
            history = given if isinstance(given, History) else History.parse(given, id="")
        except DataError as error:
            raise DataError(f"{where}: {str(error).removeprefix('history ')}") from error
        if not history.turns:
            raise DataError(f"{where}: its history holds no turns")
        named = str(fields.get("user") or history.id or history.digest[:12])
        if named != history.id:
            history = History(id=named, items=history.items)
        return self._histories.setdefault((history.id, history.digest), history)


def hold_out(examples: Sequence[dspy.Example], seed: int) -> tuple[list[dspy.Example], list[dspy.Example]]:
    """Split examples into two thirds and one third; no conversation is in both where there are three or more.

    Args:
        examples: With histories.
        seed: Chooses what is held out.
    """
    wanted = len(examples) // 3
    groups = list(dict.fromkeys(example.history.id for example in examples))
    rng = random.Random(seed)
    if len(groups) < 3:
        order = rng.sample(range(len(examples)), len(examples))
        held_numbers = set(order[:wanted])
        kept = [example for number, example in enumerate(examples) if number not in held_numbers]
        held = [example for number, example in enumerate(examples) if number in held_numbers]
        return kept, held

    held_groups: set[str] = set()
    held_count = 0
    for group in rng.sample(groups, len(groups)):
        if held_count >= wanted:
            break
        held_groups.add(group)
        held_count += sum(example.history.id == group for example in examples)
    kept = [example for example in examples if example.history.id not in held_groups]
    held = [example for example in examples if example.history.id in held_groups]
    return kept, held


def _digest(examples: Sequence[dspy.Example]) -> str:
    """Return a sha256 of everything about the examples that a score depends on."""
    rows = [
        [
            example.id,
            example.history.id,
            example.history.digest,
            example.question,
            example.answer,
            example.category,
            list(example.evidence),
        ]
        for example in examples
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
