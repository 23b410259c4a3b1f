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


def groups_of(question_count: int, conversation_count: int) -> list[str]:
    """Return the conversation of each question; every one has about as many."""
    return [f"conversation {number % conversation_count}" for number in range(question_count)]


@pytest.mark.parametrize("conversation_count", [1, 2, 8])
def test_equal_scores_of_many_questions_are_not_worse(conversation_count: int) -> None:
    """Of 201 questions, the one that the check adds is lost: half a percent."""
    scores = [1.0, 0.0] * 100
    groups = groups_of(200, conversation_count)

    result = check_non_inferiority(scores, scores, groups, margin=0.05)

    assert result.is_shown
    assert result.lower_bound is not None
    assert -0.05 < result.lower_bound < 0


def test_a_few_equal_scores_do_not_rule_out_that_losses_are_rare() -> None:
    """Of 31 questions, the one that the check adds is lost: three percent."""
    scores = [1.0, 0.0] * 15

    result = check_non_inferiority(scores, scores, groups_of(30, 2), margin=0.05)

    assert not result.is_shown
    assert result.lower_bound is not None
    assert result.lower_bound < -0.05


def test_a_program_that_is_worse_by_more_than_the_margin_is_not_accepted() -> None:
    baseline = [1.0] * 200
    # On average it scores 0.1 less.
    candidate = [0.0] * 20 + [1.0] * 180
    groups = groups_of(200, 8)

    with_small_margin = check_non_inferiority(candidate, baseline, groups, margin=0.08)
    with_large_margin = check_non_inferiority(candidate, baseline, groups, margin=0.2)

    assert not with_small_margin.is_shown
    assert with_large_margin.is_shown


def test_a_significant_loss_within_the_margin_is_accepted() -> None:
    """The program loses 0.01 on every question, which is certain, but less than the margin."""
    baseline = [0.5] * 200
    candidate = [0.49] * 200

    result = check_non_inferiority(candidate, baseline, groups_of(200, 8), margin=0.05)

    assert result.is_shown


def test_the_added_question_does_not_count_as_a_sixth_conversation() -> None:
    """With fewer than six conversations, single questions are compared.

    If the question that the check adds were of a sixth conversation, whole conversations would be
    compared instead. Six of them have 2^6 ways to flip their signs, so p could not be below 2/64.
    """
    scores = [1.0] * 100

    result = check_non_inferiority(scores, scores, groups_of(100, 5), margin=0.05)

    assert result.p_value < 2 / 64


def test_fewer_questions_than_a_verdict_needs_show_nothing() -> None:
    """By default a verdict needs twenty questions; `min_n` is another number."""
    scores = [1.0] * 19
    groups = groups_of(19, 2)

    by_default = check_non_inferiority(scores, scores, groups, margin=0.5)
    with_min_n = check_non_inferiority(scores, scores, groups, margin=0.5, min_n=19)

    assert not by_default.is_shown
    assert with_min_n.is_shown


def test_no_questions_show_nothing() -> None:
    result = check_non_inferiority([], [], [], margin=0.05)

    assert not result.is_shown
    assert result.lower_bound is None


@pytest.mark.parametrize("margin", [0.0, -0.1, float("nan")])
def test_a_margin_that_is_not_above_zero_is_refused(margin: float) -> None:
    with pytest.raises(UserError, match="give how much worse a program may be"):
        check_non_inferiority([1.0], [1.0], ["ann"], margin=margin)
