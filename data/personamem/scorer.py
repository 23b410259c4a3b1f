"""PersonaMem's metric: whether a response chooses the right letter and no other, by the official rule."""

from __future__ import annotations

import re

import dspy

from ..scorer import Score, Scorer, answer_of

_TAG = "<final_answer>"


class RightLetter(Scorer):
    """1 when the answer chooses the gold letter and no other; see `chooses`."""

    title = "accuracy"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        right = self.right(answer, example.answer)
        return Score(float(right), explain_choice(example, answer, right), {"accuracy": float(right)})

    def right(self, answer: str, gold: str) -> bool:
        """Whether an answer chooses the gold letter."""
        return chooses(answer, gold)


def chooses(response: str, gold: str) -> bool:
    """Whether a response chooses the gold letter and no other, by the official rule.

    What follows the last `<final_answer>` is read first, then the whole response; see `letters`. The gold letter is
    one alone, with or without parentheses.
    Source: PersonaMem's inference script, as described in its repository.
    """
    wanted = {gold.lower().strip("() ")}
    tail = response.rpartition(_TAG)[2]
    return letters(tail) == wanted or letters(response) == wanted


def letters(text: str) -> set[str]:
    """The option letters a text names: those in parentheses, or without any of them, those that stand alone.

    "It is (b), not C" gives {"b"}, "B or c" gives {"b", "c"}.
    """
    text = text.lower()
    return set(re.findall(r"\(([a-d])\)", text) or re.findall(r"\b([a-d])\b", text))


def explain_choice(example: dspy.Example, answer: str, right: bool) -> str:
    """Feedback: the right option, and why an answer did not count."""
    if right:
        return "Right: the answer chooses the right option."
    gold = next((option for option in example.options if option.strip().lower().startswith(example.answer)), "")
    named = letters(answer.rpartition(_TAG)[2])
    if not answer.strip():
        said = "No answer was given"
    elif not named:
        said = "The answer names no option; give one letter in parentheses"
    else:
        said = f"Wrong: the answer names {', '.join(f'({letter})' for letter in sorted(named))}"
    return f"{said}. The right option is the one that fits what the user has told before: {gold}"
