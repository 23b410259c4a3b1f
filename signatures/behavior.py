"""The prompt of behaviour prediction, and how its answers are read as one of the options.

Source: PraMem, equation 1 and section 4.1: the memory's text, the history's newest records and the situation in one
prompt, the same for every method, and a choice of classes. The paper does not print this prompt; the wording is ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import dspy

_HEAD = 20
"""So many characters of an answer are read before all of it (as PraMem's released evaluator does)."""


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
    """The option that an answer chooses; None where it names none, or several (a failed parse).

    Looked for in this order, letter case and punctuation at the ends aside: the whole answer, blanks within it aside,
    its beginning, its first 20 characters, any whole word of it. An answer that repeats a record (`situation =>
    reaction`) is read behind its last arrow, one that thinks aloud behind `</think>`. Source: the cascade of PraMem's
    released evaluator for Yes and No, which also finds them inside of other words ("cannot") and takes Yes where both
    are named; here an answer that begins with no option and names several is a failed parse.

    Example:
        >>> from mempiler.signatures.behavior import chosen_option
        >>> chosen_option("No, the user skips ads.", ["Yes", "No"])
        'No'
    """
    said = _plain(text.rpartition("</think>")[2].rpartition("=>")[2])
    plain = {option: _plain(option) for option in options}
    for option, words in plain.items():
        if said.replace(" ", "") == words.replace(" ", ""):
            return option
    starting = [
        option for option, words in plain.items() if re.match(rf"{re.escape(words)}(?!\w)", said)
    ]
    if len(starting) == 1:
        return starting[0]
    for part in (said[:_HEAD], said):
        named = [
            option
            for option, words in plain.items()
            if re.search(rf"(?<!\w){re.escape(words)}(?!\w)", part)
        ]
        if len(named) == 1:
            return named[0]
    return None


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .,;:!?\"'`*()[]")
