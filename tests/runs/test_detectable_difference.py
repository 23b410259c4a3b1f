"""Which loss a comparison of so many questions would have shown.

A verdict "not told apart" may only mean that there were too few questions. So it comes with the
smallest loss that these questions show in 90 % of the cases. The simulations draw pairs of runs
that lose so much, and count how often the verdict is "worse".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from mempiler.runs.detectable_difference import detectable_difference
from mempiler.runs.statistics import compare_paired_scores

CONVERSATIONS = ["ann", "bob"]
"""Two conversations: with fewer than six, the verdict counts single questions."""


def loss_of_equal_runs(scores: Sequence[float], groups: Sequence[str] | None = None) -> float:
    """Return the smallest loss that is shown where both runs have the same scores.

    If nothing else is said, the questions are about two conversations by turns.
    """
    groups = groups or [CONVERSATIONS[number % 2] for number in range(len(scores))]
    loss = detectable_difference(scores, scores, groups)
    assert loss is not None
    return loss


def test_two_equal_runs_of_100_questions_would_not_have_shown_every_loss() -> None:
    """Fewer than six lost questions may always be chance, and six of 100 are a loss of 0.06."""
    loss = loss_of_equal_runs([1.0] * 100)

    assert 0.06 < loss < 0.12


def test_more_questions_show_a_smaller_loss() -> None:
    loss_of_100_questions = loss_of_equal_runs([1.0] * 100)
    loss_of_400_questions = loss_of_equal_runs([1.0] * 400)

    assert loss_of_400_questions < loss_of_100_questions / 3


def test_a_loss_is_harder_to_show_if_the_answers_vary_by_chance() -> None:
    """Both runs are right on 60 of 100 questions, but 20 of these are others in each run."""
    scores = [1.0] * 60 + [0.0] * 40
    other_scores = [0.0] * 20 + [1.0] * 60 + [0.0] * 20
    groups = CONVERSATIONS * 50

    loss = detectable_difference(other_scores, scores, groups)

    assert loss is not None
    assert loss > 2 * loss_of_equal_runs(scores)


def test_a_lost_question_costs_what_it_scored() -> None:
    """In one run every second answer scores 1, and in the other 0.5. The rest score 0."""
    loss_of_full_points = loss_of_equal_runs([1.0, 0.0] * 50)
    loss_of_half_points = loss_of_equal_runs([0.5, 0.0] * 50)

    assert loss_of_half_points == pytest.approx(loss_of_full_points / 2)


def test_questions_about_few_conversations_show_only_large_losses() -> None:
    """Questions about one conversation are often lost together, so conversations are counted.

    With six conversations a run is worse only if every one of them lost something.
    """
    scores = [1.0] * 120
    six_users = [f"user {number % 6}" for number in range(120)]
    sixty_users = [f"user {number % 60}" for number in range(120)]

    loss_of_six = loss_of_equal_runs(scores, six_users)
    loss_of_sixty = loss_of_equal_runs(scores, sixty_users)

    assert loss_of_six > 1.5 * loss_of_sixty


@pytest.mark.parametrize(
    "scores",
    [
        pytest.param([], id="no question"),
        pytest.param([1.0] * 5, id="five questions"),
        pytest.param([1.0] * 4 + [0.0] * 16, id="four right answers"),
        pytest.param([0.0] * 100, id="no right answer"),
    ],
)
def test_no_loss_can_be_shown_if_fewer_than_six_questions_can_be_lost(scores: list[float]) -> None:
    """Fewer than six lost questions may always be chance."""
    assert detectable_difference(scores, scores, ["ann"] * len(scores)) is None


class DrawnRuns(NamedTuple):
    """The scores of two runs on the same questions, in the order of the statistics."""

    after: list[float]
    before: list[float]
    groups: list[str]
    """The conversation of each question."""


def draw_runs(
    rng: np.random.Generator, questions: int, conversations: int, noise: float, loss: float
) -> DrawnRuns:
    """Draw a run, and a later one that has lost something.

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
    return DrawnRuns(np.where(is_lost, 0.0, after).tolist(), before.tolist(), groups)


def share_of_noticed_losses(questions: int, conversations: int, noise: float, loss: float) -> float:
    """Return the share of 100 drawn pairs of runs in which the later run is found to be worse."""
    noticed = 0
    for seed in range(1000, 1100):
        rng = np.random.default_rng(seed)
        runs = draw_runs(rng, questions, conversations, noise, loss)
        if compare_paired_scores(*runs).verdict == "worse":
            noticed += 1
    return noticed / 100


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(
    ("questions", "conversations"), [(60, 2), (120, 6), (80, 8), (200, 10), (300, 50)]
)
def test_a_loss_of_the_computed_size_is_noticed_in_about_nine_of_ten_cases(
    questions: int, conversations: int, noise: float
) -> None:
    """Half of this loss is noticed much less often, so the computed size is not just a bound."""
    computed_losses: list[float] = []
    for seed in range(20):
        equal_runs = draw_runs(
            np.random.default_rng(seed), questions, conversations, noise, loss=0.0
        )
        computed_losses.append(detectable_difference(*equal_runs) or 1.0)
    loss = float(np.mean(computed_losses))

    assert share_of_noticed_losses(questions, conversations, noise, loss) >= 0.8
    assert share_of_noticed_losses(questions, conversations, noise, loss / 2) <= 0.6
