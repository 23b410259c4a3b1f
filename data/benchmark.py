"""A benchmark: examples with gold answers, and the official metric that scores an answer.

Every benchmark file of this folder subclasses `Benchmark` and fills in `examples` and `score`. An example is a
`dspy.Example` whose inputs are `history`, the query fields of its task (`question`), and `focus` (ids of the gold
evidence turns: no predictor ever sees it, only traces are cut by it); its labels are `answer`, `category`, `id`.

Example:
    >>> benchmark = Locomo.load("locomo10.json")
    >>> split = benchmark.split(train=60, seed=0)
    >>> benchmark.score(split.test[0], dspy.Prediction(answer="7 May 2023")).value
    1.0
"""

from __future__ import annotations

import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import dspy

from ..errors import DataError, UnknownNameError, UserError
from ..records import History
from ..signatures.judges import JudgeAnswer, judge_hash
from .confusion import Answered, Confusion
from .judge import AnswerJudge, AnyJudge, Judge


@dataclass(frozen=True)
class Score:
    """What a metric says of one answer."""

    value: float
    """The headline score of this answer, 0 to 1."""
    feedback: str
    """One or two sentences for a reflective optimizer: what was wrong, and what a right answer does."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further metrics by name, e.g. {"f1": .5, "bleu1": .4}."""


@dataclass(frozen=True)
class Source:
    """Where the examples came from, for manifests and tables."""

    path: str
    sha256: str
    sample: bool
    """True for the sample that ships with Mempiler: a wiring check, not comparable with published numbers."""

    @classmethod
    def of(cls, path: Path, sample: bool = False) -> Source:
        """Describes the file at `path`, which must be there."""
        with path.open("rb") as file:
            return cls(str(path), hashlib.file_digest(file, "sha256").hexdigest(), sample)


@dataclass(frozen=True)
class Finding:
    """Something a reader noticed in a file."""

    kind: str
    """What sort of thing, for counting, e.g. "dangling evidence"."""
    where: str
    """The row, as its author finds it, e.g. "conv-26:17" or "line 3, column 'answer'"."""
    message: str
    fatal: bool = False
    """True when the benchmark refuses to load the file because of it; else the reader copes."""


Note = Callable[[Finding], None]
"""What a reader tells its findings to: `refuse_fatal` when loading, a list's `append` when checking."""


@dataclass(frozen=True)
class Reading:
    """What a reader made of a file: every history, also those without a question, and the examples."""

    histories: tuple[History, ...]
    examples: tuple[dspy.Example, ...]


def refuse_fatal(path: Path) -> Note:
    """A `Note` that raises a DataError for the first fatal finding and passes over the others."""

    def note(finding: Finding) -> None:
        if finding.fatal:
            raise DataError(f"{path}: {finding.where}: {finding.message}")

    return note


@dataclass(frozen=True)
class Split:
    """Examples cut into train, dev and test.

    No conversation is in both train and the others, unless there is only one; no question is in two parts.
    """

    train: tuple[dspy.Example, ...]
    dev: tuple[dspy.Example, ...]
    test: tuple[dspy.Example, ...]

    @property
    def digest(self) -> str:
        """sha256 over the example ids of the three parts."""
        ids = [[str(example.id) for example in part] for part in (self.train, self.dev, self.test)]
        return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


class Benchmark(ABC):
    """Examples plus the official metric for one task.

    Args:
        examples: All examples, in file order.
        source: Where they came from.
    """

    name: ClassVar[str]
    """The name on the command line."""
    task: ClassVar[str] = "question-answering"
    """The task of `programs.tasks.task` that its examples are for."""
    method_settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings of methods, by name, that suit this benchmark better than the methods' own defaults."""
    category_names: ClassVar[Mapping[str, str]] = {}
    """What tables call the categories, where the benchmark's own names are numbers."""
    retrieval_depth: ClassVar[int] = 0
    """How many hits of a memory's search `retrieval` looks at."""
    expected: ClassVar[tuple[str, ...]] = ()
    """Categories that tables list with n = 0 where no question is of them."""
    metric_name: str
    """What `score` measures, as tables name it, e.g. "token F1"."""
    needs_judge: bool = False
    """Whether `score` asks a judge; whoever runs the benchmark then calls `set_judge` first."""
    judge_prompt: ClassVar[type[dspy.Signature]] = JudgeAnswer
    """What the judge is asked with, for its hash before one is set."""
    judge: AnswerJudge | None = None
    """Who judges answers, e.g. a `data.judge.Judge`."""

    def __init__(self, examples: Sequence[dspy.Example], source: Source) -> None:
        if not examples:
            raise DataError(f"{source.path}: holds no examples for {self.name}")
        self.examples = tuple(examples)
        self.source = source

    @classmethod
    @abstractmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> Benchmark:
        """Reads the genuine file at `path`, or the bundled sample when it is None."""

    @classmethod
    def refuse_options(cls, options: Iterable[str], known: Iterable[str]) -> None:
        """Raises UnknownNameError for the first load option that is not in `known`."""
        known = tuple(known)
        for option in options:
            if option not in known:
                raise UnknownNameError(f"option of {cls.name}", option, known)

    @abstractmethod
    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores one answer by the official metric."""

    def answer(self, program: Callable[..., dspy.Prediction], example: dspy.Example) -> dspy.Prediction:
        """Asks a program; benchmarks that are conversations hold one with it."""
        return program(**example.inputs())

    def set_judge(self, lm: Any, adapter: dspy.Adapter | None = None) -> None:
        """Makes the judge that `score` asks; benchmarks with another judging prompt make their own."""
        self.judge = Judge(lm, adapter)

    @property
    def judge_hash(self) -> str | None:
        """Names the judge's prompt, for tables and manifests; None where no judge is asked."""
        if not self.needs_judge:
            return None
        return judge_hash(self.judge_prompt) if self.judging is None else self.judging.hash

    @property
    def judging(self) -> AnyJudge | None:
        """The judge that `score` asks, whatever it asks it; None before one is set."""
        return self.judge

    def judged(self, example: dspy.Example, answer: str) -> tuple[float, str]:
        """Asks the judge about an answer, for benchmarks with `needs_judge`.

        Returns:
            1 or 0, and the judge's reason as an addition to the feedback ("" without one).

        Raises:
            UserError: No judge is set.
            AdapterParseError: The judge's reply stays unparseable.
            LMError: The judge's endpoint failed.
        """
        if self.judge is None:
            raise UserError(f"{self.name} scores by a judge here, and none is set; pass --judge-lm MODEL")
        verdict = self.judge(example.question, example.answer, answer)
        return float(verdict.correct), f" The judge says: {verdict.reasoning}" if verdict.reasoning else ""

    def aggregate(self, rows: Sequence[Answered]) -> Mapping[str, float]:
        """Metrics of all answers together that are no mean over answers, e.g. macro-F1; {} where there are none.

        Args:
            rows: The answers; those with a failure have none. Not all questions need be among them.
        """
        return {}

    def retrieval(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> Mapping[str, float]:
        """The benchmark's own metrics of what a memory's plain search finds, beside the recall of evidence.

        Args:
            example: The question; one that names no evidence is not measured.
            ranked: For every hit, best first, the ids of its source turns.
        """
        return {}

    def confusion(self, rows: Sequence[Answered]) -> Confusion | None:
        """The confusion matrix of the answers, for benchmarks whose published result is one."""
        return None

    def counts(self, example: dspy.Example) -> bool:
        """Whether the example is part of the headline score (LoCoMo leaves its category 5 out)."""
        return True

    def category(self, example: dspy.Example) -> str:
        """The category an example is reported under."""
        return str(example.get("category") or "all")

    def group(self, example: dspy.Example) -> str:
        """The conversation or user of an example: the unit that splits and intervals respect."""
        return example.history.id

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Train, dev and test groups where the field has agreed on them, else None."""
        return None

    def split(self, train: int | None = None, dev: int | None = None, test: int | None = None, seed: int = 0) -> Split:
        """Cuts the examples by conversation, then takes as many questions as asked for (None: all there are).

        The split of conversations is the field's own where there is one; otherwise a seeded shuffle gives about
        half of the conversations to train and a quarter each to dev and test. With two conversations the first is
        train and the questions of the second are cut into dev (one third) and test; with one, all questions are
        cut in three. Which questions are taken is seeded, part by part: another size of train leaves the test
        questions as they were, and a larger part contains the smaller one. They are interleaved by conversation, so
        that parallel workers do not wait for one memory.

        Raises:
            DataError: A part that is asked for would be empty, or its size is negative.
        """
        groups = list(dict.fromkeys(self.group(example) for example in self.examples))
        parts = self._parts(groups, random.Random(seed))
        chosen = []
        for name, pool, size in zip(("train", "dev", "test"), parts, (train, dev, test), strict=True):
            if size is not None and size < 0:
                raise DataError(f"{name}={size}: the number of {name} questions cannot be negative")
            if size != 0 and not pool:
                counts = f"{len(self.examples)} questions in {len(groups)} conversations"
                raise DataError(f"{self.source.path}: {counts} leave none for {name}; add more, or ask for {name}=0")
            taken = pool if size is None else random.Random(f"{seed} {name}").sample(pool, len(pool))[:size]
            chosen.append(tuple(self.interleave(taken)))
        return Split(*chosen)

    def interleave(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Orders examples round-robin over their conversations (stable within each)."""
        queues: dict[str, list[dspy.Example]] = {}
        for example in examples:
            queues.setdefault(self.group(example), []).append(example)
        rounds = max((len(queue) for queue in queues.values()), default=0)
        return [queue[n] for n in range(rounds) for queue in queues.values() if n < len(queue)]

    def _parts(self, groups: list[str], rng: random.Random) -> list[list[dspy.Example]]:
        fixed = self.fixed_split()
        if fixed is not None:
            return [self._of(part) for part in fixed]
        if len(groups) >= 3:
            order = rng.sample(groups, len(groups))
            held = max(1, len(groups) // 4)
            return [self._of(set(part)) for part in (order[2 * held :], order[:held], order[held : 2 * held])]
        if len(groups) == 2:
            held_out = rng.sample(self._of({groups[1]}), len(self._of({groups[1]})))
            third = len(held_out) // 3
            return [self._of({groups[0]}), held_out[:third], held_out[third:]]
        everything = rng.sample(list(self.examples), len(self.examples))
        third = len(everything) // 3
        return [everything[2 * third :], everything[:third], everything[third : 2 * third]]

    def _of(self, groups: set[str]) -> list[dspy.Example]:
        return [example for example in self.examples if self.group(example) in groups]
