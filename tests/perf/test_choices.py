"""perf/choices.py, and how often `mempiler choose` finds the best method.

The script draws the scores of several methods on the same questions, lets `halve` choose, and
compares that with what all scores say. In the case "clear winner of 8" one method is much better
than the others; of "two close of 6" the best two are two points apart, so that even all 600
questions do not tell them apart; and of "equal, 6" every winner is a mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

MAX_SHARE = 0.3
"""The share of all answers that is asked for at most."""


def outcomes_of(script: Any, name: str, draws: int) -> Sequence[Any]:
    """Let `mempiler choose` choose in `draws` cases of this name, each with 600 questions.

    In "clear winner of 8" one of eight methods is much better than the others. In "two close of 6"
    the best two are two points apart. In "equal, 6" all are equally good.
    """
    choices = script("choices")
    (case,) = [
        case
        for case in choices.CASES
        if (case.name, case.questions, case.whole_conversations) == (name, 600, False)
    ]
    outcomes = choices.simulate(case, draws)
    assert all(outcome.share <= MAX_SHARE for outcome in outcomes)
    return outcomes


def test_a_clear_winner_of_eight_methods_is_found(script: Any) -> None:
    outcomes = outcomes_of(script, "clear winner of 8", draws=4)

    assert all(outcome.best_is_found for outcome in outcomes)
    assert all(outcome.has_winner for outcome in outcomes)


@pytest.mark.slow
def test_a_clear_winner_of_eight_methods_is_almost_always_found(script: Any) -> None:
    outcomes = outcomes_of(script, "clear winner of 8", draws=40)

    assert sum(outcome.best_is_found for outcome in outcomes) >= 39
    assert sum(outcome.has_winner for outcome in outcomes) >= 38


@pytest.mark.slow
def test_the_better_of_two_close_methods_is_one_of_the_last_two(script: Any) -> None:
    """It need not be the first: the best two methods are so close that chance may decide."""
    outcomes = outcomes_of(script, "two close of 6", draws=40)

    assert sum(outcome.best_is_in_final for outcome in outcomes) >= 37
    assert sum(outcome.best_is_found for outcome in outcomes) >= 28
    assert sum(outcome.has_wrong_winner for outcome in outcomes) <= 2


@pytest.mark.slow
def test_equally_good_methods_have_no_winner(script: Any) -> None:
    """A verdict may be wrong in 5 percent of such cases: in 2 of 40."""
    outcomes = outcomes_of(script, "equal, 6", draws=40)

    assert sum(outcome.has_winner for outcome in outcomes) <= 2
