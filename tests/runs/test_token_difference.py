"""Whether a program takes fewer tokens than another, and how many tokens a question takes.

`is_lower` says that the whole interval of the difference lies below zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from mempiler.runs.rows import Row
from mempiler.runs.token_difference import compare_tokens, tokens_of_questions

from .evaluations import evaluation, row


def test_the_interval_of_saved_tokens_follows_students_t_over_the_conversations() -> None:
    """The mean savings of the three conversations are 310, 300 and 290 tokens a question."""
    difference = compare_tokens(
        [690, 690, 700, 710], [1000, 1000, 1000, 1000], ["ann", "ann", "bob", "cyd"]
    )

    # Student's t for 95 % and two degrees of freedom is 4.3027.
    standard_deviation = 10
    half_width = 4.3027 * standard_deviation / 3**0.5
    assert difference.mean == pytest.approx(-300)
    assert difference.low == pytest.approx(-300 - half_width, abs=0.01)
    assert difference.high == pytest.approx(-300 + half_width, abs=0.01)
    assert difference.is_lower
    assert str(difference) == "-300 tokens a question [-325, -275]"


def test_many_questions_about_two_conversations_that_differ_show_no_saving() -> None:
    """A question about Ann saves 100 tokens, and one about Bob 400.

    Two conversations that differ so much tell little about others.
    """
    conversations = ["ann", "bob"] * 100
    tokens = [900, 600] * 100
    baseline_tokens = [1000, 1000] * 100

    difference = compare_tokens(tokens, baseline_tokens, conversations)

    assert not difference.is_lower


def test_questions_about_one_conversation_show_no_saving() -> None:
    difference = compare_tokens([10, 10], [1000, 1000], ["ann", "ann"])

    assert not difference.is_lower
    assert str(difference) == "-990 tokens a question, but all are about one conversation"


def test_more_tokens_are_no_saving() -> None:
    difference = compare_tokens([1000, 1010], [500, 500], ["ann", "bob"])

    assert not difference.is_lower


def tokens_of(rows: Sequence[Row], writing_tokens: dict[str, float]) -> list[float]:
    """Return the tokens that each compared question of an evaluation counts for."""
    scored = evaluation(rows, writing_tokens=writing_tokens)
    return list(tokens_of_questions(scored, scored.headline_rows))


def test_the_questions_about_a_user_share_the_tokens_that_wrote_the_memory() -> None:
    """Two questions are about Ann, and one about Bob."""
    rows = [
        row("q0", group="ann", prompt_tokens=100, output_tokens=0),
        row("q1", group="ann", prompt_tokens=200, output_tokens=0),
        row("q2", group="bob", prompt_tokens=300, output_tokens=0),
    ]

    tokens = tokens_of(rows, writing_tokens={"ann": 1000.0, "bob": 40.0})

    assert tokens == [100 + 1000 / 2, 200 + 1000 / 2, 300 + 40]


def test_a_question_that_is_not_compared_bears_no_share_of_the_writing() -> None:
    """A question of category 5 does not count for the score, so it is not compared."""
    rows = [
        row("q0", group="ann", prompt_tokens=100, output_tokens=0),
        row("q1", group="ann", prompt_tokens=100, output_tokens=0, category="5"),
    ]

    assert tokens_of(rows, writing_tokens={"ann": 1000.0}) == [100 + 1000]


def test_the_tokens_of_a_context_count_once_if_the_question_was_answered() -> None:
    """They are among the tokens of the prompt already."""
    rows = [row("q0", prompt_tokens=100, output_tokens=5, context_tokens=90)]

    assert tokens_of(rows, writing_tokens={}) == [100 + 5]
