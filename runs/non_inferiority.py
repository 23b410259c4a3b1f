"""Test whether one program is at most a margin worse than another on the same questions.

"Not told apart" is no sign that two programs are equally good: with few questions nothing is told
apart. So this test turns the question round. It takes for granted that A is worse by the margin,
and asks whether the scores speak against it. That is a verdict of the usual kind, with the margin
added to the scores of A.

One thing has to be added. If A is wrong on 4 % of all questions that B can answer, then 30
questions show none of them in 29 % of the cases, and a bootstrap of 30 equal scores has an interval
of width zero. So one question is added, on which A loses everything: the first loss that these
questions did not show. The bound of Clopper and Pearson counts losses in the same way (Biometrika
26, 1934).

Example:
    >>> from mempiler.runs.non_inferiority import check_non_inferiority
    >>> scores, groups = [1.0] * 100, ["ann", "bob"] * 50
    >>> result = check_non_inferiority(scores, scores, groups, margin=0.05)
    >>> print(f"{result.lower_bound:.3f} {result.is_shown}")
    -0.030 True
    >>> check_non_inferiority(scores, scores, groups, margin=0.02).is_shown
    False
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UserError
from .statistics import MIN_GROUPS, MIN_N, compare_paired_scores

_UNSEEN_GROUP = "a conversation that was not asked about"
"""The group of the added question."""


@dataclass(frozen=True)
class NonInferiority:
    """Whether program A is shown to be at most a margin worse than program B."""

    margin: float
    """In points of the score, e.g. 0.02."""
    lower_bound: float | None
    """The lower end of the interval of A minus B, one lost question included.

    None with fewer than two questions.
    """
    p_value: float
    """Two-sided p-value of the permutation test, with the margin added to the scores of A."""
    is_shown: bool
    """Whether interval and permutation test both say so, and there are enough questions."""

    def __str__(self) -> str:
        """Return the margin and the bound, e.g. `worse by more than 0.02 (lower bound -0.011)`."""
        bound = "none" if self.lower_bound is None else f"{self.lower_bound:+.3f}"
        return f"worse by more than {self.margin:g} (lower bound {bound})"


def check_non_inferiority(
    a_scores: Sequence[float],
    b_scores: Sequence[float],
    groups: Sequence[str],
    margin: float,
    min_n: int = MIN_N,
) -> NonInferiority:
    """Test whether A is at most `margin` worse than B.

    Args:
        a_scores: The scores of program A between 0 and 1, one per question.
        b_scores: The scores of program B on the same questions, in the same order.
        groups: The conversation or user of each question.
        margin: How much worse A may be, above 0.
        min_n: With fewer questions nothing is shown.

    Raises:
        UserError: The margin is not above 0, the lengths differ, or a score is not finite.
    """
    if not margin > 0:
        raise UserError(f"margin = {margin}: give how much worse a program may be, e.g. 0.02")
    if not groups:
        return NonInferiority(margin, lower_bound=None, p_value=1.0, is_shown=False)

    # With few groups single questions are resampled. The added question must not change that.
    added_group = groups[0]
    if len(set(groups)) >= MIN_GROUPS:
        added_group = _UNSEEN_GROUP
    shifted_scores = [score + margin for score in a_scores]
    shifted = compare_paired_scores(
        [*shifted_scores, margin],
        [*b_scores, 1.0],
        [*groups, added_group],
        min_n=min_n + 1,
    )
    lower_bound = None
    if shifted.interval is not None:
        lower_bound = shifted.interval.low - margin
    return NonInferiority(
        margin=margin,
        lower_bound=lower_bound,
        p_value=shifted.p_value,
        is_shown=shifted.verdict == "better",
    )
