"""perf/evidence_tables.py: which cells are compared, and with which numbers of questions.

A cell is one `mempiler compile`, with the scores of its test questions before and after. A split
says which questions are for training and which for the test; another seed makes another split. The
tables pool the cells of several splits, or compare optimizers or adapters on one split.
"""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def tables(script: Any) -> Any:
    """The script with the tables."""
    return script("evidence_tables")


def questions(scores: list[float], category: str = "1", **fields: Any) -> dict[str, list[Any]]:
    """The columns of questions with these scores; all count unless fields say otherwise."""
    count = len(scores)
    columns: dict[str, list[Any]] = {
        "category": [category] * count,
        "in_headline": [True] * count,
        "score": scores,
        "gold_words": [1] * count,
        "answer_words": [1] * count,
        "shown": [None] * count,
    }
    return {**columns, **fields}


def cell(before: list[float], after: list[float], **fields: Any) -> dict[str, Any]:
    """A cell with scores before and after a compile, by the optimizer "labeled" unless told."""
    plain_cell: dict[str, Any] = {
        "on": "palbench.restate",
        "seed": 0,
        "lm": "small",
        "variant": "",
        "command": "mempiler compile h2memory",
        "run by": "one machine",
        "method": "h2memory",
        "with": "labeled",
        "adapter": "auto",
        "kept": "yes",
        "unwritten": None,
        "lost, before": 0.0,
        "lost, after": 0.0,
        "difference": {"mean": 0.5, "interval": [0.1, 0.9]},
        "questions": {"before": questions(before), "after": questions(after)},
    }
    return {**plain_cell, **fields}


def test_a_split_that_two_machines_ran_counts_once(tables: Any) -> None:
    """Another seed makes another split. So there are two splits of two questions each."""
    split_0 = cell(before=[0, 1], after=[1, 1], seed=0)
    split_0_elsewhere = cell(before=[0, 1], after=[1, 1], seed=0, **{"run by": "another machine"})
    split_4 = cell(before=[0, 0], after=[1, 0], seed=4)

    (line,) = tables.pool_splits([split_0, split_0_elsewhere, split_4])

    assert line["splits"] == 2
    assert line["n"] == 4
    assert line["before"] == pytest.approx((0 + 1 + 0 + 0) / 4)


def test_a_split_alone_is_not_pooled(tables: Any) -> None:
    """Two machines ran the same split."""
    split_0 = cell(before=[0, 1], after=[1, 1], seed=0)
    split_0_elsewhere = cell(before=[0, 1], after=[1, 1], seed=0, **{"run by": "another machine"})

    assert tables.pool_splits([split_0, split_0_elsewhere]) == []


def test_an_optimizer_without_an_interval_is_not_named_as_above_zero(tables: Any) -> None:
    """ "above zero" names the optimizers whose interval lies above zero."""
    without_interval = cell(before=[0], after=[1], difference={"mean": 1.0, "interval": None})

    (line,) = tables.compare_optimizers([without_interval])

    assert line["above zero"] == []


@pytest.mark.parametrize(
    "questions_of_chat",
    [
        pytest.param(questions([1, 1, 1]), id="three"),
        pytest.param(questions([1, 1], category="2"), id="of another category"),
        pytest.param(questions([1, 1], gold_words=[1, 2]), id="with other gold answers"),
    ],
)
def test_adapters_that_were_asked_different_questions_are_not_compared(
    tables: Any, questions_of_chat: dict[str, list[Any]]
) -> None:
    """The compiled programs were asked different questions.

    The programs before the compile were asked the same ones, so only their line is there.
    """
    auto = cell(before=[0, 0], after=[1, 1], adapter="auto")
    chat = cell(before=[0, 0], after=[1, 1], adapter="chat")
    chat["questions"]["after"] = questions_of_chat

    lines = tables.compare_adapters([auto, chat])

    assert [line["with"] for line in lines] == ["(before)"]


def test_a_cell_without_a_difference_stands_in_the_overview_alone(tables: Any) -> None:
    """The table "best" shows the questions of the cell with the largest difference."""
    without_difference = cell(before=[0], after=[1], on="locomo", difference=None)

    all_tables = tables.all_tables([without_difference])

    (line,) = all_tables["overview"]
    assert line["labeled"] == 1
    assert line["above zero"] == []
    assert all_tables["best"] == []
