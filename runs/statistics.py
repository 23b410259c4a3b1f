"""How sure a score is: bootstrap intervals that respect conversations, and paired comparisons of two programs.

Questions about one conversation share its memory, so they go right and wrong together. Resampling them one by one
would make a table look surer than it is; with at least five groups (conversations or users) whole groups are
resampled, and every interval says in `unit` which of the two it did.

Example:
    >>> from mempiler.runs.statistics import interval, paired
    >>> values, groups = [1.0, 0.0, 1.0, 1.0, 0.0], ["ann", "bob", "cyd", "dan", "eve"]
    >>> interval(values, groups).unit
    'group'
    >>> paired([1, 1, 1, 0], [0, 0, 1, 1], groups[:4]).p_sign
    1.0

Limits: a percentile interval is too narrow when there are few groups: in simulated data (five questions a group, half
of the variance between groups) a nominal 95 % covered 84 % with five groups, 90 % with ten, 94 % with thirty;
resampling questions covered 68 to 75 %. When the unit is the question, the interval holds for further questions about
the same conversations, not for new ones. The sign test always counts questions as independent, and who won, not by how
much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

MIN_GROUPS = 5
"""Below this many groups, questions are resampled: two or three groups give no meaningful interval."""

_TIE = 1e-9
"""Scores closer than this are equal: summation order must not decide."""

_BLOCK = 1_000_000
"""Draws held in memory at once (8 MB)."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a mean."""

    low: float
    high: float
    unit: Literal["group", "question"]
    """What was resampled: whole conversations or users, or single questions."""


@dataclass(frozen=True)
class Difference:
    """How program a did against program b on the same questions."""

    mean: float
    """mean(a) - mean(b); nan without questions."""
    interval: Interval | None
    """Interval of `mean`; None with fewer than two questions."""
    wins: int
    """Questions on which a scored higher."""
    losses: int
    ties: int
    p_sign: float
    """Two-sided exact sign test over wins and losses; 1.0 when all are ties."""

    @property
    def is_gain(self) -> bool:
        """Whether a is better than b beyond chance: the mean lies above zero, and its interval not below it."""
        return self.interval is not None and self.mean > _TIE and self.interval.low >= -_TIE


def interval(
    values: Sequence[float], groups: Sequence[str], seed: int = 0, level: float = 0.95, resamples: int = 2000
) -> Interval | None:
    """Percentile bootstrap interval of the mean over questions (Efron, Annals of Statistics 7, 1979).

    With at least `MIN_GROUPS` groups, groups are drawn with replacement and the mean is taken over all their
    questions, so a long conversation weighs more than a short one, as it does in the score. Otherwise questions are
    drawn. The same values give the same interval in whichever order they come.

    Args:
        values: One score per question.
        groups: The conversation or user of each question.
        seed: Seed of the draws.
        level: Confidence level, between 0 and 1.
        resamples: Number of draws.

    Returns:
        The interval, or None for fewer than two questions. Equal values give an interval of no width.

    Raises:
        UserError: The lengths differ, a score is not finite, or level or resamples is out of range.
    """
    scores = _checked(values, groups, level, resamples)
    if len(scores) < 2:
        return None
    names, codes = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    by_group = len(names) >= MIN_GROUPS
    if not by_group:
        # Sorted, so that the order of the questions does not decide which of them a seed draws.
        scores, codes = np.sort(scores), np.arange(len(scores))
    sums = np.zeros(codes.max() + 1)
    np.add.at(sums, codes, scores)
    means = _resampled_means(sums, np.bincount(codes), seed, resamples)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), "group" if by_group else "question")


def paired(
    a: Sequence[float],
    b: Sequence[float],
    groups: Sequence[str],
    seed: int = 0,
    level: float = 0.95,
    resamples: int = 2000,
) -> Difference:
    """Compares two programs question by question.

    Args:
        a: Scores of the first program.
        b: Scores of the second on the same questions, in the same order.
        groups: The conversation or user of each question.
        seed: Seed of the draws.
        level: Confidence level of the interval.
        resamples: Number of draws.

    Returns:
        The difference a - b with its interval (of the differences, so shared hardness cancels) and the sign test.

    Raises:
        UserError: The lengths differ, or as for `interval`.
    """
    if len(a) != len(b):
        raise UserError(f"{len(a)} scores against {len(b)}; a paired comparison needs the same questions in both")
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    span = interval(differences.tolist(), groups, seed, level, resamples)
    wins, losses = int(np.sum(differences > _TIE)), int(np.sum(differences < -_TIE))
    return Difference(
        mean=float(differences.mean()) if len(a) else math.nan,
        interval=span,
        wins=wins,
        losses=losses,
        ties=len(a) - wins - losses,
        p_sign=_sign_test(wins, losses),
    )


def crossed(
    differences: Sequence[Sequence[float]],
    groups: Sequence[str],
    seed: int = 0,
    level: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Percentile interval of the mean difference between two ways of training over several seeds.

    Users and seeds are drawn with replacement, each on its own, and the mean is taken over every drawn user in every
    drawn seed (the pigeonhole bootstrap: Owen, Annals of Applied Statistics 1, 2007). So it covers other users and
    other seeds; with one seed it covers users alone, and three are few to tell how a fourth would end.

    Args:
        differences: For each seed one difference per question, the questions in the same order.
        groups: The user of each question.
        seed: Seed of the draws.
        level: Confidence level.
        resamples: Number of draws.

    Raises:
        UserError: As for `interval`, or there is nothing to resample.
    """
    if not differences or not groups:
        raise UserError("there is no difference to resample; give one per question and seed")
    checked = np.stack([_checked(each, groups, level, resamples) for each in differences])
    names, codes = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    if len(names) < MIN_GROUPS:
        codes = np.arange(len(groups))
    units, sizes = codes.max() + 1, np.bincount(codes)
    sums = np.zeros((len(checked), units))
    np.add.at(sums.T, codes, checked.T)
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(resamples):
        users = np.bincount(rng.integers(units, size=units), minlength=units)
        drawn = rng.integers(len(checked), size=len(checked))
        means.append(float((sums[drawn] @ users).mean() / (sizes @ users)))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high), "group" if len(names) >= MIN_GROUPS else "question")


def _checked(values: Sequence[float], groups: Sequence[str], level: float, resamples: int) -> NDArray[np.float64]:
    scores = np.asarray(values, dtype=float)
    if len(scores) != len(groups):
        raise UserError(f"{len(scores)} scores but {len(groups)} groups; give one group per score")
    if not np.isfinite(scores).all():
        place = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise UserError(f"score {place} is {scores[place]}; give a failed question 0 or leave it out")
    if not 0 < level < 1:
        raise UserError(f"level {level} is not between 0 and 1; 0.95 is usual")
    if resamples < 1:
        raise UserError(f"resamples {resamples} is below 1; 2000 is usual")
    return scores


def _resampled_means(
    sums: NDArray[np.float64], sizes: NDArray[np.int64], seed: int, resamples: int
) -> NDArray[np.float64]:
    rng, units = np.random.default_rng(seed), len(sums)
    step = max(1, _BLOCK // units)
    means = []
    for start in range(0, resamples, step):
        drawn = rng.integers(units, size=(min(step, resamples - start), units))
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return np.concatenate(means)


def _sign_test(wins: int, losses: int) -> float:
    decided, term, tail = wins + losses, 1, 0
    for k in range(min(wins, losses) + 1):
        tail += term
        term = term * (decided - k) // (k + 1)
    return min(1.0, 2 * tail / 2**decided)
