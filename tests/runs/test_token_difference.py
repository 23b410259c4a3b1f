"""Whether a program takes fewer tokens than another, and how many tokens a question takes.

`is_lower` says that the whole interval of the difference lies below zero.
"""

from __future__ import annotations

import pytest
from mempiler.runs.token_difference import compare_tokens, tokens_of_questions

from .evaluations import evaluation, row


def test_the_interval_follows_students_t_over_the_conversations() -> None:
    difference = compare_tokens(
        [690, 690, 700, 710], [1000, 1000, 1000, 1000], ["ann", "ann", "bob", "cyd"]
    )

    # The mean differences of the three conversations are -310, -300 and -290. Their standard
    # deviation is 10, and Student's t for 95 % and two degrees of freedom is 4.3027.
    half_width = 4.3027 * 10 / 3**0.5
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


def test_one_conversation_shows_no_saving() -> None:
    difference = compare_tokens([10, 10], [1000, 1000], ["ann", "ann"])

    assert not difference.is_lower
    assert str(difference) == "-990 tokens a question, but all are about one conversation"


def test_more_tokens_are_no_saving() -> None:
    difference = compare_tokens([1000, 1010], [500, 500], ["ann", "bob"])

    assert not difference.is_lower


def test_a_question_takes_its_tokens_and_its_share_of_the_writing() -> None:
    """Writing Ann's memory took 1,000 tokens, and writing Bob's 40."""
    rows = [
        row("q0", group="ann", prompt_tokens=100, output_tokens=5),
        row("q1", group="ann", prompt_tokens=200, output_tokens=5, context_tokens=90),
        row("q2", group="ann", prompt_tokens=200, output_tokens=5, category="5"),
        row("q3", group="bob", prompt_tokens=300, output_tokens=5),
    ]
    scored = evaluation(rows, writing_tokens={"ann": 1000.0, "bob": 40.0})

    tokens = tokens_of_questions(scored, scored.headline_rows)

    # The question of category 5 is not compared. So the two others about Ann share the writing of
    # her memory, and the only question about Bob bears all of his.
    assert tokens == [105 + 500, 205 + 500, 305 + 40]
