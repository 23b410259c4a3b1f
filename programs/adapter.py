"""The adapter programs run under: DSPy's chat format, with a malformed answer asked for once more.

DSPy's own fallback repeats the whole request in another format and says nothing of what was wrong. Small models do
better when they see their own answer and the error. A second malformed answer is raised, and becomes a typed failure.

Example:
    >>> with dspy.context(adapter=CorrectingAdapter()):
    ...     program(history=history, question="Where does Ann live?")
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from ..errors import UnknownNameError
from .compact_adapter import CompactAdapter


class CorrectingAdapter(dspy.ChatAdapter):
    """`dspy.ChatAdapter` that shows the model its malformed answer with the error, and asks again.

    Args:
        corrections: How often a malformed answer is asked for again.
    """

    def __init__(self, corrections: int = 1) -> None:
        super().__init__(use_json_adapter_fallback=False)
        self.corrections = corrections

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        try:
            return super().__call__(lm, dict(lm_kwargs), signature, demos, inputs)
        except AdapterParseError as error:
            if self.corrections < 1:
                raise
            return _Correction(error, self.corrections - 1)(lm, dict(lm_kwargs), signature, demos, inputs)

    async def acall(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        try:
            return await super().acall(lm, dict(lm_kwargs), signature, demos, inputs)
        except AdapterParseError as error:
            if self.corrections < 1:
                raise
            return await _Correction(error, self.corrections - 1).acall(lm, dict(lm_kwargs), signature, demos, inputs)


class _Correction(CorrectingAdapter):
    """The same request with the malformed answer and what was wrong with it at the end."""

    def __init__(self, error: AdapterParseError, corrections: int) -> None:
        super().__init__(corrections)
        self._error = error

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        messages = super().format(signature, demos, inputs)
        return [
            *messages,
            {"role": "assistant", "content": self._error.lm_response or "(empty)"},
            {
                "role": "user",
                "content": f"That could not be read: {_reason(self._error)}\n\nAnswer the same request again, "
                f"in full and in the required form.\n\n{self.user_message_output_requirements(signature)}",
            },
        ]


def _reason(error: AdapterParseError) -> str:
    """What was wrong, without the answer itself, which the model sees anyway."""
    said, _, _ = str(error).partition(f"Adapter {error.adapter_name} failed")
    if said.strip():
        return " ".join(said.split())[:500]
    found = error.parsed_result if isinstance(error.parsed_result, dict) else {}
    missing = [name for name in error.signature.output_fields if name not in found]
    return f"the fields {', '.join(missing)} are missing"


ADAPTERS = {
    "chat": CorrectingAdapter,
    "json": dspy.JSONAdapter,
    "xml": dspy.XMLAdapter,
    "compact": CompactAdapter,
}


def adapter(name: str = "chat") -> dspy.Adapter:
    """Makes the adapter of a name that a manifest or `--adapter` gives.

    Raises:
        UnknownNameError: There is no such adapter.
    """
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ADAPTERS)
    return ADAPTERS[name]()
