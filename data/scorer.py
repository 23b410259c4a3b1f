"""Scorers: one metric each, from the score of one answer to the figures of a whole table.

Optimizers, tables and MLflow read scorers, so a new metric is one object. A scorer that asks a language model names its
judges by role; the caller binds them to a model. Binding makes a copy, so that runs share no state.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import dspy
from pydantic import BaseModel, ConfigDict

from ..errors import UserError
from ..records import Failure
from .judge import AnyJudge, Judge
from .text_metrics import bleu1, exact_match, explain, squad_f1
from .word_splitting import BY_SCRIPT, WordSplitter, words_by_script


@dataclass(frozen=True)
class Score:
    """The score of one answer."""

    value: float
    """The headline score of this answer, 0 to 1."""
    feedback: str
    """One or two sentences for a reflective optimizer: what was wrong, and what a right answer does."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further metrics by name, e.g. {"f1": .5, "bleu1": .4}."""
    judged_predictor: str | None = None
    """The predictor that `feedback` speaks of, where the metric judged a single one (`OptimizerStep`)."""


@dataclass(frozen=True)
class OptimizerStep:
    """What an optimizer says of the answer it wants scored, as DSPy and GEPA pass it to metrics."""

    trace: Any = None
    """The calls of the program: (predictor, inputs, outputs) each; None in a plain evaluation."""
    pred_name: str | None = None
    """The predictor that is to be judged; None where the whole program is."""
    pred_trace: Any = None
    """The calls of that predictor."""


class ScoredAnswer(Protocol):
    """An answer as whole-benchmark metrics see it; rows of an evaluation are such."""

    @property
    def id(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def gold(self) -> str: ...
    @property
    def answer(self) -> str: ...
    @property
    def parts(self) -> Mapping[str, float]: ...
    @property
    def failure(self) -> Failure | None: ...


class Confusion(BaseModel):
    """A matrix of counts: `counts[g][p]` answers chose class p where class g was right."""

    model_config = ConfigDict(frozen=True)

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """Shape [classes, classes], gold by predicted."""

    @classmethod
    def of(cls, labels: Sequence[str], pairs: Iterable[tuple[str, str]]) -> Confusion:
        """Counts pairs of (gold, predicted); a pair with a class that is none of `labels` is left out."""
        found = Counter(pairs)
        return cls(labels=tuple(labels), counts=tuple(tuple(found[g, p] for p in labels) for g in labels))

    @property
    def n(self) -> int:
        """Answers counted."""
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        """Share of answers on the diagonal; 0 without answers."""
        return sum(self.counts[k][k] for k in range(len(self.labels))) / self.n if self.n else 0.0

    def f1(self, label: str) -> float:
        """F1 of one class against all others; 0 where it is undefined."""
        k = self.labels.index(label)
        total = sum(self.counts[k]) + sum(row[k] for row in self.counts)
        return 2 * self.counts[k][k] / total if total else 0.0

    @property
    def macro_f1(self) -> float:
        """Unweighted mean of the F1 of every class, those that never occur included (with 0)."""
        return sum(self.f1(label) for label in self.labels) / len(self.labels) if self.labels else 0.0

    @property
    def diagonal_dominance(self) -> float:
        """From -1 to 1, 0 without answers; ours, since PraMem's section 4.1 and Figure 3 give no formula.

        The mean over the classes that occur of: share of its golds on the diagonal, minus the largest share that any
        other class got.
        """
        gaps = []
        for k, row in enumerate(self.counts):
            others = [count for p, count in enumerate(row) if p != k]
            if sum(row):
                gaps.append((row[k] - max(others, default=0)) / sum(row))
        return sum(gaps) / len(gaps) if gaps else 0.0


class Scorer(ABC):
    """One metric."""

    title: str
    """What it measures, as tables name it, e.g. "token F1"."""
    judge_roles: ClassVar[Mapping[str, type[Any]]] = {}
    """The judges that `score` asks, by role; each is made from a language model and an adapter."""
    retrieval_depth: int = 0
    """How many hits of a memory's search `retrieval` looks at."""
    judges: Mapping[str, Any] = {}
    """The judges that are bound, by role."""
    splitter: WordSplitter | None = None
    """How answers are cut into the words that are compared; None where no words are compared."""

    @property
    def required_judges(self) -> Mapping[str, type[Any]]:
        """The judges that are asked, those of its parts included."""
        return self.judge_roles

    @abstractmethod
    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Scores one answer by the official metric.

        Raises:
            UserError: A judge is needed and none is bound.
            AdapterParseError: A judge's reply stays unparseable.
            LMError: A judge's endpoint failed.
        """

    def score_step(self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep) -> Score:
        """Score one answer for an optimizer; most metrics have no use for what it says of the step.

        Raises:
            Exception: As `score`.
        """
        return self.score(example, prediction)

    def in_headline(self, example: dspy.Example) -> bool:
        """Whether the example is part of the headline score (LoCoMo leaves its category 5 out)."""
        return True

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        """Metrics of all answers together that are no mean over answers, e.g. macro-F1; may be empty.

        Args:
            rows: The answers; those with a failure have none. Not all questions need be among them.
        """
        return {}

    def confusion(self, rows: Sequence[ScoredAnswer]) -> Confusion | None:
        """The confusion matrix of the answers, where the published result is one."""
        return None

    def retrieval_metrics(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> dict[str, float]:
        """The benchmark's own metrics of what a memory's plain search finds, beside the recall of evidence.

        Args:
            example: The question; one that names no evidence is not measured.
            ranked: For every hit, best first, the ids of its source turns.
        """
        return {}

    def with_judges(self, make: Callable[[type[Any]], AnyJudge]) -> Self:
        """A copy whose judges are made by `make`, which is given the class of each."""
        new = copy.copy(self)
        new.judges = {role: make(kind) for role, kind in self.required_judges.items()}
        return new

    def judge(self, role: str = "judge") -> Any:
        """The judge of a role.

        Raises:
            UserError: None is bound.
        """
        if role not in self.judges:
            raise UserError(f"{self.title} is scored by a judge, and none is set; pass --judge-lm MODEL")
        return self.judges[role]

    @property
    def judge_hash(self) -> str | None:
        """Names the prompts of all judges, for tables and manifests; None where no judge is asked."""
        hashes = [
            self.judges[role].hash if role in self.judges else kind.prompt_hash()
            for role, kind in self.required_judges.items()
        ]
        if len(hashes) > 1:
            return hashlib.sha256("".join(hashes).encode()).hexdigest()
        return hashes[0] if hashes else None


class Combined(Scorer):
    """The first scorer is the headline; the others add their parts to its own.

    Args:
        headline: Whose value and feedback count.
        others: What is measured beside it.
    """

    def __init__(self, headline: Scorer, *others: Scorer) -> None:
        self.parts = (headline, *others)
        self.title = headline.title
        self.splitter = headline.splitter
        self.retrieval_depth = max(scorer.retrieval_depth for scorer in self.parts)

    @property
    def required_judges(self) -> Mapping[str, type[Any]]:
        return {role: kind for scorer in self.parts for role, kind in scorer.required_judges.items()}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        return self._with_parts(self.parts[0].score(example, prediction), example, prediction)

    def score_step(self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep) -> Score:
        return self._with_parts(self.parts[0].score_step(example, prediction, step), example, prediction)

    def _with_parts(self, headline: Score, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        """Return the score of the headline with the parts of the other scorers added."""
        parts = dict(headline.parts)
        for scorer in self.parts[1:]:
            parts |= scorer.score(example, prediction).parts
        return replace(headline, parts=parts)

    def in_headline(self, example: dspy.Example) -> bool:
        return self.parts[0].in_headline(example)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        return {name: value for scorer in self.parts for name, value in scorer.aggregate(rows).items()}

    def confusion(self, rows: Sequence[ScoredAnswer]) -> Confusion | None:
        return next((found for scorer in self.parts if (found := scorer.confusion(rows)) is not None), None)

    def retrieval_metrics(self, example: dspy.Example, ranked: Sequence[Sequence[str]]) -> dict[str, float]:
        return {
            name: value for scorer in self.parts for name, value in scorer.retrieval_metrics(example, ranked).items()
        }

    def with_judges(self, make: Callable[[type[Any]], AnyJudge]) -> Self:
        new = super().with_judges(make)
        new.parts = tuple(scorer.with_judges(make) for scorer in self.parts)
        return new


class WordScorer(Scorer):
    """Compares the words of the answer with those of the gold answer.

    Args:
        splitter: How texts are cut into words: `BY_SCRIPT`, for any language, or a benchmark's official way.
    """

    part: ClassVar[str]
    """What the parts of a score call it."""

    def __init__(self, splitter: WordSplitter = BY_SCRIPT) -> None:
        self.splitter = splitter
        self.split = splitter.split

    @abstractmethod
    def measure(self, answer: str, gold: str) -> float:
        """Return the score of an answer, 0 to 1."""

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = self.measure(answer, example.answer)
        feedback = explained(example, answer, value, self.split)
        return Score(value, feedback, {self.part: value})


class TokenF1(WordScorer):
    """Token F1, as SQuAD counts it; on English text it gives SQuAD's value."""

    title, part = "token F1", "f1"

    def measure(self, answer: str, gold: str) -> float:
        return squad_f1(answer, gold, self.split)


class Bleu1(WordScorer):
    """BLEU-1, as community tables of chats print it beside token F1."""

    title, part = "BLEU-1", "bleu1"

    def measure(self, answer: str, gold: str) -> float:
        return bleu1(answer, gold, self.split)


class ExactMatch(WordScorer):
    """Exact match of all words; on English text it gives SQuAD's value."""

    title, part = "exact match", "exact"

    def measure(self, answer: str, gold: str) -> float:
        return exact_match(answer, gold, self.split)


class JudgeScorer(Scorer):
    """A judge's word on the answer, right or wrong."""

    title = "judged right"
    judge_roles: ClassVar[Mapping[str, type[Any]]] = {"judge": Judge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value, reason = self.verdict(example, answer)
        return Score(value, self.feedback(example, answer, value) + reason, {"judge": value})

    def feedback(self, example: dspy.Example, answer: str, value: float) -> str:
        """What was wrong with an answer, beside what the judge says."""
        return explained(example, answer, value)

    def verdict(self, example: dspy.Example, answer: str) -> tuple[float, str]:
        """1 or 0, and the judge's reason as an addition to the feedback ("" without one)."""
        said = self.judge()(example.question, self.gold(example), answer)
        return float(said.correct), f" The judge says: {said.reasoning}" if said.reasoning else ""

    def gold(self, example: dspy.Example) -> str:
        """What the judge compares with."""
        return example.answer


def answer_of(prediction: dspy.Prediction) -> str:
    """The answer as text; "" where there is none."""
    return str(prediction.get("answer") or "")


def explained(
    example: dspy.Example, answer: str, value: float, split: Callable[[str], list[str]] = words_by_script
) -> str:
    """Say what was wrong with an answer, and what the right one is; words are compared as `split` cuts them."""
    return explain(answer, example.answer, value, example.get("evidence") or (), split)
