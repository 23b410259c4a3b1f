"""A benchmark: a dataset, the scorer of its official metric, and a simulated user where its answers are conversations.

Every benchmark folder of this room has one class, which says how a file is read (`load`) and which scorers there are
(`metrics`). The scorer scores the questions, the dataset splits them.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy

from ..errors import UnknownNameError
from ..records import History
from .dataset import Dataset, Note, Reading, Source, askable
from .interaction import Interaction
from .judge import AnyJudge
from .scorer import Score, Scorer


class Benchmark(Dataset):
    """Examples plus the official metric for one task.

    Args:
        examples: All examples, in file order.
        source: Where they came from.
        metric: One of `metrics`; the first if None.

    Raises:
        DataError: There is no example.
        UnknownNameError: There is no such metric.
    """

    name: ClassVar[str]
    """The name on the command line."""
    task: ClassVar[str] = "question-answering"
    """The task of `programs.tasks` that its examples are for."""
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]]
    """What makes the scorer of each metric."""
    categories: ClassVar[Mapping[str, str]] = {}
    """What tables call the categories, where the benchmark's own names are numbers."""
    expected: ClassVar[tuple[str, ...]] = ()
    """Categories that tables list with n = 0 where no question is of them."""
    generated: ClassVar[bool] = False
    """Whether its data are made by a seed and read from no file."""
    interaction: Interaction | None = None
    """Who talks with the program, where answers are conversations."""

    def __init__(self, examples: Iterable[dspy.Example], source: Source, metric: str | None = None) -> None:
        super().__init__(tuple(examples), source)
        self.metric = metric or next(iter(self.metrics))
        self.scorer = self.scored_by(self.metric)

    @classmethod
    @abstractmethod
    def load(cls, path: str | Path | None = None, **options: Any) -> Self:
        """Reads the genuine file at `path`, or the bundled sample when it is None."""

    @classmethod
    def read(cls, path: Path, note: Note) -> Reading | None:
        """Reads a file and reports findings to `note`, for `evaluate --check`; None if only `load` can check it."""
        return None

    @classmethod
    def scored_by(cls, metric: str) -> Scorer:
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

    def bound(self, make: Callable[[type[Any]], AnyJudge]) -> Self:
        """A copy whose judges are made by `make`, which is given the class of each."""
        new = copy.copy(self)
        new.scorer = self.scorer.bound(make)
        return new

    def accompanied(self, lm: Any, adapter: dspy.Adapter | None, rival: Callable[..., dspy.Prediction]) -> Self:
        """A copy with a simulated user and a rival bound."""
        new = copy.copy(self)
        new.interaction = self.interaction.bound(lm, adapter, rival) if self.interaction else None
        return new

    def answer(self, program: Callable[..., dspy.Prediction], example: dspy.Example) -> dspy.Prediction:
        """Asks a program, or lets the simulated user talk with it."""
        if self.interaction is not None:
            return self.interaction.hold(program, example)
        return program(**example.inputs())

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores one answer; see `Scorer.score`."""
        return self.scorer.score(example, prediction)

    def counts(self, example: dspy.Example) -> bool:
        return self.scorer.counts(example)

    @property
    def unsaid(self) -> bool:
        """Whether some of its questions ask what was never said, so that declining is the right answer to them."""
        return False

    def questions_after(
        self, history: History, sessions: int, examples: Sequence[dspy.Example]
    ) -> Sequence[dspy.Example]:
        """The questions that can be asked after the first sessions of a history, with the answers of that moment.

        Args:
            history: The whole past.
            sessions: How many sessions of it are over.
            examples: The questions about it that may be asked.
        """
        return askable(examples, history, sessions)
