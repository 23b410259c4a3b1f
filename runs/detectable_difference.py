"""Compute how large a loss must be for a comparison of two programs to find it.

"Not told apart" says little by itself: with 20 questions only a collapse is told apart. So a
verdict comes with its *minimum detectable effect*: the smallest loss that is *detected*, which
means that the verdict is "worse", in 90 % of the cases (`POWER`; statisticians call this share the
power of a test).

Both programs answer the same questions, each of which belongs to a *group*: a conversation or user.
The verdict counts whole groups as its *units* of observation if there are six or more, and single
questions otherwise. For each unit it looks at the score of program A minus that of program B. The
permutation test behind the verdict is never significant with fewer than six units that differ.

A loss of the mean score is detected with the wanted power if it is at least `z` times its standard
error. `z` is the sum of two quantiles of Student's t: one for the significance level, one for the
power. The squared standard error has two parts:

- The spread of the differences that were observed. It holds all chance, such as sampled answers.
- The spread that the loss itself adds. Think of a program that fails on some questions that were
  answered before. If their scores were `s`, and `r` is the mean of `s^2` divided by the mean of `s`
  (1 for scores of 0 or 1), the differences of `n` questions get a variance of `loss * (r - loss)`.
  Without this part, two runs with equal answers would have an error of 0, and the smallest
  detectable loss would be 0, too.

So the smallest detectable loss solves a quadratic equation:

    loss^2 = z^2 * (observed_squared_error + loss * (r - loss) / n)

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
"""The share of cases in which a loss of the computed size is detected."""


def detectable_difference(
    a_scores: Sequence[float], b_scores: Sequence[float], groups: Sequence[str]
) -> float | None:
    """Return the smallest loss of program A against B that is detected in 90 % of the cases.

    The loss is assumed to strike all conversations alike. One that strikes some conversations and
    spares others must be larger.

    Args:
        a_scores: The scores of program A, one per question.
        b_scores: The scores of program B on the same questions, in the same order.
        groups: The conversation or user of each question.

    Returns:
        A loss in points of the mean score. None if not even the loss of all points would be
        detected, because there are too few questions, or nothing to lose.
    """
    total_score = math.fsum(b_scores)
    units = _units(a_scores, b_scores, groups)
    if total_score <= 0 or len(units) < MIN_GROUPS:
        # A permutation test of fewer units is never significant.
        return None

    question_count = len(b_scores)
    # A verdict needs both: a loss that chance does not explain, and one in enough units.
    detectable_loss = max(
        _loss_larger_than_chance(units, b_scores),
        _loss_in_enough_units(len(units), b_scores),
    )
    loss_of_all_points = total_score / question_count
    return detectable_loss if detectable_loss <= loss_of_all_points else None


@dataclass(frozen=True)
class _Unit:
    """One observation of the difference: a whole conversation, or a single question."""

    difference_sum: float
    """The score of A minus that of B, summed over the questions of the unit."""
    question_count: int


def _units(
    a_scores: Sequence[float], b_scores: Sequence[float], groups: Sequence[str]
) -> list[_Unit]:
    """Return a unit for each group, or for each question if there are too few groups."""
    differences = [a - b for a, b in zip(a_scores, b_scores, strict=True)]
    differences_by_group: dict[str, list[float]] = {}
    for difference, group in zip(differences, groups, strict=True):
        differences_by_group.setdefault(group, []).append(difference)
    if len(differences_by_group) < MIN_GROUPS:
        return [_Unit(difference, 1) for difference in differences]
    members_of_groups = differences_by_group.values()
    return [_Unit(math.fsum(members), len(members)) for members in members_of_groups]


def _loss_larger_than_chance(units: Sequence[_Unit], b_scores: Sequence[float]) -> float:
    """Return the loss of the mean score that chance alone hardly ever brings about.

    It must be `z` times as large as the standard error of the mean difference. A loss makes this
    error larger itself, so it stands on both sides of the equation:

        loss^2 = z^2 * (observed_squared_error + loss * (r - loss) / n)

    The last term is the error that the loss adds, over `n` questions. For scores of 0 or 1, `r` is
    1, and the term is the well-known error of a share: loss * (1 - loss) / n.

    Args:
        units: The differences that were observed.
        b_scores: The scores of the program that is compared with: what can be lost.
    """
    n = len(b_scores)
    z_squared = _required_standard_errors(len(units)) ** 2
    observed_squared_error = _squared_standard_error(units)
    # A lost score of 0.5 adds 0.5 to the loss, but only 0.25 to the sum of squares. `r` is how much
    # each point of the loss adds to that sum on average.
    r = math.fsum(score**2 for score in b_scores) / math.fsum(b_scores)

    # The same equation, sorted by powers of the loss:
    #     (1 + z^2 / n) * loss^2 - (z^2 * r / n) * loss - z^2 * observed_squared_error = 0
    return _positive_root(
        quadratic=1 + z_squared / n,
        linear=-z_squared * r / n,
        constant=-z_squared * observed_squared_error,
    )


def _positive_root(quadratic: float, linear: float, constant: float) -> float:
    """Return the larger `x` with `quadratic * x^2 + linear * x + constant = 0`."""
    discriminant = linear**2 - 4 * quadratic * constant
    return (-linear + math.sqrt(discriminant)) / (2 * quadratic)


def _squared_standard_error(units: Sequence[_Unit]) -> float:
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


def _required_standard_errors(unit_count: int) -> float:
    """Return `z`: a loss of so many standard errors is detected with a chance of `POWER`."""
    # Imported here because importing scipy.stats takes more than a second.
    from scipy.stats import norm, t

    if unit_count == MIN_GROUPS:
        # The permutation test of six units is significant only if every unit loses. All six do so
        # with a chance of POWER if each of them does with this chance:
        chance_that_a_unit_loses = POWER ** (1 / unit_count)
        # A unit loses if its difference is below 0, and its differences are taken as normal. So
        # the loss must be this many standard deviations of a single unit.
        loss_in_standard_deviations = float(norm.ppf(chance_that_a_unit_loses))
        # The standard error of the mean is smaller than the deviation of one unit by this root.
        return loss_in_standard_deviations * math.sqrt(unit_count)

    degrees_of_freedom = unit_count - 1
    level_quantile = float(t.ppf(1 - SIGNIFICANCE_LEVEL / 2, degrees_of_freedom))
    power_quantile = float(t.ppf(POWER, degrees_of_freedom))
    return level_quantile + power_quantile


def _loss_in_enough_units(unit_count: int, b_scores: Sequence[float]) -> float:
    """Return the loss that strikes six units or more with a chance of `POWER`.

    A loss in fewer units is never significant, even where all other answers are equal. Questions
    are lost by chance, and only those with a score above 0 can be lost.
    """
    from scipy.stats import beta

    # If each unit loses with the chance q, six or more of them lose with a chance that is the
    # cumulative beta distribution at q. Its inverse gives the q for the wanted chance.
    share_of_losing_units = float(beta.ppf(POWER, MIN_GROUPS, unit_count - MIN_GROUPS + 1))

    # A unit is spared only if every one of its questions is.
    questions_per_unit = len(b_scores) / unit_count
    share_of_spared_questions = (1 - share_of_losing_units) ** (1 / questions_per_unit)
    share_of_lost_questions = 1 - share_of_spared_questions

    scored_questions = sum(score > 0 for score in b_scores)
    mean_of_scored_questions = math.fsum(b_scores) / scored_questions
    return share_of_lost_questions * mean_of_scored_questions
