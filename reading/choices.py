"""Answers that choose one of the options that a prompt offers.

A field with such an answer is marked with the input that holds the options:

    answer: Annotated[str, OneOf("options")]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# `chosen_letter` joins all blanks before these patterns are used. With long runs of blanks some of
# them would take minutes, for example for "\boxed" and 1,000 line breaks.
_LABEL = re.compile(r"^\s*[(\[]?([A-Za-z]|\d{1,2})[)\].:]")
_FINAL_ANSWER_TAG = re.compile(r"<\s*final_?answer\s*>", re.IGNORECASE)
_BOXED_LABEL = re.compile(r"\\boxed\s*\{?\s*(?:\\text\s*\{)?\s*\(?\s*(\w)\b")
_BRACKETED_LABEL = re.compile(r"[(（\[]\s*(\w{1,2})\s*[)）\]]")
_FINAL_ANSWER_LABEL = re.compile(r"final answer\s*[:：][\s*]*[(（\[]?(\w)\b", re.IGNORECASE)
_ANNOUNCED_LABEL = re.compile(
    r"(?:answer|option|choice|choose|select)(?:\s+is)?\s*[:：]?[\s*]*(?:option\s+)?[(（\[]?(\w)\b",
    re.IGNORECASE,
)
_LABEL_ALONE = re.compile(r"(?<![\w'])(\w{1,2})(?!\w)")


@dataclass(frozen=True)
class OneOf:
    """Mark a text as one of the options of an input."""

    field: str
    """The name of the input, a list of texts that begin with their labels."""


def chosen_letter(text: str, options: Sequence[str]) -> str | None:
    """Return the label of the option that an answer chooses, e.g. "(b)".

    Args:
        text: The answer. It repeats the text of an option, or names its label.
        options: The options. Each begins with its label: "(a)", "A." or "3)".

    Returns:
        The label in lower case and parentheses; None if the answer chooses no option or several.
    """
    answer = " ".join(text.split())
    labels = _labels(options)

    option_number = _repeated_option(answer, options)
    if option_number is not None and len(labels) == len(options):
        return f"({labels[option_number]})"

    conclusion = _FINAL_ANSWER_TAG.split(answer)[-1]
    for passage in (conclusion, answer):
        for candidates in _label_candidates(passage):
            chosen_labels = {label.casefold() for label in candidates} & set(labels)
            if len(chosen_labels) > 1:
                return None
            if chosen_labels:
                return f"({chosen_labels.pop()})"
    return None


def _labels(options: Sequence[str]) -> list[str]:
    """Return the labels of the options, without brackets and in lower case."""
    matches = [_LABEL.match(option) for option in options]
    return [match[1].casefold() for match in matches if match]


def _repeated_option(answer: str, options: Sequence[str]) -> int | None:
    """Return the position of the only option with the same words as an answer, labels aside."""
    answer_words = _words_without_label(answer)
    positions = [
        position
        for position, option in enumerate(options)
        if _words_without_label(option) == answer_words
    ]
    return positions[0] if len(positions) == 1 else None


def _words_without_label(text: str) -> list[str]:
    """Return the words of a text behind its label, in lower case."""
    return re.findall(r"\w+", _LABEL.sub("", text).casefold())


def _label_candidates(passage: str) -> Iterator[list[str]]:
    """Yield what may be labels in a passage, one list for each way to name them, clearest first."""
    yield _BOXED_LABEL.findall(passage)[-1:]
    yield _BRACKETED_LABEL.findall(passage)
    yield _FINAL_ANSWER_LABEL.findall(passage)[:1]
    yield _ANNOUNCED_LABEL.findall(passage)[-1:]
    yield _LABEL_ALONE.findall(passage)
