"""Tables: every number with what it rests on, and text that is printed as it is."""

import io
from typing import Any

import pytest
from mempiler.records import Failure
from mempiler.runs.report import (
    WIRING,
    difference_line,
    print_comparison,
    print_evaluation,
    usage_line,
)
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


def printed(show: Any, *arguments: Any) -> str:
    console = Console(file=io.StringIO(), width=100)
    show(console, *arguments)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_an_evaluation_shows_categories_and_what_they_rest_on():
    text = printed(print_evaluation, evaluation({"1": [0.5, 0.25], "5": [1.0]}))
    rows = [line.replace("│", " ").split() for line in text.splitlines() if "│" in line]
    assert ["1", "2", "0.375", "0.375", "0", "0"] in rows
    assert ["5", "(not", "in", "score)", "1", "1.000", "1.000", "0", "0"] in rows
    assert ["score", "2", "0.375", "0.375", "0", "0"] in rows
    assert "turn-rag on locomo, LM openai/x" in text
    named = evaluation({"1": [0.5]}).model_copy(update={"embedder": "e5"})
    assert "LM openai/x, embedder e5" in printed(print_evaluation, named)
    assert "resampled by question" in text


@pytest.mark.parametrize("comparable", [True, False])
def test_a_wiring_check_is_headed_so_on_one_line(comparable):
    long = evaluation({"1": [0.5]}, comparable=comparable, program="a-very-long-method-name-" * 4)
    for text in (
        printed(print_evaluation, long),
        printed(print_comparison, long, long, difference(long.counted, long.counted)),
    ):
        assert (WIRING in text.splitlines()[0]) is not comparable


@pytest.mark.parametrize("name", ["[/b]", "[red]x", ":smile:", "$5 $x^"])
def test_names_of_users_are_printed_as_they_are(name):
    found = evaluation({name: [0.5, 0.0]})
    assert name in printed(print_evaluation, found)
    assert name in printed(print_comparison, found, found, difference(found.counted, found.counted))


def test_the_line_says_why_the_start_was_kept():
    found = difference(evaluation({"1": [0.5]}).counted, evaluation({"1": [0.5]}).counted)
    kept = "Kept the original program; use --force to keep the compiled one."
    assert difference_line(found, "No gain (+0.020)") == f"No gain (+0.020). {kept}"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([0.0] * 20, [1.0] * 20, "after minus before: +1.000 [+1.000, +1.000], p = .0002, n = 20: better"),
        ([1.0] * 20, [0.0] * 20, ": worse"),
        ([0.0, 1.0] * 10, [1.0, 0.0] * 10, ": not told apart"),
        ([0.0] * 9, [1.0] * 9, "n = 9: too few to tell"),
        ([], [], "n = 0: too few to tell"),
    ],
)
def test_the_difference_in_words(before, after, words):
    found = difference(evaluation({"1": before}).counted, evaluation({"1": after}).counted)
    assert difference_line(found).endswith(words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            "LM calls: 12 task, 2 judge; 1,234 + 56 tokens; no price known; 1.2 s; 0 failures; "
            "of the index alone recall@5 1.000",
        ),
        ({"cost": 0.5}, "$0.5000"),
        (
            {"prompt_cache": {"told": 200, "reused": 150}},
            "1,234 + 56 tokens (75% of the prompts from the server's cache)",
        ),
        ({"write_failures": 3}, "0 failures, 3 failed writes"),
    ],
)
def test_usage_is_one_line(changes, words):
    line = usage_line(evaluation({"1": [0.5]}, **changes))
    assert words in line
    assert "\n" not in line


def test_the_price_of_a_gain_is_in_the_table_of_a_compile():
    sizes = [evaluation({"1": [0.5, 0.5]}), evaluation({"1": [1.0, 1.0]})]
    before, after = (
        found.model_copy(update={"rows": tuple(row.model_copy(update={"prompt_tokens": n}) for row in found.rows)})
        for found, n in zip(sizes, (1200, 3400), strict=True)
    )
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in printed(print_comparison, before, after, difference(before.counted, after.counted)).splitlines()
        if "│" in line
    ]
    assert ["prompt tokens a question", "", "1,200", "3,400", "+2,200"] in rows
    assert "prompts 3,400 tokens a question" in usage_line(after)
