"""The prompt of behaviour prediction, and the parser of its answers.

Source: PraMem, equation 1 and section 4.1. One prompt holds the text of the memory, the newest
records of the history and the situation; it is the same for every method. The model chooses one of
the options. The paper does not print this prompt; the wording is ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import dspy

_OPENING_CHARACTERS = 20
"""How much of an answer is searched before the whole (as by PraMem's released evaluator)."""

_DECORATION = " .,;:!?\"'`*()[]"


class PredictBehavior(dspy.Signature):
    """Predict what this user does in the situation that the question describes.

    You are given:
    - Context: what is remembered about this user. It may come from records that are not shown.
    - Records: what the user did before. Each line gives the kind of situation, the situation and, after the arrow, the
      user's reaction. A reaction that a record does not mention did not happen.

    If there are options, answer with one of them, word for word, and nothing else. Otherwise give a short free answer.
    """

    context: str = dspy.InputField(desc="what is remembered about the user; may be empty")
    records: str = dspy.InputField(
        desc="the user's latest records, one per line, oldest first; may be empty"
    )
    question: str = dspy.InputField(desc="the situation, and what is asked about it")
    options: list[str] = dspy.InputField(
        desc="the possible answers; empty if you may answer freely"
    )
    answer: str = dspy.OutputField(
        desc="if there are options, one of them, word for word; otherwise a short free answer"
    )


def chosen_option(text: str, options: Sequence[str]) -> str | None:
    """Return the option that an answer chooses, or None if it names none or several.

    If an answer repeats a record (`situation => reaction`), only the part after the last arrow
    counts. If it thinks aloud, only the part after `</think>` counts. Letter case, and punctuation
    at the ends, are ignored. The first of these rules that finds exactly one option decides:

    1. The answer is the option, apart from blanks.
    2. The answer begins with the option.
    3. The first 20 characters name the option.
    4. The answer names the option.

    Source: PraMem's released evaluator, which reads Yes and No in this order. It also finds them
    inside other words ("cannot"), and reads an answer that names both as Yes. Here such an answer
    is a failed parse, unless it begins with one of them.

    Example:
        >>> from mempiler.signatures.behavior import chosen_option
        >>> chosen_option("No, the user skips ads.", ["Yes", "No"])
        'No'
    """
    after_thinking = text.rpartition("</think>")[2]
    after_arrow = after_thinking.rpartition("=>")[2]
    answer = _normalize(after_arrow)
    unique_options = list(dict.fromkeys(options))

    for option in unique_options:
        if answer.replace(" ", "") == _normalize(option).replace(" ", ""):
            return option

    initial_options = [option for option in unique_options if _starts_with(answer, option)]
    if len(initial_options) == 1:
        return initial_options[0]

    for passage in (answer[:_OPENING_CHARACTERS], answer):
        named_options = [option for option in unique_options if _names(passage, option)]
        if len(named_options) == 1:
            return named_options[0]
    return None


def _normalize(text: str) -> str:
    """Return a text in lower case, with single blanks, and without punctuation at its ends."""
    return " ".join(text.lower().split()).strip(_DECORATION)


def _starts_with(answer: str, option: str) -> bool:
    words = re.escape(_normalize(option))
    return re.match(rf"{words}(?!\w)", answer) is not None


def _names(passage: str, option: str) -> bool:
    words = re.escape(_normalize(option))
    return re.search(rf"(?<!\w){words}(?!\w)", passage) is not None
