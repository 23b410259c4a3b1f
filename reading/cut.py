"""Completions that ended for want of room: the text is there, its end is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PERIOD = 100
"""Characters at the end of a text that are looked for before it."""
ROUNDS = 3
"""How often they are found in a text that goes round in circles."""


class CutText(str):
    """The text of a completion that reached its limit of tokens."""

    __slots__ = ()


def marked(outputs: Sequence[Any], result: Any) -> list[Any]:
    """The outputs of a language model, with the texts of those that were cut marked as such.

    Args:
        outputs: Texts, or dicts with a text, as `dspy.LM` returns them.
        result: The `CallResult` they come from.
    """
    reasons = [response.finish_reason for response in result.responses]
    if not reasons:
        choices = getattr(result.raw, "choices", None) or []
        reasons = [getattr(choice, "finish_reason", None) for choice in choices]
    if "length" not in reasons or len(reasons) != len(outputs):
        return list(outputs)
    return [_cut(output) if reason == "length" else output for output, reason in zip(outputs, reasons, strict=True)]


def repeats(text: str) -> bool:
    """Whether a text goes round in circles at its end, as small models do: more room would not end it."""
    end = text[-PERIOD:]
    return len(end) == PERIOD and text.count(end) >= ROUNDS


def _cut(output: Any) -> Any:
    if isinstance(output, str):
        return CutText(output)
    if isinstance(output, dict) and isinstance(output.get("text"), str):
        return {**output, "text": CutText(output["text"])}
    return output
