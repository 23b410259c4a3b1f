"""Tell whether one program takes fewer tokens than another on the same questions.

Tokens of one conversation are alike, even more than scores are: its memory is written once, at a
cost that all its questions share, and a long memory makes all their prompts long. A hundred
questions about two conversations therefore tell little more than two numbers. So this test compares
conversations, however few there are: Student's t over their mean differences. With two
conversations the saving must be nearly the same in both; with one nothing is told.

Example:
    >>> from mempiler.runs.token_difference import compare_tokens
    >>> difference = compare_tokens([700, 690, 710], [1000, 1010, 990], ["ann", "bob", "cyd"])
    >>> print(difference)
    -300 tokens a question [-350, -250]
    >>> difference.is_lower
    True
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .results import Evaluation
from .rows import Row
from .statistics import SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class TokenDifference:
    """The tokens that program A takes for a question, minus those of program B."""

    mean: float
    """Mean over conversations, each of which counts the same; nan without questions."""
    low: float | None
    """The lower end of the confidence interval of `mean`; None with fewer than two conversations.
    """
    high: float | None
    baseline_mean: float
    """What program B takes for a question."""
    group_count: int
    """Number of conversations or users that the questions are about."""

    @property
    def is_lower(self) -> bool:
        """Whether A is shown to take fewer tokens: the whole interval lies below zero."""
        return self.high is not None and self.high < 0

    def __str__(self) -> str:
        """Return such a text as `-312 tokens a question [-350, -270]`."""
        if self.group_count == 0:
            return "no questions"
        text = f"{self.mean:+,.0f} tokens a question"
        if self.low is None or self.high is None:
            return f"{text}, but all are about one conversation"
        return f"{text} [{self.low:+,.0f}, {self.high:+,.0f}]"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON data."""
        interval = None
        if self.low is not None and self.high is not None:
            interval = [self.low, self.high]
        return {
            # JSON has no nan.
            "mean": None if self.group_count == 0 else self.mean,
            "interval": interval,
            "baseline_mean": None if self.group_count == 0 else self.baseline_mean,
            "groups": self.group_count,
            "is_lower": self.is_lower,
        }


def compare_tokens(
    a_tokens: Sequence[float], b_tokens: Sequence[float], groups: Sequence[str]
) -> TokenDifference:
    """Compare the tokens of two programs that answered the same questions.

    Args:
        a_tokens: The tokens of program A, one number per question.
        b_tokens: The tokens of program B for the same questions, in the same order.
        groups: The conversation or user of each question.
    """
    differences = _mean_by_group([a - b for a, b in zip(a_tokens, b_tokens, strict=True)], groups)
    group_count = len(differences)
    if group_count == 0:
        return TokenDifference(math.nan, None, None, math.nan, 0)

    mean = math.fsum(differences) / group_count
    baseline_mean = math.fsum(_mean_by_group(b_tokens, groups)) / group_count
    if group_count == 1:
        return TokenDifference(mean, None, None, baseline_mean, 1)

    squared_deviations = [(difference - mean) ** 2 for difference in differences]
    variance = math.fsum(squared_deviations) / (group_count - 1)
    half_width = _t_quantile(group_count - 1) * math.sqrt(variance / group_count)
    return TokenDifference(
        mean=mean,
        low=mean - half_width,
        high=mean + half_width,
        baseline_mean=baseline_mean,
        group_count=group_count,
    )


def tokens_of_questions(evaluation: Evaluation, rows: Sequence[Row]) -> list[float]:
    """Return what each question takes: prompt and output tokens, and its share of the writing.

    What writing the memory of a conversation takes is divided by the number of its rows among
    these. If nothing was answered, the tokens of what was recalled count too, because a prompt
    that answers would have them.

    Args:
        evaluation: The evaluation.
        rows: The questions of it that are compared.
    """
    question_counts = Counter(row.group for row in rows)
    tokens: list[float] = []
    for row in rows:
        writing = evaluation.writing_tokens.get(row.group, 0.0)
        writing_share = writing / question_counts[row.group]
        context_tokens = 0 if evaluation.asks_for_answers else row.context_tokens
        tokens.append(row.prompt_tokens + row.output_tokens + context_tokens + writing_share)
    return tokens


def _mean_by_group(values: Sequence[float], groups: Sequence[str]) -> list[float]:
    """Return the mean of each group."""
    values_by_group: dict[str, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        values_by_group.setdefault(group, []).append(value)
    # `fsum` is exact, so the order of the questions does not change the last digits.
    return [math.fsum(members) / len(members) for members in values_by_group.values()]


def _t_quantile(degrees_of_freedom: int) -> float:
    """Return how many standard errors wide a half of the confidence interval is."""
    # Imported here because importing scipy.stats takes more than a second.
    from scipy.stats import t

    return float(t.ppf(1 - SIGNIFICANCE_LEVEL / 2, degrees_of_freedom))
