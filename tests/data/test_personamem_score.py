"""PersonaMem v1's accuracy and its feedback."""

import dspy
import pytest
from mempiler.data.personamem.benchmark import PersonaMem


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
