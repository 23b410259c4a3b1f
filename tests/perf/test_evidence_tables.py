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


def test_the_two_conversations_of_locomo_are_pooled_as_two_splits(tables: Any) -> None:
    """locomo2r.json has the conversations of locomo2.json in reverse order, and tests the other."""
    forwards = "mempiler compile x --data locomo2.json"
    backwards = "mempiler compile x --data locomo2r.json"
    first = cell(before=[0, 1], after=[1, 1], on="locomo", command=forwards)
    second = cell(before=[0, 0], after=[1, 0], on="locomo", command=backwards)

    (line,) = tables.pool_splits([first, second])

    assert line["splits"] == 2
    assert line["n"] == 4


def test_optimizers_that_were_tested_on_different_splits_share_no_line(tables: Any) -> None:
    """A line has a column for each optimizer. Another seed makes another split."""
    labeled = cell(before=[0, 1], after=[1, 1], seed=0, **{"with": "labeled"})
    mipro = cell(before=[1, 0], after=[1, 1], seed=4, **{"with": "mipro"})

    first_line, second_line = tables.compare_optimizers([labeled, mipro])

    assert "labeled" in first_line
    assert "mipro" not in first_line
    assert "mipro" in second_line
    assert "labeled" not in second_line


def test_an_optimizer_without_an_interval_is_not_named_as_above_zero(tables: Any) -> None:
    """ "above zero" names the optimizers whose interval lies above zero."""
    without_interval = cell(before=[0], after=[1], difference={"mean": 1.0, "interval": None})

    (line,) = tables.compare_optimizers([without_interval])

    assert line["above zero"] == []


def test_adapters_are_compared_on_the_same_conversation(tables: Any) -> None:
    """locomo2r.json has the conversations of locomo2.json in reverse order, and tests the other."""
    forwards = "mempiler compile x --data locomo2.json"
    backwards = "mempiler compile x --data locomo2r.json"
    cells = [
        cell([0, 0], [0, 0], on="locomo", command=forwards, adapter="auto"),
        cell([0, 0], [0.5, 0.5], on="locomo", command=backwards, adapter="auto"),
        cell([0, 0], [1, 1], on="locomo", command=backwards, adapter="chat"),
    ]

    lines = tables.compare_adapters(cells)

    (compiled,) = [line for line in lines if line["with"] == "labeled"]
    assert compiled["test"] == "conv-26"
    assert compiled["auto"] == 0.5
    assert compiled["chat"] == 1.0


def test_adapters_are_compared_in_the_same_variant(tables: Any) -> None:
    """A variant is what is unusual about a cell; "" stands for nothing."""
    cells = [
        cell([0, 0], [0.25, 0.25], adapter="auto", variant="reasoning"),
        cell([0, 0], [0.5, 0.5], adapter="auto"),
        cell([0, 0], [1, 1], adapter="chat"),
    ]

    lines = tables.compare_adapters(cells)

    (compiled,) = [line for line in lines if line["with"] == "labeled"]
    assert compiled["variant"] == ""
    assert compiled["auto"] == 0.5
    assert compiled["chat"] == 1.0


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


def test_adapters_are_compared_by_the_cells_that_were_asked_the_same_questions(tables: Any) -> None:
    auto_on_three_questions = cell(before=[0, 0, 0], after=[0, 0, 0], adapter="auto")
    auto_on_two_questions = cell(before=[0, 0], after=[0.5, 0.5], adapter="auto")
    chat_on_two_questions = cell(before=[0, 0], after=[1, 1], adapter="chat")

    lines = tables.compare_adapters(
        [auto_on_three_questions, auto_on_two_questions, chat_on_two_questions]
    )

    (compiled,) = [line for line in lines if line["with"] == "labeled"]
    assert compiled["n"] == 2
    assert compiled["auto"] == 0.5
    assert compiled["chat"] == 1.0


def test_a_cell_without_a_difference_stands_in_the_overview_alone(tables: Any) -> None:
    """The table "best" shows the questions of the cell with the largest difference."""
    without_difference = cell(before=[0], after=[1], on="locomo", difference=None)

    all_tables = tables.all_tables([without_difference])

    (line,) = all_tables["overview"]
    assert line["labeled"] == 1
    assert line["above zero"] == []
    assert all_tables["best"] == []


def test_the_27th_machine_has_two_letters(tables: Any) -> None:
    """The pages name machines A to Z, in place of their real names."""
    cells = [cell([0], [1], **{"run by": f"machine {number}"}) for number in range(28)]

    machines = tables.name_machines(cells)

    names = [machine["machine"] for machine in machines]
    assert names[24:] == ["Y", "Z", "AA", "AB"]
    assert cells[27]["machine"] == "AB"


def test_no_cells_give_empty_tables(tables: Any) -> None:
    all_tables = tables.all_tables([])

    assert all_tables
    for name, lines in all_tables.items():
        assert list(lines) == [], name
