"""A benchmark: a dataset, the scorer of its official metric, and a simulated user where its answers are conversations.

Each says how a file is read (`read`) and which scorers there are (`metrics`); `load` is the same for all.
"""

from __future__ import annotations

import copy
import inspect
import reprlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import dspy
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import DataError, UnknownNameError, UserError
from ..records import History
from .dataset import Dataset, FindingListener, Source, Split, questions_after, raise_on_fatal
from .judge import AnyJudge
from .samples import sample
from .scorer import OptimizerStep, Score, Scorer
from .split import (
    MIN_QUESTIONS,
    Question,
    Sizes,
    SplitCandidates,
    candidates_for_dev,
    candidates_for_test,
    cut_questions,
    split_questions,
)

_FINITE = ConfigDict(allow_inf_nan=False)
Program = Callable[..., dspy.Prediction]


class Interaction(ABC):
    """Conversations between a simulated user and two assistants: the program under test, and a rival beside it.

    Both are callables: a benchmark does not depend on programs. An optimizer runs a program on one example at a time,
    not through a conversation, so nothing can be compiled on such a benchmark.
    """

    against: str
    """The method that the rival is built from."""
    replies: ClassVar[float]
    """Replies of each side in an average conversation, for plans."""

    @abstractmethod
    def with_simulated_user(self, lm: Any, adapter: dspy.Adapter | None, rival: Program) -> Self:
        """A copy with a user that a language model plays, and a rival."""

    @abstractmethod
    def converse(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Lets the user talk with the program and with the rival.

        Raises:
            UserError: There is no simulated user, or no rival.
        """


class Benchmark:
    """Examples plus the official metric for one task.

    Args:
        examples: All examples, in file order.
        source: Where they came from.
        metric: One of `metrics`; the first if None.
        conversations: Ids of all conversations of the files; those of the examples if None.

    Raises:
        DataError: There is no example.
        UnknownNameError: There is no such metric.
    """

    name: ClassVar[str]
    """The name on the command line."""
    task: str = "question-answering"
    """The task of `programs.tasks` that its examples are for."""
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]]
    """What makes the scorer of each metric."""
    categories: ClassVar[Mapping[str, str]] = {}
    """What tables call the categories, where the benchmark's own names are numbers."""
    expected_categories: ClassVar[tuple[str, ...]] = ()
    """Categories that tables list with n = 0 where no question is of them."""
    sample: ClassVar[str | None] = None
    """Its bundled sample, below `data/samples`."""
    generated: ClassVar[bool] = False
    """Whether its data are made by a seed and read from no file."""
    interaction: Interaction | None = None
    """Who talks with the program, where answers are conversations."""

    def __init__(
        self,
        examples: Iterable[dspy.Example],
        source: Source,
        metric: str | None = None,
        conversations: Iterable[str] | None = None,
    ) -> None:
        self.examples, self.source = tuple(examples), source
        if not self.examples:
            raise DataError(f"{source.path}: holds no examples")
        self.conversations = frozenset(map(self.group, self.examples) if conversations is None else conversations)
        self.questions_by_group: Mapping[str, int] = Counter(map(self.group, self.examples))
        """How many questions the files hold about each conversation or user, those of other categories included."""
        self.metric_name = metric or next(iter(self.metrics))
        self.scorer = self.make_scorer(self.metric_name)

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset | None:
        """Reads files and reports findings to `note`; None if only a `load` of its own can read them.

        Further parameters, by name alone, are options of `load` and of `evaluate --check`; one that is called
        `categories` is given the categories to keep.
        """
        return None

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        categories: str | Iterable[str | int] | None = None,
        **options: Any,
    ) -> Self:
        """Reads the genuine files at `path`, or the bundled sample when it is None.

        Args:
            path: A file or folder.
            metric: One of `metrics`; the first if None.
            categories: Those to keep, as a list or with commas between them; all when None.
            **options: Those of `read`.

        Raises:
            DataError: A file is not of this form, or holds no question of these categories.
            UnknownNameError: There is no such metric, category or option.
            UserError: An option is of another kind.
        """
        cls.refuse_options(options, (name for name in cls.options() if name not in ("metric", "categories")))
        if metric is not None:
            cls.make_scorer(metric)
        if path is None and cls.sample is None:
            raise DataError(f"{cls.name} has no sample; give the path of its file with --data")
        kept = cls.resolve_categories(categories)
        options = coerce_options(cls.name, cls.read, options)
        if kept and "categories" in inspect.signature(cls.read).parameters:
            options["categories"] = kept
        with sample() as samples:
            where = samples / str(cls.sample) if path is None else Path(path)
            reading = cls.read(where, raise_on_fatal(where), **options)
            assert reading is not None, "a benchmark without `read` has a `load` of its own"
            examples = [each for each in reading.examples if kept is None or each.category in kept]
            if kept and not examples:
                raise DataError(f"{where}: no question of the category {', '.join(sorted(kept))}; choose others")
            made = cls(examples, Source.of(where, path is None, reading.files), metric)
        made.conversations = frozenset(history.id for history in reading.histories)
        made.questions_by_group = Counter(map(made.group, reading.examples))
        return made

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """What `load` takes by name."""
        parameters = [each for way in (cls.load, cls.read) for each in inspect.signature(way).parameters.values()]
        names = dict.fromkeys(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
        return tuple(name for name in names if name != "categories" or cls.categories)

    @classmethod
    def resolve_categories(cls, categories: str | Iterable[str | int] | None) -> frozenset[str] | None:
        """The categories that some names mean; None for all.

        Raises:
            UnknownNameError: There is no such category.
        """
        if categories is None:
            return None
        if not cls.categories:
            cls.refuse_options(("categories",), cls.options())
        found: set[str] = set()
        for part in categories.split(",") if isinstance(categories, str) else categories:
            meant = cls.resolve_category(str(part).strip())
            if not meant:
                raise UnknownNameError(f"category of {cls.name}", str(part).strip(), cls.categories)
            found |= meant
        return frozenset(found)

    @classmethod
    def resolve_category(cls, name: str) -> set[str]:
        """The categories that a name means."""
        return {name} & cls.categories.keys()

    @classmethod
    def make_scorer(cls, metric: str) -> Scorer:
        """The scorer of a metric."""
        if metric not in cls.metrics:
            raise UnknownNameError(f"metric of {cls.name}", metric, cls.metrics)
        return cls.metrics[metric]()

    @classmethod
    def refuse_options(cls, options: Iterable[str], known: Iterable[str]) -> None:
        """Raises UnknownNameError for the first load option that is not in `known`."""
        known = tuple(known)
        for option in options:
            if option not in known:
                raise UnknownNameError(f"option of {cls.name}", option, known)

    def with_judges(self, make: Callable[[type[Any]], AnyJudge]) -> Self:
        """A copy whose judges are made by `make`, which is given the class of each."""
        new = copy.copy(self)
        new.scorer = self.scorer.with_judges(make)
        return new

    def with_simulated_user(self, lm: Any, adapter: dspy.Adapter | None, rival: Program) -> Self:
        """A copy with a simulated user and a rival bound."""
        new = copy.copy(self)
        new.interaction = self.interaction and self.interaction.with_simulated_user(lm, adapter, rival)
        return new

    def answer(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Asks a program, or lets the simulated user talk with it."""
        if self.interaction is not None:
            return self.interaction.converse(program, example)
        return program(**example.inputs())

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores one answer; see `Scorer.score`."""
        return self.scorer.score(example, prediction)

    def score_step(self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep) -> Score:
        """Score one answer for an optimizer; see `Scorer.score_step`."""
        return self.scorer.score_step(example, prediction, step)

    def metric(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Any:
        """Score one answer, as a metric that every optimizer of DSPy takes.

        Returns:
            A number from 0 to 1; where GEPA asks about one predictor, a prediction with `score` and `feedback`.
        """
        score = self.score_step(gold, pred, OptimizerStep(trace, pred_name, pred_trace))
        if pred_name is None:
            return score.value
        return dspy.Prediction(score=score.value, feedback=score.feedback)

    @cached_property
    def _default_split(self) -> Split:
        return self.split()

    @property
    def train(self) -> tuple[dspy.Example, ...]:
        """The examples to learn from, in the split that `compile` uses with seed 0."""
        return self._default_split.train

    @property
    def dev(self) -> tuple[dspy.Example, ...]:
        """The examples that decide whether a compiled program is better."""
        return self._default_split.dev

    @property
    def test(self) -> tuple[dspy.Example, ...]:
        """The examples that are scored before and after."""
        return self._default_split.test

    def in_headline(self, example: dspy.Example) -> bool:
        """Whether the example is part of the headline score."""
        return self.scorer.in_headline(example)

    @property
    def judge_free_metrics(self) -> list[str]:
        """Its metrics that need no judge."""
        return [name for name, make in self.metrics.items() if not make().required_judges]

    @property
    def has_unanswerable(self) -> bool:
        """Whether some of its questions ask what was never said, so that declining is the right answer to them."""
        return False

    @property
    def english(self) -> bool:
        """Whether its questions are in English, or in another language that is written in its letters."""
        letters = [char for example in self.examples[:100] for char in str(example.question) if char.isalpha()]
        return sum(char.isascii() for char in letters) * 2 >= len(letters)

    def category(self, example: dspy.Example) -> str:
        """The category an example is reported under."""
        return str(example.get("category") or "all")

    def group(self, example: dspy.Example) -> str:
        """The conversation or user of an example: the unit that splits and intervals respect."""
        return example.history.id

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Train, dev and test groups where the field has agreed on them, else None."""
        return None

    def split(
        self,
        train: int | None = None,
        dev: int | None = None,
        test: int | None = None,
        seed: int = 0,
        min_dev: int = MIN_QUESTIONS,
    ) -> Split:
        """Cut the examples into train, dev and test, as `data.split` describes.

        The field's own split of conversations is used where there is one. Another size of one part leaves the test
        questions as they were, and a larger part contains the smaller one. Questions are interleaved by conversation,
        so that parallel workers do not wait for one memory.

        Args:
            train: How many questions of train; None for all of them. A part may hold fewer than that.
            dev: Likewise.
            test: Likewise.
            seed: Shuffles the conversations, and their questions.
            min_dev: So many questions that count are wanted in dev if its size is not given.

        Raises:
            DataError: A part that is asked for would be empty, or its size is negative.
        """
        sizes = Sizes(train, dev, test)
        for name, size in asdict(sizes).items():
            if size is not None and size < 0:
                raise DataError(f"{name}={size}: the number of {name} questions cannot be negative")

        parts = split_questions(self._cut(seed), sizes, seed, min_dev)
        interleaved: list[tuple[dspy.Example, ...]] = []
        for (name, size), questions in zip(asdict(sizes).items(), parts, strict=True):
            if size != 0 and not questions:
                conversations = len(set(map(self.group, self.examples)))
                counts = f"questions: {len(self.examples)}, conversations: {conversations}"
                raise DataError(f"{self.source.path}: none left for {name} ({counts}); add more, or set --{name} 0")
            examples = [question.example for question in questions]
            interleaved.append(tuple(self.interleave(examples)))
        return Split(*interleaved)

    def candidates_for_dev(self, seed: int = 0) -> list[dspy.Example]:
        """Return every question that dev can hold, in the order in which `split(dev=N)` takes them."""
        return [question.example for question in candidates_for_dev(self._cut(seed), seed)]

    def candidates_for_test(self, seed: int = 0) -> list[dspy.Example]:
        """Return every question that test can hold, in the order in which `split(test=N)` takes them."""
        return [question.example for question in candidates_for_test(self._cut(seed), seed)]

    def _cut(self, seed: int) -> SplitCandidates:
        """Decide which examples may be in which part of a split."""
        questions = [
            Question(example, position, self.group(example), self.in_headline(example))
            for position, example in enumerate(self.examples)
        ]
        return cut_questions(questions, seed, self.fixed_split(), self.questions_by_group)

    def interleave(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Orders examples round-robin over their conversations (stable within each)."""
        queues: dict[str, list[dspy.Example]] = {}
        for example in examples:
            queues.setdefault(self.group(example), []).append(example)
        rounds = max((len(queue) for queue in queues.values()), default=0)
        return [queue[n] for n in range(rounds) for queue in queues.values() if n < len(queue)]

    def questions_after(
        self, history: History, sessions: int, examples: Sequence[dspy.Example]
    ) -> Sequence[dspy.Example]:
        """The questions that can be asked after the first sessions of a history, with the answers of that moment.

        Args:
            history: The whole past.
            sessions: How many sessions of it are over.
            examples: The questions about it that may be asked.
        """
        return questions_after(examples, history, sessions)


def coerce_options(benchmark: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the types that a function's hints ask for; a number becomes the text of it where one is due.

    Raises:
        UserError: An option is of another kind, or out of its range; the message names it.
    """
    try:
        hints = get_type_hints(function, include_extras=True) if options else {}
    except NameError:  # hints of a class of one's own that are there for type checkers alone
        hints = {}
    return {name: _fitted(f"{benchmark}: {name}", hints.get(name, Any), value) for name, value in options.items()}


def _fitted(where: str, kind: Any, value: Any) -> Any:
    as_text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    for given in (value, as_text):
        try:
            found = TypeAdapter[Any](kind, config=_FINITE).validate_python(given)
        except ValidationError as error:
            problem = error.errors()[-1]["msg"]
        else:
            # What is made of a list may be an iterator that can be read once only.
            return found if isinstance(found, int | float | str) else given
    raise UserError(f"{where} = {reprlib.repr(value)}: {problem}")
