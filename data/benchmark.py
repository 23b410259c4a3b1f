"""The contract of a benchmark: `Benchmark`, a dataset with the scorers of its metrics.

A benchmark says how its file is read and which metrics it has:

    class Trivia(Benchmark):
        name = "trivia"
        metrics = {"city": NamesTheCity}

        @classmethod
        def read(cls, path: Path, on_finding: FindingListener) -> Dataset:
            histories = []
            examples = []
            for user in read_json(path):
                history = History.parse(user["chat"], id=user["user"])
                histories.append(history)
                for row in user["questions"]:
                    if not row["city"]:
                        on_finding(Finding("no answer", row["id"], "the city is empty"))
                        continue
                    example = dspy.Example(
                        id=row["id"],
                        category=row["category"],
                        history=history,
                        question=row["question"],
                        evidence_ids=tuple(row["evidence"]),
                        answer=row["city"],
                        city=row["city"],
                    )
                    examples.append(example.with_inputs("history", "question", "evidence_ids"))
            return Dataset(tuple(histories), tuple(examples))

`Trivia.load("trivia.json")` then returns the benchmark with its first metric, and
`mempiler evaluate METHOD --benchmark trivia:Trivia --data trivia.json` scores a method by it. What
an example must hold is said in `dataset.py`; the scorer `NamesTheCity` stands in `scorer.py`.

Questions that exist as `dspy.Example` objects need no class and no file:
`Benchmark.from_examples(examples, metric=names_the_city)` makes a benchmark of them.
"""

from __future__ import annotations

import copy
import inspect
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy

from ..errors import DataError, ProgramError, UnknownNameError, UserError
from ..records import History
from ..text import one_line
from .common_scorers import Combined, ExactMatch, JudgeScorer, TokenF1
from .dataset import (
    Dataset,
    FindingListener,
    Source,
    Split,
    category_of,
    questions_after,
    raise_on_fatal,
)
from .example_checks import refuse_fatal_problems, refuse_wrong_score
from .example_digest import digest_of_examples
from .examples import ExampleReader, hold_out_a_third
from .interaction import Interaction, Program
from .judge import JudgeFactory
from .load_options import coerce_options
from .metric_functions import FunctionScorer
from .samples import sample
from .scorer import OptimizerStep, Score, Scorer, Trace
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
from .support import SUPPORT, Support


class Benchmark:
    """Examples plus the official metric for one task.

    What a benchmark defines:

    | member | required? | default |
    |---|---|---|
    | `name` | yes, if files are read | "examples" |
    | `metrics` | no | "f1", "exact", "judge" and "support", for any language |
    | `read` | yes, or a `load` of its own | |
    | `task` | no | "question-answering" |
    | `categories`, `expected_categories` | no | none: `--categories` is refused |
    | `resolve_category` | no | a name means the category of that name |
    | `sample` | no | none: `load` needs a path |
    | `generated` | no | False: the data are read from a file |
    | `interaction` | no | None: a program is asked single questions |
    | `category` | no | the example's `category`, else "all" |
    | `group` | no | the id of the example's history |
    | `fixed_split` | no | None: conversations are split by a seed |
    | `questions_after` | no | a question is due when its evidence has been said |
    | `has_unanswerable` | no | False |

    Everything else is for callers and stays as it is.

    Args:
        examples: All examples, in file order.
        source: Where they came from.
        metric: One of `metrics`; the first if None.
        conversations: Ids of all conversations of the files; those of the examples if None.

    Raises:
        DataError: There is no example, or one of them is unusable (`example_checks`).
        UnknownNameError: There is no such metric.
    """

    name: ClassVar[str] = "examples"
    """The name on the command line."""
    task: str = "question-answering"
    """The task of `programs.tasks` that its examples are for."""
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {
        "f1": lambda: Combined(TokenF1(), ExactMatch()),
        "exact": lambda: Combined(ExactMatch(), TokenF1()),
        "judge": lambda: Combined(JudgeScorer(), TokenF1(), ExactMatch()),
        SUPPORT: Support,
    }
    """The scorer class, or a function that makes the scorer, of each metric by name."""
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
    predefined_split: Split | None = None
    """The parts that the caller of `from_examples` made; None where `split` makes them."""

    def __init__(
        self,
        examples: Iterable[dspy.Example],
        source: Source,
        metric: str | None = None,
        conversations: Iterable[str] | None = None,
    ) -> None:
        self.refuse_wrong_class()
        self.examples = tuple(examples)
        self.source = source
        if not self.examples:
            raise DataError(f"{source.path}: holds no examples")
        refuse_fatal_problems(self.examples, self.source.path)

        groups = [self.group(example) for example in self.examples]
        self.conversations = frozenset(groups if conversations is None else conversations)
        self.questions_by_group: Mapping[str, int] = Counter(groups)
        """How many questions the files hold about each conversation or user.

        Questions of categories that are left out are counted too.
        """
        self.metric_name = metric or next(iter(self.metrics))
        self.scorer = self.make_scorer(self.metric_name)

    @classmethod
    def read(cls, path: Path, on_finding: FindingListener) -> Dataset | None:
        """Read files, and report what is wrong in them to `on_finding`.

        Subclasses override this, or `load`. They may add keyword-only parameters, which become
        options of `load` and of `evaluate --check`. `load` passes the categories to keep to a
        parameter that is called `categories`.

        Returns:
            What the files hold; None if the class has only a `load` that reads them.
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
        """Read the genuine files at `path`, or the bundled sample when it is None.

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
        cls.refuse_wrong_class()
        cls.refuse_inherited_name()
        cls._refuse_missing_reader()
        # Wrong options are refused before a long file is read.
        read_options = [name for name in cls.options() if name not in ("metric", "categories")]
        cls.refuse_options(options, read_options)
        if metric is not None:
            cls.make_scorer(metric)
        if path is None and cls.sample is None:
            raise DataError(f"{cls.name} has no sample; give the path of its file with --data")
        wanted_categories = cls.resolve_categories(categories)
        options = coerce_options(cls.name, cls.read, options)
        if wanted_categories and "categories" in inspect.signature(cls.read).parameters:
            options["categories"] = wanted_categories

        with sample() as samples:
            file = samples / str(cls.sample) if path is None else Path(path)
            dataset = cls.read_file(file, raise_on_fatal(file), options)
            assert dataset is not None, "a benchmark without `read` has a `load` of its own"

            # Those of other categories too: below, the questions of each conversation are counted.
            refuse_fatal_problems(dataset.examples, str(file))
            examples = dataset.examples
            if wanted_categories is not None:
                examples = [each for each in examples if category_of(each) in wanted_categories]
            if wanted_categories and not examples:
                names = ", ".join(sorted(wanted_categories))
                raise DataError(f"{file}: no question of the category {names}; choose others")
            benchmark = cls(examples, Source.of(file, path is None, dataset.files), metric)

        # The files hold more than the examples: histories without a question, other categories.
        benchmark.conversations = frozenset(history.id for history in dataset.histories)
        benchmark.questions_by_group = Counter(map(benchmark.group, dataset.examples))
        return benchmark

    @classmethod
    def read_file(
        cls, path: Path, on_finding: FindingListener, options: Mapping[str, Any]
    ) -> Dataset | None:
        """Call `read`, and turn the errors of a reader that meets unexpected data into DataErrors.

        Raises:
            DataError: The file is not of the form that `read` expects. The message names the line
                of the reader that failed.
        """
        try:
            dataset = cls.read(path, on_finding, **options)
            if isinstance(dataset, Dataset):
                dataset = cls._with_tuples(dataset, path)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            reader_line = f"{Path(frame.filename).name}, line {frame.lineno}"
            raise DataError(
                f"{path}: is not of the form that {cls.name} reads: "
                f"{type(error).__name__} {error} ({reader_line})"
            ) from error

        if dataset is None and not cls._overrides("read"):
            return None
        if not isinstance(dataset, Dataset):
            raise DataError(
                f"{path}: read of {cls.__name__} returned {type(dataset).__name__}; "
                "return a Dataset"
            )
        return dataset

    @classmethod
    def _with_tuples(cls, dataset: Dataset, path: Path) -> Dataset:
        """Return what `read` returned, with its lists as tuples.

        A reader may yield its lists. It reads on while one goes through them, which works once.

        Raises:
            DataError: A list is missing, or a history is something else.
        """
        label = f"{path}: read of {cls.__name__} returned a Dataset"
        lists: dict[str, object] = {"histories": dataset.histories, "examples": dataset.examples}
        for name, entries in lists.items():
            if not isinstance(entries, Iterable):
                raise DataError(
                    f"{label} whose {name} are {one_line(repr(entries), 80)}; give a tuple of them"
                )

        histories = tuple(dataset.histories)
        for history in histories:
            if not isinstance(history, History):
                raise DataError(
                    f"{label} with the history {one_line(repr(history), 80)}; give History objects"
                )
        return replace(dataset, histories=histories, examples=tuple(dataset.examples))

    @classmethod
    def refuse_wrong_class(cls) -> None:
        """Refuse a class without a name or metrics.

        Raises:
            ProgramError: The class lacks one of them, or it is of another kind.
        """
        label = f"benchmark {cls.__module__}:{cls.__qualname__}"
        if not isinstance(cls.name, str) or not cls.name.strip():
            raise ProgramError(f"{label} has no name; give it one, as in name = 'trivia'")
        if not isinstance(cls.metrics, Mapping) or not cls.metrics:
            advice = "name at least one scorer, as in {'city': NamesTheCity}, or leave it out"
            raise ProgramError(f"{label}: metrics = {one_line(repr(cls.metrics), 80)}; {advice}")
        if not isinstance(cls.categories, Mapping):
            advice = "give the title of each category, as in {'1': 'multi-hop'}"
            raise ProgramError(
                f"{label}: categories = {one_line(repr(cls.categories), 80)}; {advice}"
            )
        for method in ("read", "load"):
            if not isinstance(inspect.getattr_static(cls, method), classmethod):
                raise ProgramError(
                    f"{label}: {method} is no classmethod; put @classmethod above it"
                )

    @classmethod
    def refuse_inherited_name(cls) -> None:
        """Refuse a class that reads files under the name of the examples of `from_examples`.

        Raises:
            ProgramError: It has no name of its own.
        """
        if cls is not Benchmark and cls.name == Benchmark.name:
            label = f"benchmark {cls.__module__}:{cls.__qualname__}"
            raise ProgramError(f"{label} has no name; give it one, as in name = 'trivia'")

    @classmethod
    def _refuse_missing_reader(cls) -> None:
        """Refuse a class whose files nothing reads.

        Raises:
            ProgramError: It overrides neither `read` nor `load`.
        """
        if not cls._overrides("read") and not cls._overrides("load"):
            raise ProgramError(
                f"benchmark {cls.__module__}:{cls.__qualname__} reads no files; "
                "write its classmethod read(cls, path, on_finding)"
            )

    @classmethod
    def _overrides(cls, method: str) -> bool:
        """Return whether the class has a classmethod of its own in the place of the inherited."""
        return inspect.getattr_static(cls, method) is not inspect.getattr_static(Benchmark, method)

    @classmethod
    def from_examples(
        cls,
        examples: Iterable[dspy.Example] = (),
        metric: str | Callable[..., Any] | None = None,
        *,
        valset: Iterable[dspy.Example] | None = None,
        testset: Iterable[dspy.Example] | None = None,
        seed: int = 0,
    ) -> Self:
        """Make a benchmark of a user's own examples, as `examples.py` describes them.

        Args:
            examples: What an optimizer learns from. Without the other lists, these examples are
                split into all three parts.
            metric: A function of an example and a prediction, in any form that DSPy or GEPA takes,
                or the name of one of `metrics`; the first of them if None.
            valset: What decides whether a compiled program is better. Without it, a third of the
                examples decides.
            testset: What is scored before and after compiling, and decides nothing.
            seed: Chooses the examples that are held out where there is no valset.

        Raises:
            DataError: An example lacks a field, or a field does not fit. The message names the list
                and the example.
            UnknownNameError: There is no metric of this name.
        """
        trainset = list(examples)
        valset = None if valset is None else list(valset)
        testset = None if testset is None else list(testset)
        reader = ExampleReader()
        for example_list in (trainset, valset, testset):
            reader.reserve_ids(example_list or ())

        train = reader.read(trainset, "trainset")
        dev = None if valset is None else reader.read(valset, "valset")
        test = None if testset is None else reader.read(testset, "testset")

        split: Split | None = None
        if dev is not None:
            split = Split(tuple(train), tuple(dev), tuple(test or ()))
        elif train and test is not None:
            train, dev = hold_out_a_third(train, seed)
            split = Split(tuple(train), tuple(dev), tuple(test))

        all_examples = [*train, *(dev or ()), *(test or ())]
        source = Source("examples", digest_of_examples(all_examples), sample=False)
        benchmark = cls(all_examples, source, None if callable(metric) else metric)
        benchmark.predefined_split = split
        if callable(metric):
            benchmark.scorer = Combined(FunctionScorer(metric), TokenF1(), ExactMatch())
        return benchmark

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the options of `load`, those of `read` included."""
        parameters = [
            *inspect.signature(cls.load).parameters.values(),
            *inspect.signature(cls.read).parameters.values(),
        ]
        names: list[str] = []
        for parameter in parameters:
            if parameter.kind is not parameter.KEYWORD_ONLY or parameter.name in names:
                continue
            # Without categories there is nothing to choose.
            if parameter.name != "categories" or cls.categories:
                names.append(parameter.name)
        return tuple(names)

    @classmethod
    def resolve_categories(
        cls, categories: str | Iterable[str | int] | None
    ) -> frozenset[str] | None:
        """Return the categories that some names mean; None for all.

        A name may mean several categories, see `resolve_category`.

        Raises:
            UnknownNameError: There is no such category, or the benchmark has no categories.
        """
        if categories is None:
            return None
        if not cls.categories:
            raise UnknownNameError(f"option of {cls.name}", "categories", cls.options())

        names = categories.split(",") if isinstance(categories, str) else categories
        resolved: set[str] = set()
        for name in names:
            plain_name = str(name).strip()
            matches = cls.resolve_category(plain_name)
            if not matches:
                raise UnknownNameError(f"category of {cls.name}", plain_name, cls.categories)
            resolved.update(matches)
        return frozenset(resolved)

    @classmethod
    def resolve_category(cls, name: str) -> set[str]:
        """Return the categories that a name means; none if it is unknown.

        A subclass may have names for several categories together.
        """
        return {name} if name in cls.categories else set()

    @classmethod
    def make_scorer(cls, metric: str) -> Scorer:
        """Return a new scorer of a metric.

        Raises:
            UnknownNameError: There is no such metric.
            ProgramError: What stands under its name makes no scorer.
        """
        if metric not in cls.metrics:
            raise UnknownNameError(f"metric of {cls.name}", metric, cls.metrics)

        advice = "give a Scorer class, or a function without arguments that makes a scorer"
        try:
            scorer = cls.metrics[metric]()
        except TypeError as error:
            # A metric function of two arguments, a scorer object, or a class without `score`.
            raise ProgramError(f"metric {metric!r} of {cls.name}: {error}; {advice}") from error
        if not isinstance(scorer, Scorer):
            kind = type(scorer).__name__
            raise ProgramError(f"metric {metric!r} of {cls.name} makes {kind}; {advice}")
        return scorer

    @classmethod
    def refuse_options(cls, options: Iterable[str], known: Iterable[str]) -> None:
        """Raise UnknownNameError for the first load option that is not in `known`."""
        known_names = tuple(known)
        for option in options:
            if option not in known_names:
                raise UnknownNameError(f"option of {cls.name}", option, known_names)

    def with_support_tokens(self, tokens: int) -> Self:
        """Return a copy whose metric counts so many tokens of what is recalled.

        Raises:
            UserError: Its metric is not `support`.
        """
        scorer = self.scorer
        if not isinstance(scorer, Support):
            raise UserError(
                f"support_tokens = {tokens}: goes with the metric {SUPPORT} alone,"
                f" not with {scorer.title}; add --metric {SUPPORT}, or leave it out"
            )
        new = copy.copy(self)
        new.scorer = scorer.with_budget(tokens)
        return new

    def with_judges(self, make_judge: JudgeFactory) -> Self:
        """Return a copy whose judges are made by `make_judge`, which gets the class of each."""
        bound = copy.copy(self)
        bound.scorer = self.scorer.with_judges(make_judge)
        return bound

    def with_simulated_user(
        self, lm: dspy.BaseLM, adapter: dspy.Adapter | None, rival: Program
    ) -> Self:
        """Return a copy whose conversations are held, if its answers are conversations.

        Args:
            lm: Plays the user.
            adapter: Formats the prompts of the simulated user.
            rival: A second program, which the user talks with too, for comparison.
        """
        bound = copy.copy(self)
        if self.interaction is not None:
            bound.interaction = self.interaction.with_simulated_user(lm, adapter, rival)
        return bound

    def answer(self, program: Program, example: dspy.Example) -> dspy.Prediction:
        """Ask a program, or let the simulated user talk with it."""
        if self.interaction is not None:
            return self.interaction.converse(program, example)
        return program(**example.inputs())

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Score one answer; see `Scorer.score`.

        Raises:
            UserError: The scorer returned a value that is no number from 0 to 1.
        """
        return self._checked(self.scorer.score(example, prediction), example)

    def score_step(
        self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep
    ) -> Score:
        """Score one answer for an optimizer; see `Scorer.score_step`."""
        return self._checked(self.scorer.score_step(example, prediction, step), example)

    def _checked(self, score: Score, example: dspy.Example) -> Score:
        """Return a score; refuse one that is no number from 0 to 1."""
        refuse_wrong_score(score, example, self.name, self.scorer.title)
        return score

    def metric(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Trace | None = None,
        pred_name: str | None = None,
        pred_trace: Trace | None = None,
    ) -> float | dspy.Prediction:
        """Score one answer, as a metric that every optimizer of DSPy takes.

        Returns:
            A number from 0 to 1. If `pred_name` is given, a prediction with `score` and `feedback`:
            GEPA, which names the predictor that it wants feedback for, expects one.
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
        """Return the examples to learn from, in the split that `compile` uses with seed 0."""
        return self._default_split.train

    @property
    def dev(self) -> tuple[dspy.Example, ...]:
        """Return the examples that decide whether a compiled program is better."""
        return self._default_split.dev

    @property
    def test(self) -> tuple[dspy.Example, ...]:
        """Return the examples that are scored before and after."""
        return self._default_split.test

    def in_headline(self, example: dspy.Example) -> bool:
        """Return whether the example is part of the headline score."""
        return self.scorer.in_headline(example)

    @property
    def judge_free_metrics(self) -> list[str]:
        """Return the names of its metrics that need no judge."""
        return [name for name, make in self.metrics.items() if not make().required_judges]

    @property
    def has_unanswerable(self) -> bool:
        """Return whether some questions ask what was never said, so that declining is right."""
        return False

    @property
    def english(self) -> bool:
        """Return whether its questions are in English, or in a language of the same letters."""
        text = "".join(str(example.question) for example in self.examples[:100])
        letters = [char for char in text if char.isalpha()]
        num_ascii = sum(char.isascii() for char in letters)
        return 2 * num_ascii >= len(letters)

    def category(self, example: dspy.Example) -> str:
        """Return the category an example is reported under."""
        return category_of(example)

    def group(self, example: dspy.Example) -> str:
        """Return the conversation or user of an example: what splits and intervals keep whole."""
        return example.history.id

    def fixed_split(self) -> tuple[set[str], set[str], set[str]] | None:
        """Return train, dev and test groups where the field has agreed on them, else None."""
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

        Parts that a caller of `from_examples` made are kept, each cut to the size that is asked
        for. The field's own split of conversations is used where there is one. Another size of one
        part leaves the test questions as they were, and a larger part contains the smaller one.
        Questions are interleaved by conversation, so that parallel workers do not wait for one
        memory.

        Args:
            train: How many questions of train; None for all of them. A part may hold fewer.
            dev: Likewise.
            test: Likewise.
            seed: Shuffles the conversations, and their questions.
            min_dev: How many questions of the headline score dev needs, if its size is not given.

        Raises:
            DataError: A part that is asked for would be empty, or its size is negative.
        """
        sizes = Sizes(train, dev, test)
        for name, size in asdict(sizes).items():
            if size is not None and size < 0:
                raise DataError(f"{name}={size}: the number of {name} questions cannot be negative")

        if self.predefined_split is not None:
            return Split(
                train=self.predefined_split.train[:train],
                dev=self.predefined_split.dev[:dev],
                test=self.predefined_split.test[:test],
            )

        parts = split_questions(self._cut(seed), sizes, seed, min_dev)
        train_questions, dev_questions, test_questions = parts
        return Split(
            train=self._split_part("train", train, train_questions),
            dev=self._split_part("dev", dev, dev_questions),
            test=self._split_part("test", test, test_questions),
        )

    def _split_part(
        self, name: str, size: int | None, questions: Sequence[Question]
    ) -> tuple[dspy.Example, ...]:
        """Return the examples of one part of a split, interleaved by conversation.

        Raises:
            DataError: There is none, though the part was not switched off by the size 0.
        """
        if size != 0 and not questions:
            num_conversations = len({self.group(example) for example in self.examples})
            counts = f"questions: {len(self.examples)}, conversations: {num_conversations}"
            raise DataError(
                f"{self.source.path}: none left for {name} ({counts}); add more, or set --{name} 0"
            )
        return tuple(self.interleave([question.example for question in questions]))

    def candidates_for_dev(self, seed: int = 0) -> list[dspy.Example]:
        """Return every question that dev can hold, in the order of `split(dev=N)`."""
        if self.predefined_split is not None:
            return list(self.predefined_split.dev)
        return [question.example for question in candidates_for_dev(self._cut(seed), seed)]

    def candidates_for_test(self, seed: int = 0) -> list[dspy.Example]:
        """Return every question that test can hold, in the order of `split(test=N)`."""
        if self.predefined_split is not None:
            return list(self.predefined_split.test)
        return [question.example for question in candidates_for_test(self._cut(seed), seed)]

    def _cut(self, seed: int) -> SplitCandidates:
        """Decide which examples may be in which part of a split."""
        questions = [
            Question(example, position, self.group(example), self.in_headline(example))
            for position, example in enumerate(self.examples)
        ]
        return cut_questions(questions, seed, self.fixed_split(), self.questions_by_group)

    def interleave(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Order examples round-robin over their conversations; within each the order stays."""
        queues: dict[str, list[dspy.Example]] = {}
        for example in examples:
            queues.setdefault(self.group(example), []).append(example)
        longest = max((len(queue) for queue in queues.values()), default=0)

        interleaved: list[dspy.Example] = []
        for position in range(longest):
            for queue in queues.values():
                if position < len(queue):
                    interleaved.append(queue[position])
        return interleaved

    def questions_after(
        self, history: History, sessions: int, examples: Sequence[dspy.Example]
    ) -> Sequence[dspy.Example]:
        """Return the questions that can be asked after the first sessions of a history.

        By default a question can be asked as soon as all its evidence has been said. A subclass
        whose answers change with time returns those questions whose answers are right at that
        moment.

        Args:
            history: The whole past.
            sessions: How many sessions of it are over.
            examples: The questions about it that may be asked.
        """
        return questions_after(examples, history, sessions)
