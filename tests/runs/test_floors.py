"""Floors: the least value that a figure of an evaluation may have.

A figure is the score, a part of the metric such as "f1", or a kind of evidence recall such as
"recall@20": the share of the turns with the answer that are among the first 20 hits of a search.
"""

from __future__ import annotations

import pytest
from mempiler.errors import UnknownNameError, UserError
from mempiler.runs.floors import check_floors, parse_floors
from mempiler.runs.results import Evaluation

from .evaluations import evaluation, row


def evaluation_with_recall(*recalls: float) -> Evaluation:
    """Return an evaluation of one question for each of these recalls among the first 20 hits."""
    rows = []
    for number, recall in enumerate(recalls):
        rows.append(row(f"q{number}", recall={"recall@20": recall}))
    return evaluation(rows)


@pytest.mark.parametrize("name", ["score", "f1", "recall@20"])
@pytest.mark.parametrize(("floor", "is_met"), [(0.5, True), (0.51, False)])
def test_a_figure_of_one_half_meets_a_floor_of_one_half_and_no_higher_one(
    name: str, floor: float, is_met: bool
) -> None:
    """One of two answers is right, and its evidence was recalled."""
    right = row("q0", score=1.0, recall={"recall@20": 1.0})
    wrong = row("q1", score=0.0, recall={"recall@20": 0.0})

    (result,) = check_floors(evaluation([right, wrong]), {name: floor})

    assert result.value == pytest.approx(0.5)
    assert result.is_met is is_met


@pytest.mark.parametrize(("floor", "is_met"), [(0.6, True), (0.61, False)])
def test_a_figure_of_all_answers_together_can_have_a_floor(floor: float, is_met: bool) -> None:
    """Macro F1 is no mean of the scores of single questions, so it has no interval either."""
    with_macro_f1 = evaluation([row("q0")], aggregate={"macro_f1": 0.6})

    (result,) = check_floors(with_macro_f1, {"macro_f1": floor})

    assert result.value == pytest.approx(0.6)
    assert result.is_met is is_met
    assert result.interval is None


def test_a_floor_is_met_although_the_interval_of_the_figure_reaches_below_it() -> None:
    """The mean recall is 0.5. With only four questions the true mean may well be below 0.4."""
    recalls = evaluation_with_recall(1.0, 1.0, 0.0, 0.0)

    (result,) = check_floors(recalls, {"recall@20": 0.4})

    assert result.interval is not None
    assert result.interval.low < 0.4
    assert result.is_met


def test_a_misspelled_figure_is_refused_with_the_one_that_was_meant() -> None:
    recalls = evaluation_with_recall(1.0)

    with pytest.raises(UnknownNameError, match=r"did you mean 'recall@20'\?"):
        check_floors(recalls, {"recal@20": 0.7})


def test_floors_of_the_command_line_are_names_and_numbers() -> None:
    """As in "mempiler check new --floor recall@20=.7 --floor score=0.5"."""
    floors = parse_floors(["recall@20=.7", "score=0.5"])

    assert floors == {"recall@20": 0.7, "score": 0.5}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["recall@20"], "give NAME=VALUE"),
        (["=.7"], "give NAME=VALUE"),
        (["score=high"], "'high' is no number"),
        (["score=nan"], "no finite number"),
        (["score=.5", "score=.6"], "has another floor already"),
    ],
)
def test_a_malformed_floor_of_the_command_line_is_refused(pairs: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_floors(pairs)
