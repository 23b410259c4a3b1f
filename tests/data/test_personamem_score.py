"""PersonaMem v1's accuracy: the official extraction of a letter, worked out by hand."""

import dspy
import pytest
from mempiler.data.personamem.benchmark import PersonaMem
from mempiler.data.personamem.scorer import chooses, letters


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(b)", "b"),
        ("b", "b"),
        ("It is (b), not C", "b"),
        ("B or c", "bc"),
        ("bad", ""),
        ("a cat", "a"),
        ("(e)", ""),
        ("", ""),
    ],
)
def test_letters_in_parentheses_go_before_those_that_stand_alone(text: str, found: str) -> None:
    assert letters(text) == set(found)


@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        ("(c)", "(c)", True),
        ("(c)", "C", True),
        ("(d)", "(c)", False),
        ("", "(c)", False),
        ("(a) or (b)? <final_answer> (c)", "(c)", True),
        ("<final_answer>(a) <final_answer>(c)</final_answer>", "(c)", True),
        ("<final_answer>(c) <final_answer>(a)</final_answer>", "(c)", False),
        ("<final_answer>(b) and (c)", "(c)", False),
        # the tail names no letter, the whole response names one
        ("(c) is best. <final_answer> see there", "(c)", True),
        # the tail is wrong, and with it the whole names two
        ("(c) is best. <final_answer> (d)", "(c)", False),
        # "a" as a word counts where no letter is in parentheses
        ("a good one is c", "(c)", False),
        ("a good one is (c)", "(c)", True),
        ("(c)", "", False),
    ],
)
def test_the_official_rule(response: str, gold: str, right: bool) -> None:
    assert chooses(response, gold) is right


@pytest.mark.parametrize("answer", ["right", "wrong", "", "I do not know"])
def test_a_score_says_which_option_is_right(answer: str) -> None:
    benchmark = PersonaMem.load()
    example = benchmark.examples[0]
    other = next(letter for letter in ("(a)", "(b)") if letter != example.answer)
    said = {"right": example.answer, "wrong": other}.get(answer, answer)
    found = benchmark.score(example, dspy.Prediction(answer=said))
    assert (found.value, found.parts) == (float(answer == "right"), {"accuracy": float(answer == "right")})
    gold = next(option for option in example.options if option.startswith(example.answer))
    assert (gold in found.feedback) is (answer != "right")
