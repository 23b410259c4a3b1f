"""perf/promotions.py, and how often the two ways of being promoted are right.

A compile promotes the new program if it is better than the old one, or if it is cheaper and not
worse by more than a margin. The script draws scores and tokens of pairs of programs at random, and
counts how many new programs are promoted. The cases differ in their numbers of questions and
conversations, and in how much chance plays a part (noise).
"""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "questions", "conversations"),
    [("same", 30, 8), ("same", 100, 2), ("same answers", 100, 2), ("same answers", 100, 8)],
)
def test_of_two_hundred_pairs_of_the_same_program_at_most_ten_are_promoted(
    script: Any, name: str, questions: int, conversations: int
) -> None:
    """Every promotion is a mistake here, which may happen in 5 percent of 200 pairs.

    In the case "same answers" even the scores of a pair are equal, and only the tokens differ.
    """
    promotions = script("promotions")
    (case,) = [
        case
        for case in promotions.CASES
        if (case.name, case.questions, case.conversations) == (name, questions, conversations)
    ]

    counts = promotions.count_promotions(case, pairs=200)

    assert counts["better"] + counts["cheaper"] <= 10


@pytest.mark.parametrize(
    "case",
    [
        {"questions": 30, "conversations": 8, "margin": 0.2, "memory_noise": 0.1},
        {"questions": 100, "conversations": 2, "margin": 0.1, "memory_noise": 0.0},
    ],
    ids=["30 questions", "100 questions"],
)
def test_a_program_with_equal_scores_and_fewer_tokens_is_mostly_promoted(
    script: Any, case: dict[str, Any]
) -> None:
    """It takes 30 percent fewer tokens. At least 12 of 20 such programs are found to be cheaper."""
    promotions = script("promotions")

    counts = promotions.count_promotions(
        promotions.Case("cheaper", noise=0.0, saving=0.3, **case), pairs=20
    )

    assert counts["cheaper"] >= 12


@pytest.mark.parametrize(("margin", "noise"), [(0.1, 0.1), (0.1, 0.0), (0.02, 0.0)])
@pytest.mark.parametrize(
    ("questions", "conversations"), [(30, 8), (100, 2)], ids=["30 questions", "100 questions"]
)
def test_a_program_that_is_worse_by_twice_the_margin_is_never_promoted(
    script: Any, questions: int, conversations: int, margin: float, noise: float
) -> None:
    """Although it takes 30 percent fewer tokens."""
    promotions = script("promotions")
    case = promotions.Case(
        "worse",
        questions=questions,
        conversations=conversations,
        margin=margin,
        noise=noise,
        saving=0.3,
        loss=2 * margin,
        memory_noise=0.0,
    )

    counts = promotions.count_promotions(case, pairs=20)

    assert counts.total() == 0
