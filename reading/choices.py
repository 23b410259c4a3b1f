"""Answers that choose one of the options a prompt offers, as `answer: Annotated[str, OneOf("options")]`.

An answer that chooses none of them, or several, is no answer: it is asked for again, and then counted as lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"^\s*[(\[]?([A-Za-z]|\d{1,2})[)\].:]")
_FINAL = re.compile(r"<\s*final_?answer\s*>", re.IGNORECASE)
_STATED = re.compile(r"final answer\s*[:：][\s*]*[(（\[]?(\w)\b", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*\{?\s*(?:\\text\s*\{)?\s*\(?\s*(\w)\b")
_SAID = re.compile(
    r"(?:answer|option|choice|choose|select)(?:\s+is)?\s*[:：]?[\s*]*(?:option\s+)?[(（\[]?(\w)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class OneOf:
    """Marks a text as one of the options of an input."""

    field: str


def chosen_letter(text: str, options: Sequence[str]) -> str | None:
    """The label `(b)` of the option that an answer chooses; None where that is none, or not clear.

    Looked for in this order: the text of an option; then in what follows the last `<final_answer>`, and in the whole
    answer: a boxed label, one in brackets, the first "final answer:", the last label that follows "answer", "option"
    and the like, one that stands alone. Each option begins with its label, `(a)`, `A.` or `3)`.
    """
    # Patterns with several runs of blanks take powers of their length: "\boxed" and 1,000 line breaks took minutes.
    text = " ".join(text.split())
    labels = [match[1].casefold() for option in options if (match := _LABEL.match(option))]
    repeated = [n for n, option in enumerate(options) if _words(_LABEL.sub("", option)) == _words(_LABEL.sub("", text))]
    if len(repeated) == 1 and len(labels) == len(options):
        return f"({labels[repeated[0]]})"
    for part in dict.fromkeys([_FINAL.split(text)[-1], text]):
        for found in _named(part):
            known = {label.casefold() for label in found} & set(labels)
            if len(known) == 1:
                return f"({known.pop()})"
            if known:
                return None
    return None


def _named(text: str) -> list[list[str]]:
    # The clearest way of naming comes first.
    boxed = _BOXED.findall(text)
    return [
        boxed[-1:],
        re.findall(r"[(（\[]\s*(\w{1,2})\s*[)）\]]", text),
        _STATED.findall(text)[:1],
        _SAID.findall(text)[-1:],
        re.findall(r"(?<![\w'])(\w{1,2})(?!\w)", text),
    ]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
