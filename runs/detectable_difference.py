"""Compute the smallest loss that a paired comparison of so many questions would have shown.

"Not told apart" says little by itself: with 20 questions nothing but a collapse is told apart. So
a verdict comes with the loss that the same questions show in 90 % of the cases (`POWER`).

A loss `d` is shown with that power if it is `z` standard errors large. `z` is the sum of two
quantiles of Student's t, one for the level of the verdict and one for the power. The squared
standard error has two parts. The first is that of the paired differences as they were observed. It
includes all chance, such as that of sampled answers. The second is the spread that the loss brings
itself. Think of a program that fails on some questions which were answered before. If their scores
were `s`, and `r` is the mean of `s^2` divided by the mean of `s` (1 for scores of 0 or 1), the
differences of `n` questions get a variance of `d * (r - d)`. So `d` solves a quadratic equation:

    d^2 = z^2 * (observed squared error + d * (r - d) / n)

Without the second part, two runs with equal answers would have an error of 0, and the smallest loss
would be 0, too.

The permutation test adds a bound: it is significant only if at least six units lose. A unit is a
conversation, or a single question if there are fewer than six conversations.

Source of the first part: Cohen, Statistical Power Analysis for the Behavioral Sciences, 1988,
chapter 2. The rest is ours. `tests/runs/test_detectable_difference.py` simulates all of it.

Example:
    >>> from mempiler.runs.detectable_difference import detectable_difference
    >>> scores = [1.0] * 60 + [0.0] * 40
    >>> groups = ["ann", "bob"] * 50
    >>> f"{detectable_difference(scores, scores, groups):.3f}"
    '0.097'
    >>> other_scores = [0.0] * 10 + [1.0] * 60 + [0.0] * 30
    >>> f"{detectable_difference(other_scores, scores, groups):.3f}"
    '0.196'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .statistics import MIN_GROUPS, SIGNIFICANCE_LEVEL

POWER = 0.9
"""The share of cases in which a loss of the computed size is shown."""


def detectable_difference(
    a_scores: Sequence[float], b_scores: Sequence[float], groups: Sequence[str]
) -> float | None:
    """Return the smallest loss of program A that a verdict shows in 90 % of the cases.

    As for the verdict, whole groups count as units if there are six or more; otherwise single
    questions do. A loss that strikes some conversations and spares others takes more questions.

    Args:
        a_scores: The scores of program A, one per question.
        b_scores: The scores of program B on the same questions, in the same order.
        groups: The conversation or user of each question.

    Returns:
        A loss in points of the score. None if not even the loss of all points would be shown,
        because there are too few questions, or nothing to lose.
    """
    points = math.fsum(b_scores)
    units = _units(a_scores, b_scores, groups)
    if points <= 0 or len(units) < MIN_GROUPS:
        # A permutation test of fewer units is never significant.
        return None

    question_count = len(b_scores)
    scored_questions = sum(score > 0 for score in b_scores)
    spread_factor = math.fsum(score**2 for score in b_scores) / points
    lost_share = _share_lost_in_six_units(len(units), question_count)
    loss = max(
        _loss_beyond_chance(units, spread_factor),
        lost_share * points / scored_questions,
    )
    return loss if loss <= points / question_count else None


@dataclass(frozen=True)
class _Unit:
    """What counts as one observation: a conversation, or a single question."""

    difference_sum: float
    question_count: int


def _units(
    a_scores: Sequence[float], b_scores: Sequence[float], groups: Sequence[str]
) -> list[_Unit]:
    """Return the differences by group, or by question if there are fewer than `MIN_GROUPS`."""
    differences = [a - b for a, b in zip(a_scores, b_scores, strict=True)]
    differences_by_group: dict[str, list[float]] = {}
    for difference, group in zip(differences, groups, strict=True):
        differences_by_group.setdefault(group, []).append(difference)
    if len(differences_by_group) < MIN_GROUPS:
        return [_Unit(difference, 1) for difference in differences]
    members_of_groups = differences_by_group.values()
    return [_Unit(math.fsum(members), len(members)) for members in members_of_groups]


def _squared_error(units: Sequence[_Unit]) -> float:
    """Return the squared standard error of the mean difference over all questions.

    Units may differ in size, so this is the error of a ratio of two sums.
    """
    question_count = sum(unit.question_count for unit in units)
    mean = math.fsum(unit.difference_sum for unit in units) / question_count
    squared_deviations: list[float] = []
    for unit in units:
        expected_sum = unit.question_count * mean
        squared_deviations.append((unit.difference_sum - expected_sum) ** 2)
    correction = len(units) / (len(units) - 1)
    return correction * math.fsum(squared_deviations) / question_count**2


def _loss_beyond_chance(units: Sequence[_Unit], spread_factor: float) -> float:
    """Return the loss that solves the equation of the module's docstring.

    Args:
        units: The observed differences.
        spread_factor: The `r` of the equation.
    """
    question_count = sum(unit.question_count for unit in units)
    z_squared = _required_errors(len(units)) ** 2
    # The equation in the form a * d^2 - b * d - c = 0.
    a = 1 + z_squared / question_count
    b = z_squared * spread_factor / question_count
    c = z_squared * _squared_error(units)
    return (b + math.sqrt(b**2 + 4 * a * c)) / (2 * a)


def _required_errors(unit_count: int) -> float:
    """Return how many standard errors large a loss must be to be shown."""
    # Imported here because importing scipy.stats takes more than a second.
    from scipy.stats import norm, t

    if unit_count == MIN_GROUPS:
        # Of six units, the permutation test asks all to lose. Each does with this probability:
        probability = POWER ** (1 / unit_count)
        return math.sqrt(unit_count) * float(norm.ppf(probability))

    degrees_of_freedom = unit_count - 1
    level_quantile = float(t.ppf(1 - SIGNIFICANCE_LEVEL / 2, degrees_of_freedom))
    power_quantile = float(t.ppf(POWER, degrees_of_freedom))
    return level_quantile + power_quantile


def _share_lost_in_six_units(unit_count: int, question_count: int) -> float:
    """Return the share of lost questions that leaves a loss in six units or more.

    In fewer units no loss is significant, however equal the answers are otherwise.
    """
    from scipy.stats import beta

    # The chance that at least six of the units lose is a cumulative beta distribution of the share
    # of units that do.
    unit_share = float(beta.ppf(POWER, MIN_GROUPS, unit_count - MIN_GROUPS + 1))
    # A unit is spared if all of its questions are.
    questions_per_unit = question_count / unit_count
    return 1 - (1 - unit_share) ** (1 / questions_per_unit)
