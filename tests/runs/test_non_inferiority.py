"""Whether a program is shown to be at most a margin worse than another.

This lets a cheaper program replace another one. "Not told apart" would not be enough: with a few
questions nothing is told apart. The check gives a lower bound of the difference, which has to be
above minus the margin. To be careful, it adds one question that the program lost. So even with
equal scores the bound is below zero, and the fewer questions there are, the lower it is.
"""

from __future__ import annotations

import pytest
from mempiler.errors import UserError
from mempiler.runs.non_inferiority import check_non_inferiority


def users_by_turns(question_count: int, user_count: int) -> list[str]:
    """Return whom each question is about: user 0, user 1 and so on, by turns."""
    return [f"user {number % user_count}" for number in range(question_count)]


@pytest.mark.parametrize("user_count", [1, 2, 8])
def test_equal_scores_of_200_questions_show_that_a_program_is_not_worse(user_count: int) -> None:
    """The check adds one lost question, to be careful: 1 of 201, which is less than the margin."""
    scores = [1.0, 0.0] * 100
    users = users_by_turns(200, user_count)

    result = check_non_inferiority(scores, scores, users, margin=0.05)

    assert result.is_shown
    assert result.lower_bound is not None
    assert -0.05 < result.lower_bound < 0


def test_equal_scores_of_30_questions_do_not_show_that_a_program_is_not_worse() -> None:
    """The check adds one lost question, to be careful: 1 of 31 is too much for this margin."""
    scores = [1.0, 0.0] * 15

    result = check_non_inferiority(scores, scores, users_by_turns(30, 2), margin=0.05)

    assert not result.is_shown
    assert result.lower_bound is not None
    assert result.lower_bound < -0.05


@pytest.mark.parametrize(("margin", "is_shown"), [(0.08, False), (0.2, True)])
def test_a_loss_of_a_tenth_is_accepted_only_within_the_margin(
    margin: float, is_shown: bool
) -> None:
    """The program fails at 20 of 200 questions, which the other one answers rightly."""
    baseline = [1.0] * 200
    candidate = [0.0] * 20 + [1.0] * 180

    result = check_non_inferiority(candidate, baseline, users_by_turns(200, 8), margin=margin)

    assert result.is_shown is is_shown


def test_a_significant_loss_within_the_margin_is_accepted() -> None:
    """The program loses 0.01 on every question, which is certain, but less than the margin."""
    baseline = [0.5] * 200
    candidate = [0.49] * 200

    result = check_non_inferiority(candidate, baseline, users_by_turns(200, 8), margin=0.05)

    assert result.is_shown


def test_the_lost_question_that_the_check_adds_does_not_count_as_a_sixth_user() -> None:
    """With five users, the permutation test flips the signs of single questions.

    With six it would flip those of whole users, in 2^6 ways, and p could not be below 2/64.
    """
    scores = [1.0] * 100

    result = check_non_inferiority(scores, scores, users_by_turns(100, 5), margin=0.05)

    assert result.p_value < 2 / 64


@pytest.mark.parametrize(
    ("min_n", "is_shown"),
    [
        pytest.param(20, False, id="the default: 20 questions are needed"),
        pytest.param(19, True, id="19 questions are needed"),
    ],
)
def test_fewer_questions_than_needed_show_nothing(min_n: int, is_shown: bool) -> None:
    scores = [1.0] * 19

    result = check_non_inferiority(scores, scores, users_by_turns(19, 2), margin=0.5, min_n=min_n)

    assert result.is_shown is is_shown


def test_no_questions_show_nothing() -> None:
    result = check_non_inferiority([], [], [], margin=0.05)

    assert not result.is_shown
    assert result.lower_bound is None


@pytest.mark.parametrize("margin", [0.0, -0.1, float("nan")])
def test_a_margin_that_is_not_above_zero_is_refused(margin: float) -> None:
    with pytest.raises(UserError, match="give how much worse a program may be"):
        check_non_inferiority([1.0], [1.0], ["ann"], margin=margin)
