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


@pytest.mark.parametrize("name", ["score", "f1"])
@pytest.mark.parametrize(("floor", "is_met"), [(0.75, True), (0.76, False)])
def test_a_score_is_compared_with_its_floor(name: str, floor: float, is_met: bool) -> None:
    """The metric is F1, so the score and its only part are the same."""
    three_of_four_right = evaluation([row(f"q{n}", score) for n, score in enumerate([1, 1, 1, 0])])

    (result,) = check_floors(three_of_four_right, {name: floor})

    assert result.value == pytest.approx(0.75)
    assert result.is_met is is_met


@pytest.mark.parametrize(("floor", "is_met"), [(0.5, True), (0.51, False)])
def test_a_recall_is_compared_with_its_floor(floor: float, is_met: bool) -> None:
    (result,) = check_floors(evaluation_with_recall(1.0, 0.0), {"recall@20": floor})

    assert result.value == pytest.approx(0.5)
    assert result.is_met is is_met


@pytest.mark.parametrize(("floor", "is_met"), [(0.6, True), (0.61, False)])
def test_a_figure_of_all_answers_together_is_compared_with_its_floor(
    floor: float, is_met: bool
) -> None:
    """Some metrics, such as macro F1, are no mean of the scores of questions."""
    with_macro_f1 = evaluation([row("q0")], aggregate={"macro_f1": 0.6})

    (result,) = check_floors(with_macro_f1, {"macro_f1": floor})

    assert result.value == pytest.approx(0.6)
    assert result.is_met is is_met


def test_a_figure_over_questions_has_an_interval_that_decides_nothing() -> None:
    """The mean is 0.5, and with four questions the true mean may well be below 0.4."""
    recalls = evaluation_with_recall(1.0, 1.0, 0.0, 0.0)

    (result,) = check_floors(recalls, {"recall@20": 0.4})

    assert result.interval is not None
    assert result.interval.low < 0.4
    assert result.is_met


def test_a_figure_of_all_answers_together_has_no_interval() -> None:
    with_macro_f1 = evaluation([row("q0")], aggregate={"macro_f1": 0.6})

    (result,) = check_floors(with_macro_f1, {"macro_f1": 0.4})

    assert result.interval is None


def test_the_text_of_a_missed_floor_has_all_numbers() -> None:
    recalls = evaluation_with_recall(1.0, 1.0, 0.0, 0.0)

    (result,) = check_floors(recalls, {"recall@20": 0.7})

    assert str(result) == "recall@20 is 0.500 [0.000, 1.000], below the floor 0.7"


def test_an_unknown_figure_is_refused_with_the_one_that_was_meant() -> None:
    recalls = evaluation_with_recall(1.0)

    with pytest.raises(UnknownNameError, match=r"did you mean 'recall@20'\?"):
        check_floors(recalls, {"recal@20": 0.7})


def test_floors_are_read_from_the_command_line() -> None:
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
def test_a_floor_of_another_form_is_refused(pairs: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_floors(pairs)
