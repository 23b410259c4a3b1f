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
    """A cell with scores before and after a compile."""
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
    """The first two cells are the same compile on two machines.

    So there are two splits of two questions each, and the scores before are 0, 1, 0 and 0: 0.25 on
    average.
    """
    cells = [
        cell([0, 1], [1, 1]),
        cell([0, 1], [1, 1], **{"run by": "another machine"}),
        cell([0, 0], [1, 0], seed=4),
    ]
    [line] = tables.pool_splits(cells)

    assert (line["splits"], line["n"]) == (2, 4)
    assert line["before"] == pytest.approx(0.25)
    assert tables.pool_splits(cells[:2]) == []


def test_tests_of_the_two_locomo_conversations_are_pooled_as_two_splits(tables: Any) -> None:
    """locomo2r.json has the conversations of locomo2.json in reverse order.

    So the other one is the test.
    """
    first = cell([0, 1], [1, 1], on="locomo", command="mempiler compile x --data locomo2.json")
    second = cell([0, 0], [1, 0], on="locomo", command="mempiler compile x --data locomo2r.json")
    [line] = tables.pool_splits([first, second])

    assert (line["splits"], line["n"]) == (2, 4)


def test_optimizers_of_different_splits_share_no_line(tables: Any) -> None:
    """`labeled` ran on the split of seed 0, and `mipro` on the split of seed 4."""
    cells = [cell([0, 1], [1, 1]), cell([1, 0], [1, 1], seed=4, **{"with": "mipro"})]
    lines = tables.compare_optimizers(cells)

    assert [sorted({"labeled", "mipro"} & line.keys()) for line in lines] == [
        ["labeled"],
        ["mipro"],
    ]


def test_an_optimizer_without_an_interval_is_not_named_as_above_zero(tables: Any) -> None:
    """ "above zero" names the optimizers whose interval lies above zero."""
    [line] = tables.compare_optimizers([cell([0], [1], difference={"mean": 1.0, "interval": None})])

    assert line["above zero"] == []


def test_adapters_are_compared_in_the_same_variant_and_conversation(tables: Any) -> None:
    """The last cell, with the adapter `chat`, is compared with the second one.

    The first cell tests another conversation, and the third one is a variant.
    """
    forwards = "mempiler compile x --data locomo2.json"
    backwards = "mempiler compile x --data locomo2r.json"
    cells = [
        cell([0, 0], [0, 0], on="locomo", command=forwards),
        cell([0, 0], [0.5, 0.5], on="locomo", command=backwards),
        cell([0, 0], [0.25, 0.25], on="locomo", command=backwards, variant="reasoning"),
        cell([0, 0], [1, 1], on="locomo", command=backwards, adapter="chat"),
    ]
    lines = tables.compare_adapters(cells)

    assert {(line["test"], line["variant"]) for line in lines} == {("conv-26", "")}
    [compiled] = [line for line in lines if line["with"] == "labeled"]
    assert (compiled["auto"], compiled["chat"]) == (0.5, 1.0)


@pytest.mark.parametrize(
    "other_questions",
    [questions([1, 1, 1]), questions([1, 1], category="2"), questions([1, 1], gold_words=[1, 2])],
)
def test_adapters_that_were_asked_other_questions_are_not_compared(
    tables: Any, other_questions: dict[str, list[Any]]
) -> None:
    """The compiled programs were asked other questions.

    The programs before the compile were asked the same ones, so only their line is there.
    """
    chat = cell([0, 0], [1, 1], adapter="chat")
    chat["questions"]["after"] = other_questions
    lines = tables.compare_adapters([cell([0, 0], [1, 1]), chat])

    assert [line["with"] for line in lines] == ["(before)"]


def test_adapters_are_compared_by_the_cells_that_were_asked_the_same_questions(tables: Any) -> None:
    """The first cell has three questions.

    Only the second one has two, as the one with `chat` has.
    """
    cells = [
        cell([0, 0, 0], [0, 0, 0]),
        cell([0, 0], [0.5, 0.5]),
        cell([0, 0], [1, 1], adapter="chat"),
    ]
    [compiled] = [line for line in tables.compare_adapters(cells) if line["with"] == "labeled"]

    assert (compiled["n"], compiled["auto"], compiled["chat"]) == (2, 0.5, 1.0)


def test_a_cell_without_a_difference_stands_in_the_overview_alone(tables: Any) -> None:
    """ "best" has the questions of the cell with the largest difference."""
    all_tables = tables.all_tables([cell([0], [1], on="locomo", difference=None)])
    [line] = all_tables["overview"]

    assert (line["labeled"], line["above zero"]) == (1, [])
    assert all_tables["best"] == []


def test_the_27th_machine_has_two_letters(tables: Any) -> None:
    """The pages name machines A to Z, in place of their real names."""
    cells = [cell([0], [1], **{"run by": f"machine {number}"}) for number in range(28)]
    machines = tables.name_machines(cells)

    assert [machine["machine"] for machine in machines][24:] == ["Y", "Z", "AA", "AB"]
    assert cells[27]["machine"] == "AB"


def test_no_cells_give_empty_tables(tables: Any) -> None:
    assert set(map(tuple, tables.all_tables([]).values())) == {()}
