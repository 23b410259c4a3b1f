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


def evaluation_of_four_questions() -> Evaluation:
    """Return an evaluation with a score of 0.75 and a recall of 0.5 among the first 20 hits."""
    rows = [
        row("q0", 1.0, recall={"shown": 1.0, "recall@20": 1.0}),
        row("q1", 1.0, recall={"shown": 1.0, "recall@20": 1.0}),
        row("q2", 1.0, recall={"shown": 0.0, "recall@20": 0.0}),
        row("q3", 0.0, recall={"shown": 0.0, "recall@20": 0.0}),
    ]
    return evaluation(rows, aggregate={"macro_f1": 0.6})


@pytest.mark.parametrize(
    ("name", "value"), [("score", 0.75), ("f1", 0.75), ("recall@20", 0.5), ("macro_f1", 0.6)]
)
def test_a_figure_is_compared_with_its_floor(name: str, value: float) -> None:
    (met,) = check_floors(evaluation_of_four_questions(), {name: value})
    (missed,) = check_floors(evaluation_of_four_questions(), {name: value + 0.01})

    assert met.value == pytest.approx(value)
    assert met.is_met
    assert not missed.is_met


def test_a_figure_over_questions_has_an_interval_that_decides_nothing() -> None:
    (result,) = check_floors(evaluation_of_four_questions(), {"recall@20": 0.4})

    assert result.interval is not None
    assert result.interval.low < 0.4
    assert result.is_met


def test_a_figure_of_all_answers_together_has_no_interval() -> None:
    (result,) = check_floors(evaluation_of_four_questions(), {"macro_f1": 0.4})

    assert result.interval is None


def test_the_text_of_a_missed_floor_has_all_numbers() -> None:
    (result,) = check_floors(evaluation_of_four_questions(), {"recall@20": 0.7})

    assert str(result) == "recall@20 is 0.500 [0.000, 1.000], below the floor 0.7"


def test_an_unknown_figure_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'recall@20'\?"):
        check_floors(evaluation_of_four_questions(), {"recal@20": 0.7})


def test_floors_are_read_from_the_command_line() -> None:
    assert parse_floors(["recall@20=.7", "score=0.5"]) == {"recall@20": 0.7, "score": 0.5}


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
