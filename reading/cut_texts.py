"""Mark completions that reached their limit of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dspy.clients.call_result import CallResult

Output: TypeAlias = str | dict[str, Any] | None
"""A completion as `dspy.LM` returns it: a text, or a dict with a "text" among others."""

_REPEAT_LENGTH = 100
"""How many characters at the end of a text are looked for in the rest."""

_MIN_REPEATS = 3


class CutText(str):
    """The text of a completion that reached its limit of tokens.

    It is a blank if the completion has no words, as of a model that was still reasoning.
    """

    __slots__ = ()


def mark_cut_texts(outputs: Sequence[Output], result: CallResult) -> list[Output]:
    """Return the outputs of a call, with texts that were cut turned into `CutText`.

    Args:
        outputs: The completions of the call.
        result: The result of the same call.
    """
    reasons = _finish_reasons(result)
    if "length" not in reasons or len(reasons) != len(outputs):
        return list(outputs)

    marked_outputs: list[Output] = []
    for output, reason in zip(outputs, reasons, strict=True):
        if reason == "length":
            marked_outputs.append(_mark_as_cut(output))
        else:
            marked_outputs.append(output)
    return marked_outputs


def ends_in_loop(text: str) -> bool:
    """Say whether a text ends in a loop, as of a small model: more tokens would not help."""
    end = text[-_REPEAT_LENGTH:]
    return len(end) == _REPEAT_LENGTH and text.count(end) >= _MIN_REPEATS


def _finish_reasons(result: CallResult) -> list[str | None]:
    """Return why each completion of a call ended: "length" if it reached its limit."""
    if result.responses:
        return [response.finish_reason for response in result.responses]
    choices = getattr(result.raw, "choices", None) or []
    return [getattr(choice, "finish_reason", None) for choice in choices]


def _mark_as_cut(output: Output) -> Output:
    """Return a completion with its text as `CutText`."""
    if isinstance(output, dict):
        return {**output, "text": _cut_text(output.get("text"))}
    return _cut_text(output)


def _cut_text(text: str | None) -> CutText:
    # A cut text is never empty: DSPy's adapters parse no empty text, and would not see the mark.
    return CutText(text or " ")
