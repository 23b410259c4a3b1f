"""Scorers that benchmarks share: the overlap of words, a judge, and several scorers at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import dspy

from .confusion import Confusion
from .judge import AnyJudge, Judge, JudgeFactory, JudgeRoles
from .scorer import OptimizerStep, Score, ScoredAnswer, Scorer, answer_of
from .text_metrics import bleu1, exact_match, explain, squad_f1
from .word_splitting import BY_SCRIPT, WordSplitter, words_by_script


class Combined(Scorer):
    """Several scorers: the first is the headline; the others add the parts of their scores.

    Args:
        headline: The scorer whose value and feedback count.
        others: The scorers that measure beside it.
    """

    def __init__(self, headline: Scorer, *others: Scorer) -> None:
        self.scorers = (headline, *others)
        self.title = headline.title
        self.splitter = headline.splitter
        self.retrieval_depth = max(scorer.retrieval_depth for scorer in self.scorers)

    @property
    def required_judges(self) -> JudgeRoles:
        judge_roles: dict[str, type[AnyJudge]] = {}
        for scorer in self.scorers:
            judge_roles.update(scorer.required_judges)
        return judge_roles

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        headline = self.scorers[0].score(example, prediction)
        return self._with_parts(headline, example, prediction)

    def score_step(
        self, example: dspy.Example, prediction: dspy.Prediction, step: OptimizerStep
    ) -> Score:
        headline = self.scorers[0].score_step(example, prediction, step)
        return self._with_parts(headline, example, prediction)

    def _with_parts(
        self, headline: Score, example: dspy.Example, prediction: dspy.Prediction
    ) -> Score:
        """Return the score of the headline with the parts of the other scorers added."""
        parts = dict(headline.parts)
        for scorer in self.scorers[1:]:
            parts.update(scorer.score(example, prediction).parts)
        return replace(headline, parts=parts)

    def in_headline(self, example: dspy.Example) -> bool:
        return self.scorers[0].in_headline(example)

    def aggregate(self, rows: Sequence[ScoredAnswer]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for scorer in self.scorers:
            metrics.update(scorer.aggregate(rows))
        return metrics

    def confusion(self, rows: Sequence[ScoredAnswer]) -> Confusion | None:
        for scorer in self.scorers:
            matrix = scorer.confusion(rows)
            if matrix is not None:
                return matrix
        return None

    def retrieval_metrics(
        self, example: dspy.Example, ranked: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for scorer in self.scorers:
            metrics.update(scorer.retrieval_metrics(example, ranked))
        return metrics

    def with_judges(self, make_judge: JudgeFactory) -> Self:
        bound = super().with_judges(make_judge)
        bound.scorers = tuple(scorer.with_judges(make_judge) for scorer in self.scorers)
        return bound


class WordScorer(Scorer):
    """Compare the words of the answer with those of the gold answer.

    Args:
        splitter: How texts are cut into words: `BY_SCRIPT`, for any language, or a benchmark's
            official way.
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

    title = "token F1"
    part = "f1"

    def measure(self, answer: str, gold: str) -> float:
        return squad_f1(answer, gold, self.split)


class Bleu1(WordScorer):
    """BLEU-1, as community tables of chats print it beside token F1."""

    title = "BLEU-1"
    part = "bleu1"

    def measure(self, answer: str, gold: str) -> float:
        return bleu1(answer, gold, self.split)


class ExactMatch(WordScorer):
    """Exact match of all words; on English text it gives SQuAD's value."""

    title = "exact match"
    part = "exact"

    def measure(self, answer: str, gold: str) -> float:
        return exact_match(answer, gold, self.split)


class JudgeScorer(Scorer):
    """A judge's verdict on the answer: right or wrong."""

    title = "judged right"
    judge_roles: ClassVar[JudgeRoles] = {"judge": Judge}

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value, reason = self.verdict(example, answer)
        feedback = self.feedback(example, answer, value) + reason
        return Score(value, feedback, {"judge": value})

    def feedback(self, example: dspy.Example, answer: str, value: float) -> str:
        """Say what was wrong with an answer, beside what the judge says."""
        return explained(example, answer, value)

    def verdict(self, example: dspy.Example, answer: str) -> tuple[float, str]:
        """Return 1 or 0, and the judge's reason as an addition to the feedback ("" without one)."""
        verdict = self.judge()(example.question, self.gold(example), answer)
        reason = f" The judge says: {verdict.reasoning}" if verdict.reasoning else ""
        return float(verdict.correct), reason

    def gold(self, example: dspy.Example) -> str:
        """Return what the judge compares with."""
        return example.answer


def explained(
    example: dspy.Example,
    answer: str,
    value: float,
    split: Callable[[str], list[str]] = words_by_script,
) -> str:
    """Say what was wrong with an answer to an example, in the words of `explain`.

    Args:
        example: The question with its gold answer and its evidence, which the text names.
        answer: What the program answered.
        value: Its score, which decides whether the answer is called right, partly right or wrong.
        split: How texts are cut into the words that are compared.
    """
    return explain(answer, example.answer, value, example.get("evidence") or (), split)
