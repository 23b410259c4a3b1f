"""The contract of a metric: `Scorer`, and the `Score` that it gives to one answer.

A metric is a class with a title and one method:

    class NamesTheCity(Scorer):
        title = "names the city"

        def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
            is_right = example.city in answer_of(prediction)
            feedback = "Right." if is_right else f"Wrong: name the city, {example.city}."
            return Score(float(is_right), feedback, {"city": float(is_right)})

`example` is a question of the benchmark with its labels, and `prediction` the program's answer.
Optimizers read the value and the feedback; tables and MLflow show the value and the parts. A
benchmark lists the class under the name of a `--metric` (see `benchmark.py`).

A scorer that asks a language model names the class of each judge by role:

    class JudgedRight(Scorer):
        title = "judged right"
        judge_roles = {"judge": Judge}

        def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
            verdict = self.judge()(example.question, example.answer, answer_of(prediction))
            return Score(float(verdict.correct), verdict.reasoning)

It does not know which model judges: a run makes a copy of it with judges bound to its own model
(`with_judges`). So runs share no state.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import dspy

from ..errors import UserError
from ..records import Failure
from .confusion import Confusion
from .judge import AnyJudge, JudgeFactory, JudgeRoles
from .word_splitting import WordSplitter

Trace = Sequence[tuple[dspy.Module, Mapping[str, Any], dspy.Prediction]]
"""The calls of a program in order, as DSPy records them: predictor, inputs and outputs of each."""


@dataclass(frozen=True)
class Score:
    """The score of one answer."""

    value: float
    """The headline score of this answer, 0 to 1."""
    feedback: str
    """One or two sentences for a reflective optimizer: what was wrong, what a right answer does."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further metrics by name, e.g. {"f1": .5, "bleu1": .4}; each is a column of the tables."""
    judged_predictor: str | None = None
    """The predictor that `feedback` speaks of; None where it speaks of the whole answer."""
    is_about_memory: bool = False
    """Whether `feedback` speaks of what was stored and recalled, and not of the answer."""


@dataclass(frozen=True)
class OptimizerStep:
    """What an optimizer says about the answer that it wants scored, as DSPy and GEPA do."""

    trace: Trace | None = None
    """The calls of the program; None in a plain evaluation."""
    pred_name: str | None = None
    """The predictor that is to be judged; None where the whole program is."""
    pred_trace: Trace | None = None
    """The calls of that predictor."""


class ScoredAnswer(Protocol):
    """An answer as metrics of a whole benchmark see it, e.g. a row of an evaluation."""

    @property
    def id(self) -> str:
        """The id of the question."""
        ...

    @property
    def category(self) -> str:
        """The category that the question is reported under."""
        ...

    @property
    def gold(self) -> str:
        """The gold answer."""
        ...

    @property
    def answer(self) -> str:
        """What the program answered; "" where it failed."""
        ...

    @property
    def parts(self) -> Mapping[str, float]:
        """The parts of the answer's `Score`; none where it failed."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why there is no answer or no score; None where there is one."""
        ...


class Scorer(ABC):
    """One metric, from the score of one answer to the figures of a whole table.

    What a scorer defines:

    | member | required? | default |
    |---|---|---|
    | `title` | yes | |
    | `score` | yes | |
    | `score_step` | no | `score`, whatever the optimizer says of the step |
    | `in_headline` | no | every example counts |
    | `aggregate` | no | no figures of the whole table |
    | `confusion` | no | no confusion matrix |
    | `retrieval_metrics`, with `retrieval_depth` | no | none, 0 hits |
    | `counted_entries` | no | none: `score` looks at the answer |
    | `judge_roles` | no | no judge is asked |
    | `splitter` | no | None: no words are compared |
    | `needs_answer` | no | True: the program answers every question |

    Everything else is for callers and stays as it is.
    """

    title: str
    """What it measures, as tables name it, e.g. "token F1"."""
    judge_roles: ClassVar[JudgeRoles] = {}
    """The classes of the judges that `score` asks, by role."""
    retrieval_depth: int = 0
    """How many hits of a memory's plain search `retrieval_metrics` looks at."""
    splitter: WordSplitter | None = None
    """How answers are cut into the words that are compared; None where no words are compared."""

    needs_answer: ClassVar[bool] = True
    """Whether `score` looks at an answer. If not, programs recall and do not answer."""

    judges: Mapping[str, AnyJudge] = {}
    """The judges that `with_judges` has bound, by role."""

    @abstractmethod
    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Score one answer by the official metric.

        Raises:
            UserError: A judge is needed and none is bound.
            AdapterParseError: A judge's reply stays unparseable.
            LMError: A judge's endpoint failed.
        """

    def score_step(
        self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep
    ) -> Score:
        """Score one answer for an optimizer, raising what `score` does.

        Most metrics have no use for what the optimizer says of the step.
        """
        return self.score(example, prediction)

    def in_headline(self, example: dspy.Example) -> bool:
        """Return whether the example counts for the headline (LoCoMo leaves out category 5)."""
        return True

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Return metrics of all answers together that are no mean over answers, e.g. macro-F1.

        Args:
            rows: The answers, those that failed included. Not all questions need be among them.
        """
        return {}

    def confusion(self, rows: Sequence[ScoredAnswer]) -> Confusion | None:
        """Return the confusion matrix of the answers, where the published result is one."""
        return None

    def retrieval_metrics(
        self, example: dspy.Example, ranked: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        """Return metrics of a benchmark's own for the hits of a search in the memory.

        They are reported beside the recall of evidence, which every benchmark has. The default has
        none; subclasses override it.

        Args:
            example: The question; one that names no evidence is not measured.
            ranked: For every hit, best first, the ids of its source turns.
        """
        return {}

    def counted_entries(self, prediction: dspy.Prediction) -> tuple[str, ...]:
        """Return the ids of the recalled entries that `score` looks at; none if at the answer."""
        return ()

    @property
    def required_judges(self) -> JudgeRoles:
        """Return the classes of the judges that are asked, by role, those of its parts included."""
        return self.judge_roles

    def with_judges(self, make_judge: JudgeFactory) -> Self:
        """Return a copy whose judges are made by `make_judge`, which gets the class of each."""
        bound = copy.copy(self)
        bound.judges = {role: make_judge(kind) for role, kind in self.required_judges.items()}
        return bound

    def judge(self, role: str = "judge") -> AnyJudge:
        """Return the judge of a role.

        Raises:
            UserError: None is bound.
        """
        if role not in self.judges:
            raise UserError(
                f"{self.title} is scored by a judge, and none is set; pass --judge-lm MODEL"
            )
        return self.judges[role]

    @property
    def judge_hash(self) -> str | None:
        """Return the digest of the prompts of all judges; None where no judge is asked.

        A judge that is not set yet counts with the default prompts of its class.
        """
        hashes: list[str] = []
        for role, judge_class in self.required_judges.items():
            if role in self.judges:
                # Its prompts may have been changed.
                hashes.append(self.judges[role].hash)
            else:
                hashes.append(judge_class.prompt_hash())

        if not hashes:
            return None
        if len(hashes) == 1:
            return hashes[0]
        return hashlib.sha256("".join(hashes).encode()).hexdigest()


def answer_of(prediction: dspy.Prediction) -> str:
    """Return the answer as text; "" where there is none."""
    return str(prediction.get("answer") or "")
