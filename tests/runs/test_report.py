"""What people are told of a run: every number with what it rests on, and text that is printed as it is."""

import io
from typing import Any

import pytest
from mempiler.cli.show import page_lines
from mempiler.engines.spending import Spending
from mempiler.records import Failure
from mempiler.runs.pages.page import WIRING, difference_line, run_page, spent_facts
from mempiler.runs.results import Evaluation, difference
from rich.console import Console

from .evaluations import evaluation as made
from .evaluations import row


def evaluation(scores: dict[str, list[float]], **changes: Any) -> Evaluation:
    """An evaluation with the given scores by category."""
    rows = [
        row(
            f"{category}:{n}",
            score,
            category=category,
            recall={"recall@5": 1.0},
            failure=Failure(kind="error", where="x", message="y") if score < 0.05 else None,
        )
        for category, values in scores.items()
        for n, score in enumerate(values)
    ]
    calls, tokens = {"task": 12, "prompt": 0, "judge": 2, "cached": 0}, {"input": 1234, "output": 56}
    return made(rows, **{"calls": calls, "tokens": tokens, "cost": None, "seconds": 1.25, **changes})


def shown(**phases: Evaluation) -> list[str]:
    """What the terminal shows of evaluations, line by line."""
    console = Console(file=io.StringIO(), width=120, soft_wrap=True)
    for line in page_lines(run_page("evaluate", "a-run", phases)):
        console.print(line)
    return console.file.getvalue().splitlines()  # pyright: ignore[reportAttributeAccessIssue]


def test_an_evaluation_shows_categories_and_what_they_rest_on():
    lines = shown(score=evaluation({"1": [0.5, 0.25], "5": [1.0]}))
    rows = [line.split() for line in lines]
    assert ["1", "2", "0.375", "[0.250,", "0.500]", "0.375", "0"] in rows
    assert ["5", "(not", "in", "score)", "1", "1.000", "1.000", "0"] in rows
    assert ["score", "2", "0.375", "[0.250,", "0.500]", "0.375", "0"] in rows
    assert "95 % intervals, resampled by question" in lines


@pytest.mark.parametrize("comparable", [True, False])
def test_a_wiring_check_is_headed_so_on_one_line(comparable):
    long = evaluation({"1": [0.5]}, comparable=comparable, program="a-very-long-method-name-" * 4)
    assert (WIRING in shown(score=long)[0]) is not comparable


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([0.0] * 20, [1.0] * 20, "after minus before: +1.000 [+1.000, +1.000], p = .0002, n = 20: better"),
        ([], [], "n = 0: too few to tell"),
    ],
)
def test_the_difference_in_words(before, after, words):
    found = difference(evaluation({"1": before}).counted, evaluation({"1": after}).counted)
    assert difference_line(found).endswith(words)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "12 task, 2 judge; 1,234 + 56 tokens; no price known; 1.2 s"),
        ({"cost": 0.5}, "12 task, 2 judge; 1,234 + 56 tokens; $0.5000; 1.2 s"),
        (
            {"prompt_cache": {"told": 200, "reused": 150}},
            "12 task, 2 judge; 1,234 + 56 tokens (75% of the prompts from the server's cache); no price known; 1.2 s",
        ),
    ],
)
def test_usage_is_one_line(changes, told):
    assert spent_facts({"score": evaluation({"1": [0.5]}, **changes)}) == [("LM calls", told)]


def test_calls_that_were_made_elsewhere_are_told_as_such():
    """Four calls: three wrote the memory, of which an endpoint tells that it paid for them."""
    writing = Spending(3, 600, 0, 1.0, seconds=2.0)
    taken = {"calls": 1, "prompt_tokens": 90, "output_tokens": 10, "cost": 0.25, "answering": 0.5}
    here = made([row(**taken)], construction=writing, cost=None)
    assert here.spent["calls"]["task"] == 1
    away = here.model_copy(update={"calls": {"task": 0}, "tokens": {"input": 0, "output": 0}})
    assert away.spent["calls"] == {"elsewhere": 4}
    assert spent_facts({"score": away})[0][1].startswith("4 elsewhere; 690 + 10 tokens; $1.2500")
