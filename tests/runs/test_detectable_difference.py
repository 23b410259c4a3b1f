"""Which loss a comparison of so many questions would have shown.

A verdict "not told apart" may only mean that there were too few questions. So it comes with the
smallest loss that these questions show in 90 % of the cases. The simulations draw pairs of runs
that lose so much, and count how often the verdict is "worse".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from mempiler.runs.detectable_difference import detectable_difference
from mempiler.runs.statistics import compare_paired_scores

CONVERSATIONS = ["ann", "bob"]
"""Two conversations: with fewer than six, the verdict counts single questions."""


def loss_of_equal_runs(scores: Sequence[float], groups: Sequence[str] | None = None) -> float:
    """Return the smallest loss that is shown where both runs have the same scores."""
    groups = groups or [CONVERSATIONS[number % 2] for number in range(len(scores))]
    loss = detectable_difference(scores, scores, groups)
    assert loss is not None
    return loss


def test_equal_scores_of_few_questions_do_not_mean_that_any_loss_would_be_noticed() -> None:
    """Fewer than six lost questions are never significant, and six of 100 are a loss of 0.06."""
    loss = loss_of_equal_runs([1.0] * 100)

    assert 0.06 < loss < 0.12


def test_more_questions_show_a_smaller_loss() -> None:
    loss_of_100 = loss_of_equal_runs([1.0] * 100)
    loss_of_400 = loss_of_equal_runs([1.0] * 400)

    assert loss_of_400 < loss_of_100 / 3


def test_chance_hides_losses() -> None:
    """Both programs are right on 60 of 100 questions, but on other ones."""
    scores = [1.0] * 60 + [0.0] * 40
    other_scores = [0.0] * 20 + [1.0] * 60 + [0.0] * 20
    groups = CONVERSATIONS * 50

    loss = detectable_difference(other_scores, scores, groups)

    assert loss is not None
    assert loss > 2 * loss_of_equal_runs(scores)


def test_a_scale_of_half_the_points_halves_the_loss() -> None:
    """Lost questions cost what they scored."""
    whole = loss_of_equal_runs([1.0, 0.0] * 50)
    half = loss_of_equal_runs([0.5, 0.0] * 50)

    assert half == pytest.approx(whole / 2)


def test_six_conversations_show_less_than_sixty() -> None:
    """The verdict then asks every one of the six to lose."""
    scores = [1.0] * 120
    six = [f"user {number % 6}" for number in range(120)]
    sixty = [f"user {number % 60}" for number in range(120)]

    loss_of_six = loss_of_equal_runs(scores, six)
    loss_of_sixty = loss_of_equal_runs(scores, sixty)

    assert loss_of_six > 1.5 * loss_of_sixty


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([], "no question"),
        ([1.0] * 5, "five lost questions are never significant"),
        ([1.0] * 4 + [0.0] * 16, "only four questions can be lost"),
        ([0.0] * 100, "there is nothing to lose"),
    ],
    ids=["none", "five", "four right", "nothing"],
)
def test_no_loss_can_be_shown(scores: list[float], reason: str) -> None:
    assert detectable_difference(scores, scores, ["ann"] * len(scores)) is None, reason


def draw_runs(
    rng: np.random.Generator, questions: int, conversations: int, noise: float, loss: float
) -> tuple[list[float], list[float], list[str]]:
    """Draw the scores of a run that lost something, those of the run before, and the groups.

    Both are right on the same seven of ten questions, but for the noise. A lost question scores 0.

    Args:
        rng: Draws.
        questions: Their number.
        conversations: Their number.
        noise: The share of answers that turn out otherwise by chance, in each run.
        loss: How much the mean score falls.
    """
    would_be_right = rng.random(questions) < 0.7
    before = np.where(rng.random(questions) < noise, ~would_be_right, would_be_right).astype(float)
    after = np.where(rng.random(questions) < noise, ~would_be_right, would_be_right).astype(float)
    is_lost = rng.random(questions) < loss / after.mean()
    groups = [f"user {number % conversations}" for number in range(questions)]
    return np.where(is_lost, 0.0, after).tolist(), before.tolist(), groups


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(
    ("questions", "conversations"), [(60, 2), (120, 6), (80, 8), (200, 10), (300, 50)]
)
def test_a_loss_of_the_computed_size_is_shown_in_about_nine_of_ten_cases(
    questions: int, conversations: int, noise: float
) -> None:
    """Half of it is shown much less often, so the computed size is no mere upper bound.

    The share of 100 cases varies by three to four points by chance.
    """
    losses: list[float] = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        loss = detectable_difference(*draw_runs(rng, questions, conversations, noise, loss=0.0))
        losses.append(loss or 1.0)
    computed_loss = float(np.mean(losses))

    shown = {1.0: 0, 0.5: 0}
    for factor in shown:
        for seed in range(100):
            rng = np.random.default_rng(1000 + seed)
            runs = draw_runs(rng, questions, conversations, noise, factor * computed_loss)
            if compare_paired_scores(*runs).verdict == "worse":
                shown[factor] += 1

    assert 80 <= shown[1.0] <= 100
    assert shown[0.5] <= 60
